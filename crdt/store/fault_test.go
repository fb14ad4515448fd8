package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// After a failed sync nobody knows what is on disk: nothing may be acknowledged or served to a peer any more.
func TestFailedSyncStopsTheStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	key := crdt.NewKey("models", "m")
	set(t, s, key, "a", "before")
	s.OnLocalWrite(func([]crdt.Item) { t.Error("a write that may be lost was gossiped") })
	w := s.Watch()
	defer w.Close()
	broken := errors.New("input/output error")
	s.FailSync(broken)
	write := func(tx *store.Tx) error { return tx.Set(key, "a", []byte("after")) }
	if _, err := s.Update(write); !errors.Is(err, store.ErrFailed) || !errors.Is(err, broken) {
		t.Errorf("update: %v", err)
	}
	if !took(w) {
		t.Error("the row changed for readers and the watch is silent")
	}
	if page, err := s.Since(1, 1000); err != nil || len(page.Items) != 0 || page.Next != 1 || s.Sequence() != 1 {
		t.Errorf("a row that may be lost is served: %+v, sequence %d, %v", page, s.Sequence(), err)
	}
	if page, err := s.Since(0, 1000); err != nil || len(page.Items) != 0 || page.Next != 1 {
		t.Errorf("a peer that pulls from the start gets %+v, %v; its cursor should come to the sequence", page, err)
	}
	_, errUpdate := s.Update(write)
	_, errMerge := s.Merge([]crdt.Item{item(key, "b", remote(1, 2, "v"))})
	for name, err := range map[string]error{
		"update": errUpdate, "merge": errMerge, "meta": s.SetMeta("m", nil), "cursor": s.SetCursor("p", store.Cursor{}), "reset": s.Reset(),
	} {
		if !errors.Is(err, store.ErrFailed) {
			t.Errorf("%s after the failure: %v", name, err)
		}
	}
	closeStore(t, s)
	s = open(t, dir)
	set(t, s, key, "a", "again")
}

func TestUpdateIsOneFlush(t *testing.T) {
	s := newClocked(t)
	flushes := 0
	s.OnSync(func() { flushes++ })
	for i := range 3 {
		// The ceiling of the clock is raised by each of them.
		*s.wall = s.wall.Add(time.Minute)
		set(t, s.Store, row("m"), "a", fmt.Sprint(i))
		if flushes != i+1 {
			t.Fatalf("%d flushes for %d writes", flushes, i+1)
		}
	}
}

// A ceiling that was dropped with a write that failed is raised again by the next one: stamps go on above it after a restart.
func TestCeilingOfAFailedWriteIsNotTakenForSaved(t *testing.T) {
	s := newClocked(t)
	refused := errors.New("refused")
	*s.wall = s.wall.Add(time.Hour)
	_, err := s.Update(func(tx *store.Tx) error {
		return errors.Join(tx.Set(row("m"), "a", []byte("dropped")), refused)
	})
	if !errors.Is(err, refused) {
		t.Fatalf("got %v", err)
	}
	set(t, s.Store, row("m"), "a", "kept")
	before, _, err := s.Get(row("m"))
	must(t, err)
	closeStore(t, s.Store)
	*s.wall = s.wall.Add(-2 * time.Hour)
	s = openClocked(t, s.disk, s.wall)
	set(t, s.Store, row("other"), "a", "v")
	after, _, err := s.Get(row("other"))
	must(t, err)
	if after.Cells["a"].At <= before.Cells["a"].At {
		t.Errorf("stamped %d before the restart, %d after it", before.Cells["a"].At, after.Cells["a"].At)
	}
}

func TestFailedSyncDuringResetIsFinishedByOpen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	set(t, s, crdt.NewKey("models", "m"), "a", "old mesh")
	s.FailSync(errors.New("input/output error"))
	if err := s.Reset(); !errors.Is(err, store.ErrFailed) {
		t.Errorf("got %v", err)
	}
	closeStore(t, s)
	if rows := all(t, open(t, dir)); len(rows) != 0 {
		t.Errorf("%d rows of the old mesh came back", len(rows))
	}
}
