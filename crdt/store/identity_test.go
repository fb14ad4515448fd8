package store_test

import (
	"slices"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func TestRolledBackDiskIsFoundByItsPeers(t *testing.T) {
	a, b := meshOfTwo(t, "m")
	old, err := a.disk.Copy()
	must(t, err)
	set(t, a.Store, row("later"), "a", "v")
	syncFrom(t, b, a, "a")
	cursor, err := b.Cursor("a")
	must(t, err)
	id, index := a.ID(), a.IndexID()

	closeStore(t, a.Store)
	a = openClocked(t, old, a.wall)
	set(t, a.Store, row("m2"), "a", "after the roll-back")
	if a.Sequence() >= cursor.Seq {
		cursor.Seq = a.Sequence() + 1
	}
	rolledBack, err := a.NoteAck(cursor)
	if err != nil || !rolledBack {
		t.Fatalf("not noticed: %v, %v", rolledBack, err)
	}
	former, err := a.FormerIDs()
	if a.ID() == id || a.IndexID() == index || err != nil || !slices.Equal(former, []crdt.ReplicaID{id}) {
		t.Errorf("store %d was %d, index %d was %d, former %v, %v", a.ID(), id, a.IndexID(), index, former, err)
	}
	if !a.Overdue(0) {
		t.Error("a rolled-back store would merge")
	}
	newID := a.ID()
	closeStore(t, a.Store)
	a = openClocked(t, a.disk, a.wall)
	if a.ID() != newID || !a.Overdue(0) {
		t.Errorf("after reopening: store %d was %d, overdue %v", a.ID(), newID, a.Overdue(0))
	}
	reseed(t, a, b, "b")
	want := map[string]string{"m": "a=from a", "later": "a=v", "m2": "a=after the roll-back"}
	if got := present(t, a.Store); len(got) != len(want) || got["m2"] != want["m2"] || got["later"] != want["later"] {
		t.Errorf("got %v", got)
	}
	if a.Overdue(b.MeshUptime()) {
		t.Error("still overdue")
	}
	set(t, a.Store, row("m"), "a", "new life")
	if by := rowOf(t, a.Store, row("m")).Cells["a"].By; by != newID {
		t.Errorf("written by %d, which is %d", by, newID)
	}
}

// What the outbox held before the roll-back may have been sent, and deleted, in the life that is forgotten.
func TestRollBackDoesNotBringDeletedRowsBack(t *testing.T) {
	a, b := meshOfTwo(t)
	set(t, a.Store, row("m"), "a", "v")
	old, err := a.disk.Copy()
	must(t, err)
	syncFrom(t, b, a, "a")
	update(t, b.Store, func(tx *store.Tx) error { return tx.Delete(row("m")) })
	collect(t, b.Store, nil)
	set(t, a.Store, row("x"), "a", "v")
	syncFrom(t, b, a, "a")
	cursor, err := b.Cursor("a")
	must(t, err)
	closeStore(t, a.Store)
	a = openClocked(t, old, a.wall)
	if rolledBack, err := a.NoteAck(cursor); !rolledBack || err != nil {
		t.Fatalf("not noticed: %v", err)
	}
	reseed(t, a, b, "b")
	if got := present(t, a.Store); len(got) != 1 || got["x"] == "" {
		t.Errorf("got %v", got)
	}
}

func TestAcknowledgementOfAnotherLifeSaysNothing(t *testing.T) {
	s := newClocked(t)
	set(t, s.Store, row("m"), "a", "v")
	for _, c := range []store.Cursor{{}, {IndexID: 1, Seq: 100}, {IndexID: s.IndexID(), Seq: s.Sequence()}} {
		if rolledBack, err := s.NoteAck(c); rolledBack || err != nil {
			t.Errorf("%+v: %v, %v", c, rolledBack, err)
		}
	}
}

// A store whose clock was years ahead for a minute is cured by a new identity.
func TestRotateBringsTheClockBack(t *testing.T) {
	s := newClocked(t)
	*s.wall = start.Add(3650 * day)
	set(t, s.Store, row("m"), "a", "v")
	*s.wall = start
	stamp := func(key crdt.Key) time.Duration {
		return rowOf(t, s.Store, key).Cells["a"].At.Time().Sub(start)
	}
	set(t, s.Store, row("m2"), "a", "v")
	if stamp(row("m2")) < 3650*day {
		t.Fatal("the clock went back under one ID")
	}
	must(t, s.Rotate())
	set(t, s.Store, row("m3"), "a", "v")
	set(t, s.Store, row("m"), "a", "new")
	if stamp(row("m3")) > time.Minute || stamp(row("m")) < 3650*day {
		t.Errorf("new row stamped %s ahead, old one %s", stamp(row("m3")), stamp(row("m")))
	}
}
