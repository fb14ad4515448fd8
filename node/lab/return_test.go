package lab

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/ui"
)

// longAway is more of a mesh's uptime than a deletion is remembered for.
const longAway = store.TombstoneAge + 7*24*time.Hour

// atRest stops a box's daemon, works on its store, and leaves it stopped.
func (b *Box) atRest(work func(*store.Store) error) {
	b.tb.Helper()
	if b.Running() {
		b.Stop()
	}
	s := b.openStore()
	if err := work(s); err != nil {
		b.tb.Fatalf("store of box %s: %v", b.Name, err)
	}
	if err := s.Close(); err != nil {
		b.tb.Fatalf("store of box %s: %v", b.Name, err)
	}
}

// alike waits until these boxes hold as many rows and deletions as the first.
func alike(boxes ...*Box) {
	first := boxes[0]
	first.tb.Helper()
	Eventually(first.tb, 40*time.Second, "the boxes hold the same", func() (bool, string) {
		var all []string
		same := true
		for _, b := range boxes {
			r := JSON[ui.StateReport](b, "state", "verify")
			all = append(all, fmt.Sprintf("%s: %d rows, %d deleted", b.Name, r.Rows, r.Tombstones))
			same = same && all[len(all)-1][len(b.Name):] == all[0][len(first.Name):]
		}
		return same, fmt.Sprint(all)
	})
}

// TestBoxAwayForLongBringsNothingBack: a row was deleted and the deletion itself
// forgotten while a box that has the row was away. It takes over the others'
// state, and keeps what it alone wrote.
func TestBoxAwayForLongBringsNothingBack(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.joinedBoxes("a", "b", "c")
	a, b, c := boxes[0], boxes[1], boxes[2]
	doomed := crdt.NewKey("bench", "doomed")
	a.atRest(func(s *store.Store) error {
		_, err := s.Update(func(tx *store.Tx) error { return tx.Set(doomed, "x", []byte("1")) })
		return err
	})
	a.Start()
	a.Sees(c, 20*time.Second, ui.NodeLive)
	alike(a, b, c)
	c.Cut()
	alone := c.CLI("keys", "new", "alone")
	c.Stop()
	c.Heal()
	a.atRest(func(s *store.Store) error {
		_, err := s.Update(func(tx *store.Tx) error { return tx.Delete(doomed) })
		return err
	})
	a.Start()
	a.Sees(b, 20*time.Second, ui.NodeLive)
	alike(a, b)
	for _, x := range []*Box{a, b} {
		x.atRest(func(s *store.Store) error {
			// All that time the two were in touch.
			if err := errors.Join(s.AddUptime(longAway), s.NoteSync(longAway)); err != nil {
				return err
			}
			done, err := s.CollectTombstones(map[string]store.Cursor{c.Name: {}})
			if err == nil && done.Aged == 0 {
				err = fmt.Errorf("no deletion was old enough to be forgotten: %+v", done)
			}
			return err
		})
	}
	for _, x := range boxes {
		x.Launch()
	}
	for _, x := range boxes {
		x.AwaitAPI()
	}
	c.says(40*time.Second, "this box was away for too long", "kept what only it had written")
	t.Log(c.CLI("status"))
	for _, x := range boxes {
		answersWithin(t, a.API(x, alone), http.StatusOK, 30*time.Second)
	}
	alike(a, b, c)
	for _, x := range boxes {
		x.atRest(func(s *store.Store) error {
			if row, _, err := s.Get(doomed); err != nil || row.Present() {
				return fmt.Errorf("the deleted row is back: %+v, %v", row, err)
			}
			return nil
		})
	}
}

// TestMeshThatWasOffForLongLosesNothing: all boxes were switched off together,
// and years passed on their clocks. None was away from the others.
func TestMeshThatWasOffForLongLosesNothing(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	key := s.a.CLI("keys", "new", "phone")
	ofB := s.b.CLI("keys", "new", "tablet")
	answers(t, s.atA(ofB), http.StatusOK)
	for _, b := range []*Box{s.a, s.b} {
		b.Stop()
		b.SetClock(2 * 365 * 24 * time.Hour)
	}
	for _, b := range []*Box{s.a, s.b} {
		b.Start()
	}
	s.a.Sees(s.b, 20*time.Second, ui.NodeLive)
	for _, k := range []string{key, ofB} {
		answers(t, s.atA(k), http.StatusOK)
		answers(t, s.atB(k), http.StatusOK)
	}
	after := s.b.CLI("keys", "new", "after")
	answers(t, s.atA(after), http.StatusOK)
	s.a.CLI("keys", "revoke", "after")
	answers(t, s.atB(after), http.StatusUnauthorized)
}
