package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// full is a node whose free memory is too little for one more model, with replicas that
// requests asked for.
func full(id string, replicas ...catalog.ReplicaStatus) Node {
	n := able(id, 1<<29)
	for _, r := range replicas {
		n = loaded(n, r)
	}
	return n
}

func lru(model string, used int64) catalog.ReplicaStatus {
	return catalog.ReplicaStatus{Model: model, Used: used}
}

func fresh(r catalog.ReplicaStatus) catalog.ReplicaStatus { r.Fresh = true; return r }

func bytesOf(m catalog.Model, bytes int64) catalog.Model { m.Source.SizeBytes = bytes; return m }

// roomFor are the reasons of all slots when "need" needs a place.
func roomFor(need catalog.Model, others []catalog.Model, nodes []Node, given ...catalog.Assignment) map[string]string {
	out := map[string]string{}
	for _, d := range Plan(Input{Models: append(slices.Clone(others), need), Nodes: nodes, Assignments: given}) {
		out[d.Model] = d.Reason
	}
	return out
}

func TestRoomIsMade(t *testing.T) {
	two := []catalog.Model{onDemand("old", 1), onDemand("young", 1)}
	both := []catalog.Assignment{demanded("old", "a"), demanded("young", "a")}
	small := func(id string) catalog.Model { return bytesOf(onDemand(id, 1), 1<<29) }
	const gone, kept = "not used for longest, and need needs its memory", "before"
	gpu := catalog.ReplicaStatus{Model: "old", Used: 1, Device: "GPU-1"}
	for _, tc := range []struct {
		name   string
		need   catalog.Model
		others []catalog.Model
		nodes  []Node
		given  []catalog.Assignment
		want   map[string]string
	}{
		{"by what was used longest ago", model("need", 1), two, []Node{full("a", lru("young", 9), lru("old", 1))}, both,
			map[string]string{"need": "waits for memory on box-a: old makes room", "old": gone, "young": kept}},
		{"by two when one is too little", bytesOf(model("need", 1), 2<<30), two, []Node{full("a", lru("young", 9), lru("old", 1))}, both,
			map[string]string{"need": "waits for memory on box-a: old, young makes room", "old": gone, "young": gone}},
		{"by nobody when all are too little", bytesOf(model("need", 1), 9<<30), two, []Node{full("a", lru("young", 9), lru("old", 1))}, both,
			map[string]string{"need": "no node can serve it: box-a: needs 10.8 GiB of memory, 512 MiB is free there", "old": kept, "young": kept}},
		{"where the fewest have to go", model("need", 1), []catalog.Model{small("s1"), small("s2"), onDemand("big", 1)},
			[]Node{full("a", lru("s1", 1), lru("s2", 2)), full("b", lru("big", 9))}, []catalog.Assignment{demanded("s1", "a"), demanded("s2", "a"), demanded("big", "b")},
			map[string]string{"need": "waits for memory on box-b: big makes room", "big": gone, "s1": kept, "s2": kept}},
		{"by one alone that holds memory and was promised some for its weights of now", model("need", 1), two,
			[]Node{with(full("a", lru("young", 9), lru("old", 1)), func(n *Node) { n.Presence.Replicas[1].Digest = "sha256:former" })}, both,
			map[string]string{"need": "waits for memory on box-a: old makes room", "old": gone, "young": kept}},
		{"not by a busy one", model("need", 1), two[:1], []Node{full("a", catalog.ReplicaStatus{Model: "old", InFlight: 1})}, both[:1],
			map[string]string{"need": "waits for its turn on box-a: old is busy", "old": kept}},
		{"not by one that is wanted always", model("need", 1), []catalog.Model{model("old", 1)}, []Node{full("a", lru("old", 1))}, []catalog.Assignment{assigned("old", "a")},
			map[string]string{"need": "no node can serve it: box-a: needs 1.2 GiB of memory, 512 MiB is free there", "old": kept}},
		{"not by one that requests wait for", model("need", 1), two[:1], []Node{wants(full("a", lru("old", 1)), "old", 1)}, both[:1],
			map[string]string{"need": "waits for its turn on box-a: old is waited for", "old": kept}},
		{"not yet by one that was just loaded, for requests", onDemand("need", 1), two[:1], []Node{wants(full("a", fresh(lru("old", 1))), "need", 1)}, both[:1],
			map[string]string{"need": "waits for its turn on box-a: old was just loaded", "old": kept}},
		{"by one that was just loaded, for what is wanted always", model("need", 1), two[:1], []Node{full("a", fresh(lru("old", 1)))}, both[:1],
			map[string]string{"need": "waits for memory on box-a: old makes room", "old": gone}},
		{"by another than was just loaded, though used longer ago", onDemand("need", 1), two, []Node{wants(full("a", lru("young", 9), fresh(lru("old", 1))), "need", 1)}, both,
			map[string]string{"need": "waits for memory on box-a: young makes room", "old": kept, "young": gone}},
		{"not at all where all that may go are too little", bytesOf(onDemand("need", 1), 9<<30), two[:1], []Node{wants(full("a", fresh(lru("old", 1))), "need", 1)}, both[:1],
			map[string]string{"need": "no node can serve it: box-a: needs 10.8 GiB of memory, 512 MiB is free there", "old": kept}},
		{"not yet by one that is about to be loaded", onDemand("need", 1), two[:1], []Node{wants(able("a", 1<<30+1<<29), "need", 1)}, both[:1],
			map[string]string{"need": "waits for its turn on box-a: old is being loaded", "old": kept}},
		{"not by one that loads", model("need", 1), two[:1], []Node{with(full("a", lru("old", 1)), func(n *Node) { n.Presence.Replicas[0].State, n.Presence.Replicas[0].PID = catalog.ReplicaBackoff, 0 })}, both[:1],
			map[string]string{"need": "no node can serve it: box-a: needs 1.2 GiB of memory, 0 MiB is free there", "old": kept}},
		{"not on another device", model("need", 1), two[:1], []Node{with(full("a", gpu), func(n *Node) {
			*n = withGPU(*n, "GPU-1", 0)
			n.Settings.CordonedDevices = []string{"GPU-1"}
		})}, []catalog.Assignment{with3(both[0], "GPU-1")},
			map[string]string{"need": "no node can serve it: box-a: its device GPU-1 is cordoned, needs 1.2 GiB of memory, 512 MiB is free there", "old": kept}},
		{"on the device that has it", model("need", 1), two[:1], []Node{with(full("a", gpu), func(n *Node) { *n = withGPU(*n, "GPU-1", 0) })}, []catalog.Assignment{with3(both[0], "GPU-1")},
			map[string]string{"need": "waits for memory on box-a: old makes room", "old": gone}},
		{"on the pin", with2(model("need", 1), func(m *catalog.Model) { m.Pin = "a" }), two[:1], []Node{full("a", lru("old", 1)), full("b")}, both[:1],
			map[string]string{"need": "waits for memory on box-a: old makes room", "old": gone}},
		{"not on a pin that lacks the file too", with2(model("need", 1), func(m *catalog.Model) { m.Pin, m.Source.Digest = "a", "sha256:bb" }), two[:1], []Node{full("a", lru("old", 1))}, both[:1],
			map[string]string{"need": "pinned to box-a: the file is not on its disk (llmgw pull file:/models/need --as need there)", "old": kept}},
		{"not on a pin that is cordoned", with2(model("need", 1), func(m *catalog.Model) { m.Pin = "a" }), two[:1], []Node{cordoned(full("a", lru("old", 1)))}, both[:1],
			map[string]string{"need": "pinned to box-a: is cordoned", "old": kept}},
		{"not while there is room elsewhere", model("need", 1), two[:1], []Node{full("a", lru("old", 1)), able("b", room)}, both[:1],
			map[string]string{"need": "box-b has the engine, the file and the room", "old": kept}},
		{"not while something leaves anyway", model("need", 1), two, []Node{full("a", lru("old", 1), lru("young", 9))},
			[]catalog.Assignment{{Model: "old", Epoch: 4, Reason: "unloaded"}, both[1]},
			map[string]string{"need": "waits for memory on box-a that is about to be free", "old": "not wanted: scale.min is 0", "young": kept}},
		{"not while another loads there", bytesOf(model("need", 1), 1<<28), []catalog.Model{model("loads", 1), onDemand("old", 1)}, []Node{with(full("a", lru("old", 1)), func(n *Node) {
			n.Presence.Replicas = append(n.Presence.Replicas, catalog.ReplicaStatus{Model: "loads", State: catalog.ReplicaLoading, PID: 8})
		})}, []catalog.Assignment{assigned("loads", "a"), demanded("old", "a")},
			map[string]string{"need": "waits until it is known what is free on box-a, which loads another model", "loads": kept, "old": kept}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, roomFor(tc.need, tc.others, tc.nodes, tc.given...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAnEvictedSlotMakesRoomForOne: who comes after does not wait for what leaves already,
// and goes where the load is less without it.
func TestAnEvictedSlotMakesRoomForOne(t *testing.T) {
	models := []catalog.Model{onDemand("old", 1), onDemand("young", 1), model("need1", 1), model("need2", 1)}
	given := []catalog.Assignment{demanded("old", "a"), demanded("young", "a")}
	nodes := []Node{full("a", lru("young", 9), lru("old", 1))}
	want := map[string]string{
		"need1": "waits for memory on box-a: old makes room", "need2": "waits for memory on box-a: young makes room",
		"old": "not used for longest, and need1 needs its memory", "young": "not used for longest, and need2 needs its memory",
	}
	if diff := cmp.Diff(want, roomFor(models[3], models[:3], nodes, given...)); diff != "" {
		t.Error(diff)
	}
	tiny := bytesOf(model("tiny", 1), 1<<20)
	nodes = append(nodes, full("b", lru("x", 9)))
	given = append(given, assigned("x", "b"))
	models = append(models[:2], with2(model("need1", 1), func(m *catalog.Model) { m.Pin = "a" }), model("x", 1), tiny)
	given[1].Owner = "" // a has one slot as b has, and none once that is evicted
	nodes[0].Presence.Replicas = nodes[0].Presence.Replicas[1:]
	if d := decision(t, Input{Models: models, Nodes: nodes, Assignments: given}, "tiny", 0); d.Owner != "a" {
		t.Errorf("tiny goes to %s: %s", d.Owner, d.Reason)
	}
}

// TestRoomIsMadeOnceAndEnough, whatever has to be loaded at once: nobody makes room for
// two, nobody for whom less would do, and whoever fits after all is served in the end.
func TestRoomIsMadeOnceAndEnough(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, in := able("a", int64(rapid.IntRange(0, 3).Draw(rt, "free"))<<28), Input{}
		sizes := rapid.SampledFrom([]int64{1 << 30, 1 << 29, 1 << 31})
		free, needs := *n.Presence.Inventory.RAMFree, int64(0)
		for i := range rapid.IntRange(1, 4).Draw(rt, "loaded") {
			m := bytesOf(onDemand(fmt.Sprintf("v%d", i), 1), sizes.Draw(rt, "size"))
			r := lru(m.ID, int64(rapid.IntRange(1, 9).Draw(rt, "used")))
			free += need(m, n)
			n = loaded(n, r)
			in.Models, in.Assignments = append(in.Models, m), append(in.Assignments, demanded(m.ID, "a"))
		}
		for i := range rapid.IntRange(1, 3).Draw(rt, "to load") {
			m := bytesOf(model(fmt.Sprintf("need%d", i), 1), sizes.Draw(rt, "size"))
			needs += need(m, n)
			in.Models = append(in.Models, m)
		}
		in.Nodes = []Node{n}
		by := map[string][]string{} // who makes room, by for whom
		for _, d := range Plan(in) {
			if _, names, ok := strings.Cut(d.Reason, "waits for memory on box-a: "); ok {
				by[d.Model] = strings.Split(strings.TrimSuffix(names, " makes room"), ", ")
			}
		}
		checkEnough(rt, in, by)
		after := owners(settle(in))
		for _, m := range in.Models {
			if id := (catalog.AssignmentID{Model: m.ID}); m.Scale.Min > 0 && needs <= free && after[id] == "" {
				rt.Errorf("%s is not served, and all fit: %v", m.ID, after)
			}
		}
	})
}

// checkEnough looks at who makes room for whom on the one node of a mesh.
func checkEnough(t *rapid.T, in Input, by map[string][]string) {
	t.Helper()
	n := in.Nodes[0]
	decisions := Plan(in)
	given, _ := promised(in, decisions, n.ID, cpuID)
	seen := map[string]bool{}
	for _, d := range decisions {
		m, _ := modelOf(in, d.Model)
		room := *n.Presence.Inventory.RAMFree - given
		for i, v := range by[d.Model] {
			if seen[v] {
				t.Errorf("%s makes room twice: %v", v, by)
			}
			seen[v] = true
			if gone := decision2(in, v); gone.Owner != "" || !strings.Contains(gone.Reason, "and "+d.Model+" needs") {
				t.Errorf("%s is said to make room for %s: %+v", v, d.Model, gone)
			}
			if last := i == len(by[d.Model])-1; last && len(by) == 1 && room >= need(m, n) {
				t.Errorf("%v makes room for %s, and %s need not", by[d.Model], d.Model, v)
			}
			victim, _ := modelOf(in, v)
			room += need(victim, n)
		}
		if len(by[d.Model]) > 0 && len(by) == 1 && room < need(m, n) {
			t.Errorf("%v makes room for %s, which is too little", by[d.Model], d.Model)
		}
	}
}

// decision2 is what is decided of slot 0; zero when nothing is.
func decision2(in Input, model string) Decision {
	for _, d := range Plan(in) {
		if d.Model == model && d.Slot == 0 {
			return d
		}
	}
	return Decision{}
}

// TestAnOpenSlotTakesNothing: what it had is there for whoever is placed before it.
func TestAnOpenSlotTakesNothing(t *testing.T) {
	first := with2(model("first", 1), func(m *catalog.Model) { m.Pin = "a" })
	moved := with2(model("moved", 1), func(m *catalog.Model) { m.Pin = "b" })
	barred := labelled(model("moved", 1), catalog.Selector{Forbid: map[string]string{"zone": "eu"}})
	lost := assigned("moved", "a")
	lost.Device = "GPU-1"
	for name, tc := range map[string]struct {
		models []catalog.Model
		nodes  []Node
		given  catalog.Assignment
	}{
		"memory, when a pin moves it":               {[]catalog.Model{first, moved}, []Node{able("a", 2<<30), able("b", 2<<30)}, assigned("moved", "a")},
		"memory, when a label bars it":              {[]catalog.Model{model("first", 1), barred}, []Node{in("eu", able("a", 2<<30)), able("b", 1<<30)}, assigned("moved", "a")},
		"memory, when its file is gone":             {[]catalog.Model{model("first", 1), with2(model("moved", 1), func(m *catalog.Model) { m.Source.Digest = "sha256:bb" })}, []Node{able("a", 2<<30)}, assigned("moved", "a")},
		"its place in the load, when a device went": {[]catalog.Model{model("first", 1), moved, model("x", 1)}, []Node{able("a", room), able("b", room), since(able("c", 0), "x", 1)}, lost},
	} {
		in := Input{Models: tc.models, Nodes: tc.nodes, Assignments: []catalog.Assignment{tc.given}}
		if d := decision(t, in, "first", 0); d.Owner != "a" {
			t.Errorf("%s: first is on %q: %s", name, d.Owner, d.Reason)
		}
	}
}

// TestOpenSlotsAreAsIfVacant: that somebody had them changes nothing but their epoch.
func TestOpenSlotsAreAsIfVacant(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		vacated := in
		vacated.Assignments = slices.Clone(in.Assignments)
		for i, a := range vacated.Assignments {
			m, known := modelOf(in, a.Model)
			p := newPlanner(in)
			if !known || a.Owner == "" {
				continue
			}
			if _, settled := p.settled(m, a); !settled && !p.leaves(m, a) { // one that leaves may stay
				vacated.Assignments[i] = catalog.Assignment{Model: a.Model, Slot: a.Slot, Epoch: a.Epoch}
			}
		}
		outcome := func(ds []Decision) (out []Decision) {
			for _, d := range ds {
				d.Write = nil
				out = append(out, d)
			}
			return out
		}
		if diff := cmp.Diff(outcome(decisions), outcome(Plan(vacated))); diff != "" {
			t.Error(diff)
		}
	})
}

func with3(a catalog.Assignment, device string) catalog.Assignment { a.Device = device; return a }

// TestWhatGoesLeavesItsRoomAtOnce, whichever model comes first by name: a model that is
// stopped, deleted or unloaded neither counts as load nor keeps memory that it has not
// taken, and nobody is evicted for it.
func TestWhatGoesLeavesItsRoomAtOnce(t *testing.T) {
	stopped := with2(model("z", 1), func(m *catalog.Model) { m.State = catalog.ModelStopped })
	for name, z := range map[string][]catalog.Model{"stopped": {stopped}, "deleted": nil, "unloaded": {model("z", 0)}} {
		old := loaded(able("a", 3<<29), lru("old", 1))
		input := Input{Models: append([]catalog.Model{model("m", 1), onDemand("old", 1)}, z...), Nodes: []Node{old}, Assignments: []catalog.Assignment{assigned("z", "a"), demanded("old", "a")}}
		if d := decision(t, input, "m", 0); d.Owner != "a" {
			t.Errorf("%s: %s", name, d.Reason)
		}
		if d := decision(t, input, "old", 0); d.Owner != "a" {
			t.Errorf("%s: old went: %s", name, d.Reason)
		}
		input.Nodes = []Node{able("a", room), able("b", room)}
		input.Assignments = []catalog.Assignment{assigned("z", "a"), assigned("z2", "b"), assigned("keep", "b")}
		input.Models = append(input.Models, model("keep", 1))
		if d := decision(t, input, "m", 0); d.Owner != "a" {
			t.Errorf("%s: its slot counts as load: %s", name, d.Reason)
		}
	}
}

// TestAPinnedModelIsPlacedFirst: it has no other choice.
func TestAPinnedModelIsPlacedFirst(t *testing.T) {
	for _, names := range [][2]string{{"m", "z"}, {"z", "m"}} {
		free, pinned := model(names[0], 1), with2(model(names[1], 1), func(m *catalog.Model) { m.Pin = "a" })
		input := Input{Models: []catalog.Model{free, pinned, model("x", 1)}, Nodes: []Node{able("a", 2<<30), since(able("b", 2<<30), "x", 1)}, Assignments: []catalog.Assignment{assigned("x", "b")}}
		if got := owners2(input); got[pinned.ID] != "a" || got[free.ID] != "b" {
			t.Errorf("got %v", got)
		}
	}
}

// TestAReloadIsSpokenFor: a replica of former weights serves, and its owner is about to
// load the weights of now.
func TestAReloadIsSpokenFor(t *testing.T) {
	n := loaded(able("a", 2<<30), catalog.ReplicaStatus{Model: "m", Digest: "sha256:former"})
	input := Input{Models: []catalog.Model{model("m", 1), model("n", 1)}, Nodes: []Node{n}, Assignments: []catalog.Assignment{assigned("m", "a")}}
	if got := owners2(input); got["m"] != "a" || got["n"] != "" {
		t.Errorf("got %v", got)
	}
}

// TestTheLongerServingIsOneThatMayHaveIt: after a partition of those that serve a slot.
func TestTheLongerServingIsOneThatMayHaveIt(t *testing.T) {
	b := since(able("b", room), "m", 1)
	reports := func(change func(*catalog.ReplicaStatus)) Node {
		n := since(able("b", room), "m", 1)
		change(&n.Presence.Replicas[0])
		return n
	}
	forbids := labelled(model("m", 1), catalog.Selector{Forbid: map[string]string{"zone": "eu"}})
	for name, c := range map[string]struct {
		other Node
		owner string
	}{
		"it may":                 {b, "b"},
		"it is cordoned":         {cordoned(b), "a"},
		"it stops":               {stopping(b), "a"},
		"it is silent":           {away(b), "a"},
		"it has just started":    {with(b, func(n *Node) { n.Presence.Complete = false }), "a"},
		"its label is forbidden": {in("eu", b), "a"},
		"it has other weights":   {reports(func(r *catalog.ReplicaStatus) { r.Digest = "sha256:former" }), "a"},
		"it loads":               {reports(func(r *catalog.ReplicaStatus) { r.State = catalog.ReplicaLoading }), "a"},
		"it serves as long":      {reports(func(r *catalog.ReplicaStatus) { r.Since = 9 }), "a"},
	} {
		d := decision(t, Input{Models: []catalog.Model{forbids}, Nodes: []Node{since(able("a", room), "m", 9), c.other}, Assignments: []catalog.Assignment{assigned("m", "a")}}, "m", 0)
		if d.Owner != c.owner || (d.Write != nil) != (c.owner == "b") || c.owner == "b" && d.Reason != "box-b has served it for longer" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestStewardsCanWrite(t *testing.T) {
	for name, n := range map[string]Node{"silent": away(able("a", 0)), "gone": gone(able("a", 0)), "stopping": stopping(able("a", 0)), "just started": started("a")} {
		for _, model := range []string{"m", "n", "o", "p"} {
			if got := Steward(model, []Node{n, able("b", 0)}); got != "b" {
				t.Errorf("%s: the steward of %s is %q", name, model, got)
			}
			if got := Steward(model, []Node{n}); got != "" {
				t.Errorf("%s and alone: the steward of %s is %q", name, model, got)
			}
		}
	}
	spread := map[string]bool{}
	for _, model := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		spread[Steward(model, []Node{able("a", 0), able("b", 0), able("c", 0)})] = true
	}
	if len(spread) < 2 {
		t.Error("one node is the steward of all models")
	}
}
