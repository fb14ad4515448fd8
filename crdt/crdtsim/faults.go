package crdtsim

import (
	"time"

	"llmgw/crdt/store"
)

// crash ends the process and boots again from what it left.
func (s *sim) crash(b *box) error {
	s.count("crash")
	left, err := b.disk.Copy()
	if err != nil {
		return err
	}
	if err := b.store.Close(); err != nil {
		return err
	}
	b.disk = left
	return s.boot(b)
}

// stepClock sets the wall clock of the box up to 40 hours off, either way: enough for its stamps to wait aside elsewhere.
func (s *sim) stepClock(b *box) error {
	s.count("clock step")
	b.offset = time.Duration(s.rand.IntN(80*3600)-40*3600) * time.Second
	return nil
}

func (s *sim) cut(b *box) error {
	s.count("cut")
	b.side = 1 + s.rand.IntN(2)
	return nil
}

func (s *sim) heal(*box) error {
	for _, b := range s.boxes {
		b.side = 0
	}
	return nil
}

// wipe replaces the disk by an empty one.
func (s *sim) wipe(b *box) error {
	s.count("wiped disk")
	if err := s.replace(b, store.NewDisk()); err != nil {
		return err
	}
	return s.settleDebts()
}

// rollBack keeps a copy of the disk, or puts one back that was kept earlier.
func (s *sim) rollBack(b *box) error {
	if len(b.kept) == 0 {
		kept, err := b.disk.Copy()
		b.kept = append(b.kept, kept)
		return err
	}
	s.count("disk rolled back")
	old := b.kept[0]
	b.kept = nil
	if err := s.replace(b, old); err != nil {
		return err
	}
	return s.settleDebts()
}

// clone boots a copy of the disk as one more box, while the first goes on.
func (s *sim) clone(b *box) error {
	if len(s.boxes) >= s.cfg.Boxes+2 {
		return nil
	}
	s.count("clone")
	disk, err := b.disk.Copy()
	if err != nil {
		return err
	}
	return s.add(disk)
}
