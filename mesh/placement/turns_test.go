package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"llmgw/mesh/catalog"

	"pgregory.net/rapid"
)

// TestModelsThatDoNotFitTogetherTakeTurns: requests wait for each that is not loaded, all
// the time. Each that is loaded serves as long as it may at least, none is left out, and
// while nothing changes nothing is done.
func TestModelsThatDoNotFitTogetherTakeTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const ticks = 400
		least := int64(rapid.IntRange(2, 20).Draw(rt, "serves at least"))
		w := crowdedWorld(rapid.IntRange(2, 4).Draw(rt, "models"))
		box := w.boxes[0]
		served, turns, since := map[string]int64{}, map[string]int{}, map[string]int64{}
		for range ticks {
			w.ask(since, least)
			w.tick(rt)
			loaded := map[string]bool{}
			for _, r := range box.replicas {
				loaded[r.Model] = true
				if r.State == catalog.ReplicaReady {
					served[r.Model]++
				}
			}
			for id, n := range served {
				if loaded[id] {
					continue
				}
				if n < least {
					rt.Fatalf("%s had to go after %d ticks, %d are the least\n%s", id, n, least, w)
				}
				turns[id]++
				delete(served, id)
			}
		}
		lengths := slices.Collect(maps.Values(turns))
		if len(turns) < len(w.models) || slices.Max(lengths)-slices.Min(lengths) > 1+slices.Max(lengths)/2 {
			rt.Errorf("of %d models these had turns: %v", len(w.models), turns)
		}
		if most := ticks/int(least) + 1; slices.Max(lengths)*len(lengths) > 2*most {
			rt.Errorf("%v turns in %d ticks of %d at least", turns, ticks, least)
		}
	})
}

// crowdedWorld is a box with room for one of its models.
func crowdedWorld(models int) *world {
	w := &world{assignments: map[catalog.AssignmentID]catalog.Assignment{}}
	for i := range models {
		w.models = append(w.models, onDemand(fmt.Sprintf("m%d", i), 1))
	}
	w.boxes = []*box{{Node: able("node0", 0), total: map[string]int64{cpuID: 3 << 29}}}
	return w
}

// ask lets requests wait for what is not ready. Of what is, the box counts how long it has
// served.
func (w *world) ask(since map[string]int64, least int64) {
	b := w.boxes[0]
	b.Presence.Wants = nil
	for _, m := range w.models {
		i := slices.IndexFunc(b.replicas, func(r catalog.ReplicaStatus) bool { return r.Model == m.ID && r.State == catalog.ReplicaReady })
		if i >= 0 {
			b.replicas[i].Used, b.replicas[i].Fresh = w.clock, w.clock-b.replicas[i].Since < least
			delete(since, m.ID)
			continue
		}
		if _, known := since[m.ID]; !known {
			since[m.ID] = w.clock
		}
		b.Presence.Wants = append(b.Presence.Wants, catalog.Want{Model: m.ID, Replicas: 1, Waited: w.clock - since[m.ID]})
	}
}

// TestWhoHasWaitedLongestIsNext, among those that requests ask for; what is pinned or
// wanted always goes before.
func TestWhoHasWaitedLongestIsNext(t *testing.T) {
	waited := func(n Node, model string, seconds int64) Node {
		n.Presence.Wants = append(slices.Clone(n.Presence.Wants), catalog.Want{Model: model, Replicas: 1, Waited: seconds})
		return n
	}
	a := waited(waited(waited(able("a", 3<<29), "m1", 8), "m2", 64), "m3", 8)
	silent := away(waited(able("b", room), "m1", 512))
	models := []catalog.Model{onDemand("m1", 1), onDemand("m2", 1), onDemand("m3", 1)}
	for _, tc := range []struct {
		more []catalog.Model
		next string
	}{
		{nil, "m2"},
		{[]catalog.Model{model("m4", 1)}, "m4"},
		{[]catalog.Model{model("m4", 1), with2(waitsPinned("m5"), func(m *catalog.Model) { m.Scale.Max = 1 })}, "m5"},
	} {
		in := Input{Models: slices.Concat(models, tc.more), Nodes: []Node{waited(a, "m5", 0), silent}}
		for _, d := range Plan(in) {
			if (d.Owner != "") != (d.Model == tc.next) {
				t.Errorf("with %d more: %s is on %q: %s", len(tc.more), d.Model, d.Owner, d.Reason)
			}
			if d.Owner == "" && !strings.Contains(d.Reason, "waits for its turn on box-a: "+tc.next+" is being loaded") && len(tc.more) == 0 {
				t.Errorf("%s: %s", d.Model, d.Reason)
			}
		}
	}
}

func waitsPinned(id string) catalog.Model {
	return with2(onDemand(id, 1), func(m *catalog.Model) { m.Pin = "a" })
}
