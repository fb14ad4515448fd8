package crdtsim

import (
	"bytes"
	"math"
	"slices"
	"time"

	"llmgw/crdt/store"
)

// crash ends the process and boots again from what it left.
func (s *sim) crash(b *box) error {
	s.count("crash")
	if b.doubtful {
		// What it wrote since cannot be told any more from what it had sent before.
		b.own = nil
	}
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

// leave takes a box out of everybody's reach, where it goes on writing. A peer has pulled from it before: as a write is
// offered to a live peer before it is acknowledged.
func (s *sim) leave(b *box) error {
	here := slices.DeleteFunc(s.others(b), func(o *box) bool { return o.off })
	if len(here) < 2 || b.twin || b.off {
		return nil
	}
	last := here[s.rand.IntN(len(here))]
	if ready, err := s.meet(last, b); err != nil || !ready {
		return err
	}
	s.count("left alone")
	if err := s.pullAll(last, b); err != nil {
		return err
	}
	if _, err := s.meet(last, b); err != nil {
		return err
	}
	b.off, b.met, b.inbox = true, false, nil
	return nil
}

func (s *sim) comeBack(b *box) error {
	b.off = false
	return nil
}

// leap lets days go by, healed, in which those that are on pull from each other and collect tombstones. Now and then
// everything is off meanwhile.
func (s *sim) leap(*box) error {
	days, length := 1+s.rand.IntN(10), "days"
	if s.rand.IntN(2) == 0 {
		days, length = 30+s.rand.IntN(10), "a month"
	}
	if s.rand.IntN(4) == 0 {
		s.count("all off for " + length)
		s.wall = s.wall.Add(time.Duration(days) * 24 * time.Hour)
		return nil
	}
	s.count(length + " went by")
	if slices.ContainsFunc(s.boxes, func(b *box) bool { return b.off }) {
		s.count("away for " + length)
	}
	if err := s.heal(nil); err != nil {
		return err
	}
	for range days {
		if err := s.day(); err != nil {
			return err
		}
	}
	return nil
}

func (s *sim) day() error {
	s.wall = s.wall.Add(24 * time.Hour)
	if err := s.syncAll(); err != nil {
		return err
	}
	for _, b := range s.boxes {
		if b.off {
			continue
		}
		if err := b.store.AddUptime(24 * time.Hour); err != nil {
			return err
		}
	}
	for _, b := range s.boxes {
		if err := s.collect(b); err != nil {
			return err
		}
	}
	return nil
}

// wipe replaces the disk by an empty one.
func (s *sim) wipe(b *box) error {
	s.count("wiped disk")
	b.doubtful = false
	if err := s.replace(b, store.NewDisk()); err != nil {
		return err
	}
	return s.diskLost()
}

// diskLost: what the lost disk held and no other one does is not owed. It may have been the only peer that had what a box
// wrote before it went away, which then does not know that its own copy is the last.
func (s *sim) diskLost() error {
	for _, b := range s.boxes {
		if !b.met {
			b.own = nil
		}
	}
	return s.settleDebts()
}

// rollBack keeps a copy of the disk, or puts one back that was kept earlier. It is found out by what peers remember, so
// it happens to a box of which every other one remembers more.
func (s *sim) rollBack(b *box) error {
	if b.kept == nil {
		kept, err := b.disk.Copy()
		b.kept, b.keptEnd = kept, store.Cursor{IndexID: b.store.IndexID(), Seq: b.store.Sequence()}
		return err
	}
	known := uint64(math.MaxUint64)
	for _, o := range s.others(b) {
		cursor, err := o.store.Cursor(b.name)
		if err != nil {
			return err
		}
		if cursor.IndexID != b.keptEnd.IndexID || cursor.Seq <= b.keptEnd.Seq+1 {
			return nil
		}
		known = min(known, cursor.Seq)
	}
	s.count("disk rolled back")
	old := b.kept
	b.kept = nil
	if err := s.replace(b, old); err != nil {
		return err
	}
	b.doubtful, b.known = true, known
	return s.diskLost()
}

// restore makes a backup, or restores one that was made earlier.
func (s *sim) restore(b *box) error {
	if b.backup == nil {
		var archive bytes.Buffer
		err := b.store.Backup(&archive)
		b.backup = archive.Bytes()
		return err
	}
	s.count("backup restored")
	b.doubtful = false
	disk := store.NewDisk()
	if err := store.Restore("", bytes.NewReader(b.backup), s.options(b, disk)); err != nil {
		return err
	}
	b.backup = nil
	if err := s.replace(b, disk); err != nil {
		return err
	}
	return s.diskLost()
}

// clone boots a copy of the disk as one more box, while the first goes on. Half of the clones are given an
// identity of their own at once, as an operator would; the others go on as twins.
func (s *sim) clone(b *box) error {
	if len(s.boxes) >= s.cfg.Boxes+2 || b.off || b.doubtful || b.store.Overdue(0) {
		return nil
	}
	s.count("clone")
	disk, err := b.disk.Copy()
	if err != nil {
		return err
	}
	if err := s.add(disk); err != nil {
		return err
	}
	twin := s.boxes[len(s.boxes)-1]
	twin.twin = s.rand.IntN(2) == 0
	if twin.twin {
		b.twin = true
		return nil
	}
	return twin.store.Rotate()
}
