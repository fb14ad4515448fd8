package catalog

import (
	"fmt"
	"math"
	"testing"

	"llmgw/crdt"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestHigherEpochOwnsTheSlot(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.PutAssignment(Assignment{Model: "m", Owner: "late", Epoch: 3, Steward: "a"}))
	must(t, b.PutAssignment(Assignment{Model: "m", Owner: "early", Epoch: 2, Steward: "b"}))
	exchange(t, a, b)
	must(t, b.PutAssignment(Assignment{Model: "m", Owner: "stale", Epoch: 1, Steward: "b"}))
	exchange(t, a, b)
	for name, box := range map[string]box{"a": a, "b": b} {
		got, err := box.Assignments()
		must(t, err)
		want := []Assignment{{Model: "m", Owner: "late", Epoch: 3, Steward: "a"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("on %s: %s", name, diff)
		}
	}
}

func TestEqualEpochsAgreeOnOneOwner(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.PutAssignment(Assignment{Model: "m", Owner: "x", Epoch: 3, Steward: "a"}))
	must(t, b.PutAssignment(Assignment{Model: "m", Owner: "y", Epoch: 3, Steward: "b"}))
	exchange(t, a, b)
	onA, err := a.Assignments()
	must(t, err)
	onB, err := b.Assignments()
	must(t, err)
	if diff := cmp.Diff(onA, onB); diff != "" || len(onA) != 1 {
		t.Errorf("the boxes differ: %s", diff)
	}
}

// One epoch names one owner: what is not above it changes nothing, whoever writes it.
func TestAnEpochIsUsedOnce(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	first := Assignment{Model: "m", Slot: 2, Owner: "mmm", Epoch: 5, Steward: "mmm"}
	must(t, a.PutAssignment(first))
	exchange(t, a, b)
	for _, side := range []box{a, b} {
		before := side.store.Sequence()
		for _, other := range []Assignment{
			{Model: "m", Slot: 2, Owner: "zzz", Epoch: 5, Steward: "zzz"}, {Model: "m", Slot: 2, Owner: "aaa", Epoch: 5, Steward: "aaa"},
			{Model: "m", Slot: 2, Owner: "zzz", Epoch: 4}, {Model: "m", Slot: 2}, first,
		} {
			must(t, side.PutAssignment(other))
		}
		if side.store.Sequence() != before {
			t.Error("something was written")
		}
		got, err := side.Assignments()
		must(t, err)
		equal(t, "assignments", []Assignment{first}, got)
	}
	next := Assignment{Model: "m", Slot: 2, Epoch: 6, Reason: "vacant"}
	must(t, b.PutAssignment(next))
	exchange(t, a, b)
	got, err := a.Assignments()
	must(t, err)
	equal(t, "a vacant slot is listed", []Assignment{next}, got)
}

func TestTheFirstEpochMayBeZero(t *testing.T) {
	b := quickBox(t)
	must(t, b.PutAssignment(Assignment{Model: "m", Owner: "o"}))
	got, err := b.Assignments()
	must(t, err)
	equal(t, "assignments", []Assignment{{Model: "m", Owner: "o"}}, got)
}

func TestAssignmentsAreListedByModelAndSlot(t *testing.T) {
	b := quickBox(t)
	var want []Assignment
	for _, model := range []string{"a", "a/b", "b"} {
		for _, slot := range []int{0, 1, 2, 9, 10, 255} { // by number: 10 comes after 9
			want = append(want, Assignment{Model: model, Slot: slot, Owner: "o", Epoch: 1, Steward: "s", Reason: "because", Device: "GPU-1", Demand: true})
		}
	}
	for i := range want {
		must(t, b.PutAssignment(want[len(want)-1-i]))
	}
	got, err := b.Assignments()
	must(t, err)
	equal(t, "assignments", want, got)
}

func TestSlotsThatAreNoneAreRefused(t *testing.T) {
	for _, slot := range []string{"", "x", "+7", "007", "-0", "7 ", "0x7", "99999999999999999999", "1.0", "\xff"} {
		_, err := assignmentFromRow(crdt.NewKey(NamespaceAssignments, "m", slot), crdt.Row{Length: 1})
		if err == nil {
			t.Errorf("slot %q was taken", slot)
		}
	}
	for _, slot := range []int{0, 7, math.MaxInt} {
		a, err := assignmentFromRow(crdt.NewKey(NamespaceAssignments, "m", fmt.Sprint(slot)), crdt.Row{Length: 1})
		must(t, err)
		equal(t, "assignment", Assignment{Model: "m", Slot: slot}, a)
	}
}

// Whatever stewards write and in which order it comes: all boxes agree, the highest epoch stays, and its
// owner is one that was written for it.
func TestBoxesAgreeOnOwners(t *testing.T) {
	boxes := []box{quickBox(t), quickBox(t), quickBox(t)}
	rapid.Check(t, func(t *rapid.T) {
		model, written, highest := fresh(), map[Assignment]bool{}, uint64(0)
		key := crdt.NewKey(NamespaceAssignments, model, "0")
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			at, from := rapid.IntRange(0, 2).Draw(t, "box"), rapid.IntRange(0, 2).Draw(t, "from")
			if rapid.Bool().Draw(t, "merge") {
				send(t, boxes[from], boxes[at], key)
				continue
			}
			a := Assignment{Model: model, Owner: rapid.StringMatching(`[a-c]`).Draw(t, "owner"), Epoch: rapid.Uint64Range(1, 4).Draw(t, "epoch"), Steward: fmt.Sprint(at)}
			must(t, boxes[at].PutAssignment(a))
			written[a], highest = true, max(highest, a.Epoch)
		}
		for _, way := range rapid.Permutation([][2]int{{0, 1}, {1, 2}, {2, 0}, {0, 2}, {2, 1}, {1, 0}}).Draw(t, "way") {
			send(t, boxes[way[0]], boxes[way[1]], key)
		}
		for range 2 { // once around more, as an order may have passed a box over
			for i := range boxes {
				send(t, boxes[i], boxes[(i+1)%3], key)
			}
		}
		if len(written) == 0 {
			return
		}
		want, err := assignmentFromRow(key, boxes[0].row(t, key))
		must(t, err)
		if want.Epoch != highest || !written[want] {
			t.Fatalf("it is %+v, of epochs to %d", want, highest)
		}
		for _, b := range boxes[1:] {
			got, err := assignmentFromRow(key, b.row(t, key))
			must(t, err)
			equal(t, "another box", want, got)
		}
	})
}
