package crdtsim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// box is one node: its disk, the store on it, its clock and what is under way to it.
type box struct {
	name     string
	disk     *store.Disk
	store    *store.Store
	offset   time.Duration
	side     int  // of the cut; boxes of one side reach each other
	off      bool // powered down
	met      bool // has met a peer since it booted: before, it gossips nothing
	acks     map[string]store.Cursor
	money    map[string]store.MoneyCursor // how far it knows what others know of spending
	inbox    []message
	seen     map[crdt.Key]crdt.Row // the highest state of each row that this disk showed
	kept     *store.Disk           // a copy made earlier, to roll back to
	keptEnd  store.Cursor          // the end of its log
	doubtful bool                  // rolled back, and no peer has noticed yet
	known    uint64                // the least that each of the others remembers of its log
	twin     bool                  // a clone under the identity of another box, or that box
	backup   []byte                // one made earlier, to restore
	life     int                   // counts disks
	made     int                   // counts rows that nobody else writes
	own      []crdt.Key            // these rows
	gone     map[crdt.Account]bool // accounts that this disk dropped
}

type message struct {
	side int
	sent time.Time
	data []byte
}

// messageLife is how long the network may hold a message back.
const messageLife = 5 * time.Minute

// pageBytes is tiny, so that each pull takes several pages and is interrupted between them.
const pageBytes = 120

// add boots one more box.
func (s *sim) add(disk *store.Disk) error {
	b := &box{name: fmt.Sprint("box", len(s.boxes)), disk: disk}
	s.boxes = append(s.boxes, b)
	return s.boot(b)
}

// boot opens the store on the box's disk.
func (s *sim) boot(b *box) error {
	opened, err := store.Open("", s.options(b, b.disk))
	if err != nil {
		return err
	}
	b.store, b.met, b.acks, b.money = opened, false, map[string]store.Cursor{}, map[string]store.MoneyCursor{}
	opened.OnLocalWrite(func(items []crdt.Item) { s.acknowledged(b, items) })
	if b.seen == nil {
		b.seen, err = rowsOf(opened)
	}
	return err
}

func (s *sim) options(b *box, disk *store.Disk) store.Options {
	return store.Options{
		Now: func() time.Time { return s.wall.Add(b.offset) }, Entropy: entropy{s.rand}, Disk: disk, Group: 1,
	}
}

// entropy draws from the seed.
type entropy struct{ rand interface{ Uint64() uint64 } }

func (e entropy) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e.rand.Uint64() >> 32)
	}
	return len(p), nil
}

// replace puts another disk into the box. What only the old one held is gone.
func (s *sim) replace(b *box, disk *store.Disk) error {
	if err := b.store.Close(); err != nil {
		return err
	}
	b.disk, b.seen, b.own, b.gone = disk, nil, nil, nil
	b.life++
	return s.boot(b)
}

// key picks a row. Few rows, so that boxes meet on them; others as time goes by.
func (s *sim) key() crdt.Key {
	return crdt.NewKey("models", fmt.Sprint("m", s.rand.IntN(4)+s.report.Steps/50))
}

// write makes one update of up to three changes.
func (s *sim) write(b *box) error {
	if b.doubtful && b.store.Sequence()+4 >= b.known {
		// More writes, and its peers could not tell this life from the one that they remember.
		return nil
	}
	s.report.Writes++
	keys, err := b.store.Update(func(tx *store.Tx) error {
		var errs []error
		for range 1 + s.rand.IntN(3) {
			errs = append(errs, s.change(b, tx))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("write on %s: %w", b.name, err)
	}
	return s.checkGrows(b, keys)
}

func (s *sim) change(b *box, tx *store.Tx) error {
	key, cell := s.key(), fmt.Sprint("c", s.rand.IntN(3))
	if s.rand.IntN(4) == 0 {
		b.made++
		key = crdt.NewKey("own", b.name, fmt.Sprint(b.life), fmt.Sprint(b.made))
		b.own = append(b.own, key)
		return tx.Set(key, cell, []byte("v"))
	}
	row, present, err := tx.Get(key)
	if err != nil || !present && !s.mayMake(key, row) {
		return err
	}
	switch n := s.rand.IntN(10); {
	case n < 6:
		return tx.Set(key, cell, fmt.Append(nil, s.rand.IntN(1000)))
	case n < 7:
		return tx.SetAt(key, "epoch", fmt.Append(nil, s.rand.IntN(3)), crdt.HLC(s.rand.IntN(5)))
	case n < 8:
		return tx.Remove(key, cell)
	}
	return tx.Delete(key)
}

// mayMake says whether a row may be made under a key, or made again. IDs are random, so that nobody makes one which others
// may have forgotten. While nothing is forgotten and nobody away, boxes do make the same row, and make it again.
func (s *sim) mayMake(key crdt.Key, row crdt.Row) bool {
	_, known := s.written[key]
	if !known || slices.ContainsFunc(s.boxes, func(b *box) bool { return b.off }) {
		return !known
	}
	return row.Length >= s.dead[key] && row.Length > 0 || !s.forgets
}

// acknowledged notes a write and gossips it to some of the boxes, to some of them twice.
func (s *sim) acknowledged(from *box, items []crdt.Item) {
	for _, i := range items {
		s.written[i.Key] = crdt.Merge(s.written[i.Key], i.Row)
		s.owed[i.Key] = crdt.Merge(s.owed[i.Key], i.Row)
		if !i.Row.Present() {
			s.dead[i.Key] = max(s.dead[i.Key], i.Row.Length)
		}
	}
	data, err := crdt.EncodeItems(items)
	if err != nil {
		s.violate("what was written does not encode: %v", err)
		return
	}
	for _, to := range s.others(from) {
		copies := s.rand.IntN(3)
		if !from.met {
			continue
		}
		switch copies {
		case 0:
			s.count("message lost")
		case 2:
			s.count("message doubled")
		}
		for range copies {
			to.inbox = append(to.inbox, message{side: from.side, sent: s.wall, data: data})
		}
	}
}

// deliver hands one message over, whichever; now and then it stays in the network and comes again.
func (s *sim) deliver(b *box) error {
	if len(b.inbox) == 0 || b.off || !b.met {
		return nil
	}
	n := s.rand.IntN(len(b.inbox))
	m := b.inbox[n]
	if n > 0 {
		s.count("message out of order")
	}
	if s.rand.IntN(4) > 0 {
		b.inbox = slices.Delete(b.inbox, n, n+1)
	}
	if m.side != b.side || s.wall.Sub(m.sent) > messageLife {
		return nil
	}
	items, err := crdt.DecodeItems(m.data)
	if err != nil {
		return err
	}
	return s.merge(b, items)
}

func (s *sim) merge(b *box, items []crdt.Item) error {
	keys, err := b.store.Merge(items)
	if err != nil {
		return fmt.Errorf("merge on %s: %w", b.name, err)
	}
	return s.checkGrows(b, keys)
}
