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
		s.cfg.Trace("  %s holds %s of length %d, %d cells", b.name, key, row.Length, len(row.Cells))
		if s.forgets && !had.Present() && !row.Present() && row.Length < had.Length {
			// The tombstone was forgotten here, and one of an earlier life arrived.
			continue
		}
		if !crdt.Merge(had, row).Equal(row) {
			s.violate("%s: row %s went from %+v back to %+v", b.name, key, had, row)
		}
		b.seen[key] = row
	}
	return nil
}

// settleDebts is called when a disk was lost: from now on only what the stores hold is owed.
func (s *sim) settleDebts() error {
	s.owed, s.spent = map[crdt.Key]crdt.Row{}, crdt.Spend{}
	for _, b := range s.boxes {
		money, _ := b.store.MoneyIn(crdt.MoneySums{})
		s.spent.Merge(money.Spend)
		for _, f := range money.Folds {
			s.spent.MergeFold(f)
		}
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

// checkReseed looks at what a re-seed left: nothing that it kept went back, and what the box made itself is there, unless
// one that was away together with it has that, which was told of it and drops it next.
func (s *sim) checkReseed(b *box, together []*box) error {
	rows, err := rowsOf(b.store)
	if err != nil {
		return err
	}
	for key, row := range rows {
		had := b.seen[key]
		if !row.Present() && row.Length < had.Length {
			// Had was forgotten here, or went since the peer has an earlier life of it alone.
			b.seen[key] = row
			continue
		}
		if !crdt.Merge(had, row).Equal(row) {
			s.violate("%s: the re-seed took row %s from %+v back to %+v", b.name, key, had, row)
		}
	}
	for key, had := range b.seen {
		if _, ok := rows[key]; !ok && had.Present() {
			delete(b.seen, key)
		}
	}
	for key, row := range rows {
		b.seen[key] = crdt.Merge(b.seen[key], row)
	}
	for _, key := range b.own {
		if !rows[key].Present() && !slices.ContainsFunc(together, func(o *box) bool { return o.seen[key].Present() }) {
			s.violate("%s: the re-seed lost %s, which it made itself", b.name, key)
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
	sum := s.boxes[0].store.Digest()
	for _, b := range s.boxes[1:] {
		rows, err := rowsOf(b.store)
		if err != nil {
			return err
		}
		s.checkSame(b, first, rows)
		if got := b.store.Digest(); got != sum {
			s.violate("the digest of %s differs in buckets %v", b.name, got.Diff(&sum))
		}
	}
	for _, b := range s.boxes {
		s.checkBuried(b)
	}
	s.checkOwed(first)
	for _, key := range slices.Sorted(maps.Keys(first)) {
		if all := s.written[key]; !crdt.Merge(all, first[key]).Equal(all) {
			s.violate("row %s has what nobody wrote: %+v, written was %+v", key, first[key], all)
		}
	}
	return nil
}

// checkOwed: what a surviving store held is there, or was deleted.
func (s *sim) checkOwed(rows map[crdt.Key]crdt.Row) {
	for _, key := range slices.Sorted(maps.Keys(s.owed)) {
		row, owed := rows[key], s.owed[key]
		if crdt.Merge(row, owed).Equal(row) {
			continue
		}
		if row.Length == 0 && s.forgets && s.dead[key] >= owed.Length {
			continue
		}
		s.violate("row %s lost: %+v was held, %+v is left", key, owed, row)
	}
}

// checkBuried: a box that once showed a row as deleted does not show that life of it again.
func (s *sim) checkBuried(b *box) {
	for _, key := range slices.Sorted(maps.Keys(b.seen)) {
		row, _, err := b.store.Get(key)
		if had := b.seen[key]; err != nil || !had.Present() && row.Present() && row.Length < had.Length {
			s.violate("%s: row %s came back from the dead: %+v, %v", b.name, key, row, err)
		}
	}
}

// checkSame compares all rows, or the present ones once tombstones were forgotten.
func (s *sim) checkSame(b *box, want, got map[crdt.Key]crdt.Row) {
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		gone := !want[key].Present() && !got[key].Present()
		if !want[key].Equal(got[key]) && !(s.forgets && gone) {
			s.violate("%s and %s differ in %s: %+v, %+v", s.boxes[0].name, b.name, key, want[key], got[key])
		}
	}
}
