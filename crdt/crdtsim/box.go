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
	name   string
	disk   *store.Disk
	store  *store.Store
	offset time.Duration
	side   int // of the cut; boxes of one side reach each other
	inbox  []message
	seen   map[crdt.Key]crdt.Row // the highest state of each row that this disk showed
	kept   []*store.Disk         // copies made earlier, to roll back to
}

type message struct {
	side int
	data []byte
}

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
	opened, err := store.Open("", store.Options{
		Now: func() time.Time { return s.wall.Add(b.offset) }, Entropy: entropy{s.rand}, Disk: b.disk,
	})
	if err != nil {
		return err
	}
	b.store = opened
	opened.OnLocalWrite(func(items []crdt.Item) { s.acknowledged(b, items) })
	if b.seen == nil {
		b.seen, err = rowsOf(opened)
	}
	return err
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
	b.disk, b.seen = disk, nil
	return s.boot(b)
}

// key picks a row. Few rows, so that boxes meet on them; more as time goes by.
func (s *sim) key() crdt.Key {
	return crdt.NewKey("models", fmt.Sprint("m", s.rand.IntN(4)+s.report.Steps/50))
}

// write makes one update of up to three changes.
func (s *sim) write(b *box) error {
	s.report.Writes++
	keys, err := b.store.Update(func(tx *store.Tx) error {
		var errs []error
		for range 1 + s.rand.IntN(3) {
			errs = append(errs, s.change(tx))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("write on %s: %w", b.name, err)
	}
	return s.checkGrows(b, keys)
}

func (s *sim) change(tx *store.Tx) error {
	key, cell := s.key(), fmt.Sprint("c", s.rand.IntN(3))
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
		for range s.rand.IntN(3) {
			to.inbox = append(to.inbox, message{side: from.side, data: data})
		}
	}
}

// deliver hands one message over, whichever; now and then it stays in the network and comes again.
func (s *sim) deliver(b *box) error {
	if len(b.inbox) == 0 {
		return nil
	}
	n := s.rand.IntN(len(b.inbox))
	m := b.inbox[n]
	if s.rand.IntN(4) > 0 {
		b.inbox = slices.Delete(b.inbox, n, n+1)
	}
	if m.side != b.side {
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

// pullSome pulls a page or two from some box, and crashes in between now and then.
func (s *sim) pullSome(b *box) error {
	from := s.box()
	for range 1 + s.rand.IntN(3) {
		if from == b || from.side != b.side {
			return nil
		}
		more, err := s.pullPage(b, from, s.rand.IntN(20) == 0)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (s *sim) pullAll(b, from *box) error {
	for more := b != from; more; {
		var err error
		if more, err = s.pullPage(b, from, false); err != nil {
			return err
		}
	}
	return nil
}

// pullPage is one step of the pull as the mesh does it.
func (s *sim) pullPage(b, from *box, crash bool) (more bool, err error) {
	cursor, err := b.store.Cursor(from.name)
	if err != nil {
		return false, err
	}
	if cursor.IndexID != from.store.IndexID() {
		cursor = store.Cursor{IndexID: from.store.IndexID()}
	}
	page, err := from.store.Since(cursor.Seq, pageBytes)
	if err != nil {
		return false, err
	}
	if err := s.merge(b, page.Items); err != nil {
		return false, err
	}
	if crash {
		return false, s.crash(b)
	}
	return page.More, b.store.SetCursor(from.name, store.Cursor{IndexID: page.IndexID, Seq: page.Next})
}
