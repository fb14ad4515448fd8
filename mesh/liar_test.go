package mesh

import (
	"context"
	"strings"
	"testing"

	"llmgw/crdt"
)

// TestAMemberMovesNoStoreByItsWord: what a member says of another one's store, and cannot prove, changes that one's identity
// once at most, which is named, and all else that it does is answered as ever.
func TestAMemberMovesNoStoreByItsWord(t *testing.T) {
	t.Parallel()
	m := bareMesh(t, "a")
	liar, honest := m.adds(t, 1, RoleMember), m.adds(t, 2, RoleMember)
	own := func(micros uint64) crdt.Money {
		return crdt.Money{
			Spend:   []crdt.SpendEntry{{Account: budget, By: m.store.SpendID(), Micros: micros}, {Account: budget, By: crdt.SpendID{Store: 9}, Micros: micros}},
			Escrows: []crdt.EscrowPart{{Account: budget, Cells: []crdt.EscrowEntry{{From: m.store.ID(), To: crdt.Spent, Micros: micros}}}},
		}
	}
	ids := map[crdt.ReplicaID]bool{m.store.ID(): true}
	for i := range uint64(50) {
		ack := cursorOf(m.store.IndexID(), m.store.Sequence()+1+i, nil)
		if err := m.absence.acknowledged(liar, ack); err != nil {
			t.Fatal(err)
		}
		_, err := m.absence.meets(liar, hello{Store: uint64(m.store.ID()), Index: 1})
		if _, again := m.absence.meets(liar, hello{Store: 1, Index: m.store.IndexID()}); i > 0 && (err == nil || again == nil) {
			t.Error("one that has this box's store is met")
		}
		if err := m.mergeMoney(m.view.Load().generation, liar, own(1000+i)); err != nil {
			t.Fatal(err)
		}
		ids[m.store.ID()] = true
	}
	if len(ids) > 2 {
		t.Errorf("the store had %d identities", len(ids))
	}
	if got := m.store.Spent(budget); got != 1049 {
		t.Errorf("of what it told of others %d is known", got)
	}
	if e := m.store.Escrow(budget); e.Counted(m.store.ID()) != 0 {
		t.Errorf("it has this box spend %d", e.Counted(m.store.ID()))
	}
	told := strings.Join(m.alarmsOf(AlarmMisbehaving), "; ")
	if !strings.Contains(told, offenceWords[offenceCursor]) || !strings.Contains(told, offenceWords[offenceStore]) || !strings.Contains(told, "times") {
		t.Errorf("it is said: %q", told)
	}
	// An honest one is believed all the same.
	id := m.store.ID()
	if err := m.mergeMoney(m.view.Load().generation, honest, own(7)); err != nil || m.store.ID() == id {
		t.Errorf("a disk that was set back goes on under its identity: %v", err)
	}
}

// TestACursorBeyondTheLogIsAnsweredInFull: over a real stream, in each of the places where a box says how far it is.
func TestACursorBeyondTheLogIsAnsweredInFull(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	a.put("x", "1")
	pullAll(t, boxes...)
	id, index := a.store.ID(), a.store.IndexID()
	for range 3 {
		far := cursorOf(index, 1<<40, nil)
		if err := b.store.SetCursor(a.id(), far); err != nil {
			t.Fatal(err)
		}
		// It says so when it asks, and when it is asked.
		if err := b.mesh.pull(context.Background(), a.peer()); err != nil {
			t.Fatal(err)
		}
		if err := b.store.SetCursor(a.id(), far); err != nil {
			t.Fatal(err)
		}
		if err := a.mesh.pull(context.Background(), b.peer()); err != nil {
			t.Fatal(err)
		}
	}
	if a.store.ID() != id || a.store.IndexID() != index || a.mesh.absence.overdue() {
		t.Error("it has another identity")
	}
	if !strings.Contains(alarmText(a, AlarmMisbehaving), b.cfg.Name+" "+offenceWords[offenceCursor]) {
		t.Errorf("a says %q", alarmText(a, AlarmMisbehaving))
	}
	// Once it goes by what it is told all is well.
	a.put("y", "2")
	pullAll(t, boxes...)
	if b.get("y") != "2" {
		t.Error("it has not got what is new")
	}
}
