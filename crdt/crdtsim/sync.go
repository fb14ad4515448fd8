package crdtsim

import (
	"errors"
	"fmt"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// meet is what two boxes do before they exchange rows: each shows the other how far it knows its log, which finds a disk
// that was rolled back; then one that is overdue re-seeds. It says whether rows may be exchanged.
func (s *sim) meet(a, b *box) (bool, error) {
	if a == b || a.off || b.off || a.side != b.side {
		return false, nil
	}
	for _, pair := range [][2]*box{{a, b}, {b, a}} {
		if err := s.showCursor(pair[0], pair[1]); err != nil {
			return false, err
		}
	}
	if a.doubtful || b.doubtful {
		// This peer lost its memory too. What two such boxes would tell each other nobody can judge.
		return false, nil
	}
	overA, overB := a.store.Overdue(b.store.MeshUptime()), b.store.Overdue(a.store.MeshUptime())
	switch {
	case overA && overB:
		return false, nil
	case overA:
		return false, s.reseed(a, b)
	case overB:
		return false, s.reseed(b, a)
	}
	if err := errors.Join(s.tellCounts(a, b), s.tellCounts(b, a)); err != nil {
		return false, err
	}
	a.met, b.met = true, true
	return true, nil
}

// showCursor tells of how far by knows the log of to.
func (s *sim) showCursor(by, to *box) error {
	cursor, err := by.store.Cursor(to.name)
	if err != nil {
		return err
	}
	to.acks[by.name] = cursor
	rolledBack, err := to.store.NoteAck(cursor)
	if rolledBack {
		s.count("roll-back noticed")
		to.doubtful = false
		to.acks = map[string]store.Cursor{}
	}
	return err
}

// reseed replaces the rows of b by those of from.
func (s *sim) reseed(b, from *box) error {
	s.count("re-seed")
	s.cfg.Trace("  %s re-seeds from %s", b.name, from.name)
	told := from.store.MeshUptime()
	var together []*box // were away with b
	for _, o := range s.others(b) {
		if o.store.Overdue(told) {
			// b may be the only one that has what o wrote, and drops it now.
			o.own = nil
			together = append(together, o)
		}
	}
	r, err := b.store.BeginReseed()
	if err != nil {
		return err
	}
	rows, err := rowsOf(from.store)
	if err != nil {
		return err
	}
	for key, row := range rows {
		if err := r.Merge([]crdt.Item{{Key: key, Row: row}}); err != nil {
			return err
		}
	}
	if s.rand.IntN(4) == 0 {
		// Killed before the end: it begins again the next time.
		return s.crash(b)
	}
	cursor := store.Cursor{IndexID: from.store.IndexID(), Seq: from.store.Sequence()}
	if err := r.Finish(from.name, cursor, told); err != nil {
		return err
	}
	b.met = true
	if err := errors.Join(s.tellCounts(b, from), s.tellCounts(from, b), s.checkReseed(b, together)); err != nil {
		return err
	}
	return s.settleDebts()
}

// pullSome pulls a page or two from some box, and crashes in between now and then.
func (s *sim) pullSome(b *box) error {
	from := s.box()
	ready, err := s.meet(b, from)
	if err != nil || !ready {
		return err
	}
	for range 1 + s.rand.IntN(3) {
		more, err := s.pullPage(b, from, s.rand.IntN(20) == 0)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// pullAll pulls everything.
func (s *sim) pullAll(b, from *box) error {
	ready, err := s.meet(b, from)
	if err != nil || !ready {
		return err
	}
	told := from.store.MeshUptime()
	for more := true; more; {
		if more, err = s.pullPage(b, from, false); err != nil {
			return err
		}
	}
	return b.store.NoteSync(told)
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

// syncAll lets everybody who can pull from everybody.
func (s *sim) syncAll() error {
	for _, b := range s.boxes {
		for _, from := range s.boxes {
			if err := s.pullAll(b, from); err != nil {
				return err
			}
		}
	}
	return nil
}

// collect drops tombstones on a box, by what it knows of the others.
func (s *sim) collect(b *box) error {
	if b.off {
		return nil
	}
	members := map[string]store.Cursor{}
	for _, o := range s.others(b) {
		members[o.name] = b.acks[o.name]
	}
	done, err := b.store.CollectTombstones(members)
	s.cfg.Trace("  %s collects: %+v", b.name, done)
	s.report.Faults["tombstones collected"] += done.Stable + done.Aged
	s.forgets = s.forgets || done.Stable+done.Aged > 0
	if err != nil {
		return fmt.Errorf("collect on %s: %w", b.name, err)
	}
	return nil
}
