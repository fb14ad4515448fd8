package placement

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"llmgw/mesh/catalog"

	"pgregory.net/rapid"
)

// inAnyWorld lets a mesh live and then come to rest.
func inAnyWorld(t *testing.T, check func(t *rapid.T, w *world)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.befall(rt, 12)
		w.quiet()
		w.rest(rt)
		if Steward("any", w.input().Nodes) != "" { // else nobody is there to decide
			check(rt, w)
		}
	})
}

// TestQuietLeavesOneOwnerOfEachSlot: whatever happened, whoever serves a slot owns it,
// and nobody else serves it.
func TestQuietLeavesOneOwnerOfEachSlot(t *testing.T) {
	inAnyWorld(t, func(t *rapid.T, w *world) {
		owners := w.owners()
		for id, by := range w.serving() {
			if owner := node(w.input(), owners[id]); owner.ID != "" && (!owner.Live || owner.Presence.Stopping) {
				continue // nobody ends for a winner that is not routed to
			}
			if len(by) != 1 || by[0] != owners[id] {
				t.Errorf("%v is owned by %q and served by %v\n%s", id, owners[id], by, w)
			}
		}
		for id, owner := range owners {
			if n := node(w.input(), owner); n.Live && !slices.Contains(w.serving()[id], owner) {
				t.Errorf("%v is owned by %s, which does not serve it\n%s", id, owner, w)
			}
		}
	})
}

// TestHundredTicksWithoutNewsDoNothing: what cannot be satisfied is a state, not a loop.
func TestHundredTicksWithoutNewsDoNothing(t *testing.T) {
	inAnyWorld(t, func(t *rapid.T, w *world) {
		before := maps.Clone(w.assignments)
		for i := range 100 {
			if w.tick(t) || !maps.Equal(before, w.assignments) {
				t.Fatalf("after %d ticks without news something changed\n%s", i, w)
			}
		}
	})
}

// TestWhoFitsIsServed: at rest no node could have a slot that nobody has.
func TestWhoFitsIsServed(t *testing.T) {
	inAnyWorld(t, func(t *rapid.T, w *world) {
		in := w.input()
		for _, m := range in.Models {
			for _, e := range Why(in, m.ID) {
				if e.Owner != "" || m.State == catalog.ModelStopped || e.Slot >= newPlanner(in).wanted(m) {
					continue
				}
				for _, c := range e.Candidates {
					if c.Why == "" {
						t.Errorf("%s slot %d is nowhere (%s), and %s could have it\n%s", m.ID, e.Slot, e.Reason, c.Node, w)
					}
				}
			}
		}
	})
}

// TestWhatIsDrainedIsEmptied of all that another node could have.
func TestWhatIsDrainedIsEmptied(t *testing.T) {
	inAnyWorld(t, func(t *rapid.T, w *world) {
		in := w.input()
		for id, owner := range w.owners() {
			n, m := node(in, owner), catalog.Model{}
			if m, _ = modelOf(in, id.Model); !n.Live || !n.Settings.Draining || m.Pin != "" {
				continue
			}
			for _, e := range Why(in, id.Model) {
				if e.Slot != id.Slot {
					continue
				}
				if !strings.Contains(e.Reason, "is being drained: no other node can take it: ") && e.Write == nil {
					t.Errorf("%v stays on %s: %s\n%s", id, owner, e.Reason, w)
				}
				for _, c := range e.Candidates {
					if c.Why == "" {
						t.Errorf("%v stays on %s, which is drained, and %s could have it\n%s", id, owner, c.Node, w)
					}
				}
			}
		}
	})
}

// TestWhatCannotBeReadIsLeftAlone: neither its rows are written nor what runs of it is
// ended, whatever becomes of the rest.
func TestWhatCannotBeReadIsLeftAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := genMesh(rt)
		all := in
		in.Models = slices.DeleteFunc(slices.Clone(in.Models), func(m catalog.Model) bool {
			bad := oneIn(rt, 3, "model unreadable?")
			if bad {
				in.Unreadable.Models = append(in.Unreadable.Models, m.ID)
			}
			return bad
		})
		in.Assignments = slices.DeleteFunc(slices.Clone(in.Assignments), func(a catalog.Assignment) bool {
			bad := oneIn(rt, 3, "slot unreadable?")
			if bad {
				in.Unreadable.Slots = append(in.Unreadable.Slots, catalog.AssignmentID{Model: a.Model, Slot: a.Slot})
			}
			return bad
		})
		for _, d := range Plan(in) {
			if in.Unreadable.has(d.id()) && (d.Write != nil || d.Reason == "") {
				rt.Errorf("of what cannot be read it is decided: %+v", d)
			}
		}
		for _, n := range all.Nodes {
			for _, a := range Reconcile(n.ID, in) {
				if in.Unreadable.has(catalog.AssignmentID{Model: a.Model, Slot: a.Slot}) {
					rt.Errorf("%s is told of what cannot be read: %+v", n.ID, a)
				}
			}
		}
	})
}

// TestNobodyServesWhatWasUnloaded unless requests asked for it since.
func TestNobodyServesWhatWasUnloaded(t *testing.T) {
	inAnyWorld(t, func(t *rapid.T, w *world) {
		for id := range w.owners() {
			m, known := modelOf(w.input(), id.Model)
			if a := w.assignments[id]; known && id.Slot >= m.Scale.Min && (!a.Demand || a.After < m.Unloaded) {
				t.Errorf("%v stays: %+v after unload %d\n%s", id, a, m.Unloaded, w)
			}
		}
	})
}

// TestAWhatIfIsWhatHappens: without a node, with another, and with a model changed.
func TestAWhatIfIsWhatHappens(t *testing.T) {
	inAnyWorld(t, func(t *rapid.T, w *world) {
		var change Change
		next := w.clone()
		switch rapid.IntRange(0, 2).Draw(t, "change") {
		case 0:
			b := next.drawBox(t)
			b.die()
			b.holdDown = holdTicks
			change.Without = []string{b.ID}
		case 1:
			b := &box{Node: able("node9", 0), total: map[string]int64{cpuID: 3 << 30}}
			n := next.seen(b)
			next.boxes = append(next.boxes, b)
			change.Add = &n
		case 2:
			m := next.drawModel(t)
			m.State, m.Pin = catalog.ModelServed, rapid.SampledFrom([]string{"", "node0", "node1"}).Draw(t, "new pin")
			m.Scale.Min = rapid.IntRange(0, 3).Draw(t, "new min")
			m.Scale.Max = max(m.Scale.Max, m.Scale.Min)
			changed := *m
			change.Model = &changed
		}
		if Steward("any", next.input().Nodes) == "" {
			return // nobody is there to make it happen
		}
		said := WhatIf(w.input(), change)
		next.rest(t)
		happened := next.owners()
		told := map[catalog.AssignmentID]bool{}
		for _, o := range said {
			id := catalog.AssignmentID{Model: o.Model, Slot: o.Slot}
			told[id] = true
			if o.Before != w.owners()[id] || o.After != happened[id] {
				t.Fatalf("%v was said to go from %q to %q (%s) and went from %q to %q\nbefore\n%s\nafter\n%s", id, o.Before, o.After, o.Reason, w.owners()[id], happened[id], w, next)
			}
			if o.Effect != effect(o.Before, o.After) || o.Reason == "" && o.Effect != Kept {
				t.Errorf("%+v", o)
			}
		}
		for id, owner := range happened {
			if !told[id] {
				t.Errorf("of %v, which %s has, nothing was said", id, owner)
			}
		}
		for id, owner := range w.owners() {
			if !told[id] {
				t.Errorf("of %v, which %s had, nothing was said", id, owner)
			}
		}
	})
}
