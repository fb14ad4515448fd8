package crdtsim

import (
	"maps"
	"slices"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// rowsOf reads everything that a store holds, tombstones included.
func rowsOf(s *store.Store) (map[crdt.Key]crdt.Row, error) {
	rows := map[crdt.Key]crdt.Row{}
	for seq, more := uint64(0), true; more; {
		page, err := s.Since(seq, 1<<20)
		if err != nil {
			return nil, err
		}
		for _, i := range page.Items {
			rows[i.Key] = i.Row
		}
		seq, more = page.Next, page.More
	}
	return rows, nil
}

// checkGrows compares the rows that changed with what the disk showed before.
func (s *sim) checkGrows(b *box, keys []crdt.Key) error {
	for _, key := range keys {
		row, _, err := b.store.Get(key)
		if err != nil {
			return err
		}
		had := b.seen[key]
		if !crdt.Merge(had, row).Equal(row) {
			s.violate("%s: row %s went from %+v back to %+v", b.name, key, had, row)
		}
		b.seen[key] = row
	}
	return nil
}

// settleDebts is called when a disk was lost: from now on only what the stores hold is owed.
func (s *sim) settleDebts() error {
	s.owed = map[crdt.Key]crdt.Row{}
	for _, b := range s.boxes {
		rows, err := rowsOf(b.store)
		if err != nil {
			return err
		}
		for key, row := range rows {
			s.owed[key] = crdt.Merge(s.owed[key], row)
		}
	}
	return nil
}

// checkEnd compares all boxes with each other, with what is owed and with what was ever written.
func (s *sim) checkEnd() error {
	first, err := rowsOf(s.boxes[0].store)
	if err != nil {
		return err
	}
	for _, b := range s.boxes[1:] {
		rows, err := rowsOf(b.store)
		if err != nil {
			return err
		}
		s.checkSame(b, first, rows)
	}
	for _, key := range slices.Sorted(maps.Keys(s.owed)) {
		if row := first[key]; !crdt.Merge(row, s.owed[key]).Equal(row) {
			s.violate("row %s lost: %+v was held, %+v is left", key, s.owed[key], row)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(first)) {
		if all := s.written[key]; !crdt.Merge(all, first[key]).Equal(all) {
			s.violate("row %s has what nobody wrote: %+v, written was %+v", key, first[key], all)
		}
	}
	return nil
}

func (s *sim) checkSame(b *box, want, got map[crdt.Key]crdt.Row) {
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !want[key].Equal(got[key]) {
			s.violate("%s and %s differ in %s: %+v, %+v", s.boxes[0].name, b.name, key, want[key], got[key])
		}
	}
}
