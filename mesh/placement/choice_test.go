package placement

import (
	"fmt"
	"strings"
	"testing"

	"llmgw/mesh/catalog"
)

// choice is one row of the order of choice, with the words that a person reads.
type choice struct {
	name   string
	model  catalog.Model
	nodes  []Node
	given  []catalog.Assignment
	owner  string
	device string
	reason string
	write  bool
	failed bool
}

func checkChoices(t *testing.T, rows []choice) {
	t.Helper()
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			d := decision(t, Input{Models: []catalog.Model{c.model}, Nodes: c.nodes, Assignments: c.given}, "m", 0)
			if d.Owner != c.owner || d.Device != c.device || d.Reason != c.reason || (d.Write != nil) != c.write || d.Unsatisfied != c.failed {
				t.Errorf("got owner %q, device %q, write %v, unsatisfied %v because\n%s\nwant\n%s", d.Owner, d.Device, d.Write != nil, d.Unsatisfied, d.Reason, c.reason)
			}
		})
	}
}

const room = int64(9) << 30

func pinnedTo(node string) catalog.Model { m := model("m", 1); m.Pin = node; return m }

func cordoned(n Node) Node { return settings(n, catalog.NodeSettings{Cordoned: true}) }

func stopping(n Node) Node { n.Presence.Stopping = true; return n }

func without(n Node, what string) Node {
	switch what {
	case "engine":
		n.Presence.Engines = nil
	case "file":
		n.Presence.Weights = nil
	}
	return n
}

func in(zone string, n Node) Node {
	return settings(n, catalog.NodeSettings{Labels: map[string]string{"zone": zone}})
}

func requires(zone string) catalog.Model {
	return labelled(model("m", 1), catalog.Selector{Require: map[string]string{"zone": zone}})
}

// TestPinComesFirst: before who has it, who serves it and who is least loaded.
func TestPinComesFirst(t *testing.T) {
	checkChoices(t, []choice{
		{name: "before a resident owner", model: pinnedTo("b"), nodes: []Node{since(able("a", room), "m", 1), able("b", room)}, given: []catalog.Assignment{assigned("m", "a")},
			owner: "b", reason: "pinned to box-b", write: true},
		{name: "before a resident without a slot", model: pinnedTo("b"), nodes: []Node{since(able("a", room), "m", 1), able("b", room)}, owner: "b", reason: "pinned to box-b", write: true},
		{name: "on the roomier device", model: pinnedTo("a"), nodes: []Node{withGPU(able("a", room), "GPU-1", room)}, owner: "a", device: "GPU-1", reason: "pinned to box-a", write: true},
		{name: "stays with its pin", model: pinnedTo("a"), nodes: []Node{able("a", room)}, given: []catalog.Assignment{assigned("m", "a")}, owner: "a", reason: "before"},
		{name: "stays with a pin that is silent", model: pinnedTo("a"), nodes: []Node{away(able("a", room)), able("b", room)}, given: []catalog.Assignment{assigned("m", "a")}, owner: "a", reason: "before"},
		{name: "waits for one that is silent", model: pinnedTo("b"), nodes: []Node{able("a", room), away(able("b", room))}, failed: true, reason: "pinned to box-b, which does not answer now"},
		{name: "waits for one that is gone", model: pinnedTo("b"), nodes: []Node{able("a", room), gone(able("b", room))}, failed: true,
			reason: "pinned to box-b, which is away; it loads when that node is back"},
		{name: "waits for one that is no member", model: pinnedTo("c"), nodes: []Node{able("a", room)}, failed: true, reason: "pinned to c, which is away; it loads when that node is back"},
		{name: "leaves an owner that it is not pinned to", model: pinnedTo("c"), nodes: []Node{since(able("a", room), "m", 1)}, given: []catalog.Assignment{assigned("m", "a")},
			failed: true, write: true, reason: "pinned to c, which is away; it loads when that node is back"},
		{name: "not to a cordoned node", model: pinnedTo("a"), nodes: []Node{cordoned(able("a", room))}, failed: true, reason: "pinned to box-a: is cordoned"},
		{name: "not to one that stops", model: pinnedTo("a"), nodes: []Node{stopping(able("a", room))}, failed: true, reason: "pinned to box-a: is stopping"},
		{name: "not without the engine", model: pinnedTo("a"), nodes: []Node{without(able("a", room), "engine"), able("b", room)}, failed: true,
			reason: "pinned to box-a: engine llamacpp is not installed (llmgw engines install llamacpp there)"},
		{name: "not without the file", model: pinnedTo("a"), nodes: []Node{without(able("a", room), "file"), able("b", room)}, failed: true,
			reason: "pinned to box-a: the file is not on its disk (llmgw pull file:/models/m --as m there)"},
		{name: "not without the room", model: pinnedTo("a"), nodes: []Node{able("a", 1<<30), able("b", room)}, failed: true,
			reason: "pinned to box-a: needs 1.2 GiB of memory, 1.0 GiB is free there"},
		{name: "not against a label", model: with2(requires("eu"), func(m *catalog.Model) { m.Pin = "a" }), nodes: []Node{in("us", able("a", room)), in("eu", able("b", room))}, failed: true,
			reason: "pinned to box-a: it lacks the required label zone=eu"},
		{name: "an owner that lost its device gets another at once", model: pinnedTo("a"), nodes: []Node{able("a", room)},
			given: []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 3, Device: "GPU-1"}}, owner: "a", reason: "pinned to box-a", write: true},
	})
}

func TestResidentComesSecond(t *testing.T) {
	former := loaded(able("b", room), catalog.ReplicaStatus{Model: "m", Digest: "sha256:former"})
	checkChoices(t, []choice{
		{name: "an owner with no room left", model: model("m", 1), nodes: []Node{since(able("a", 0), "m", 1), able("b", room)}, given: []catalog.Assignment{assigned("m", "a")}, owner: "a", reason: "before"},
		{name: "an owner that is silent", model: model("m", 1), nodes: []Node{away(able("a", 0)), able("b", room)}, given: []catalog.Assignment{assigned("m", "a")}, owner: "a", reason: "before"},
		{name: "an owner that loads", model: model("m", 1), nodes: []Node{able("a", room), able("b", room)}, given: []catalog.Assignment{assigned("m", "a")}, owner: "a", reason: "before"},
		{name: "an owner that is cordoned", model: model("m", 1), nodes: []Node{cordoned(able("a", room)), able("b", room)}, given: []catalog.Assignment{assigned("m", "a")}, owner: "a", reason: "before"},
		{name: "an owner that stops", model: model("m", 1), nodes: []Node{stopping(since(able("a", room), "m", 1)), able("b", room)}, given: []catalog.Assignment{assigned("m", "a")}, owner: "a", reason: "before"},
		{name: "an owner whose row has no reason", model: model("m", 1), nodes: []Node{able("a", room)}, given: []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 1}}, owner: "a", reason: "box-a has it already"},
		{name: "who serves it though more loaded", model: model("m", 1), nodes: []Node{able("a", room), since(able("b", 0), "m", 1)}, given: []catalog.Assignment{assigned("x", "b"), assigned("y", "b")},
			owner: "b", reason: "box-b serves it already", write: true},
		{name: "not who serves other weights", model: model("m", 1), nodes: []Node{former, able("c", room)}, given: []catalog.Assignment{assigned("x", "b")},
			owner: "c", reason: "box-c has the engine, the file and the room, and the fewest slots of 2 such nodes", write: true},
		{name: "a gone owner", model: model("m", 1), nodes: []Node{gone(since(able("a", room), "m", 1)), able("b", room)}, given: []catalog.Assignment{assigned("m", "a")},
			owner: "b", reason: "box-b has the engine, the file and the room", write: true},
		{name: "an owner that is no member", model: model("m", 1), nodes: []Node{able("b", room)}, given: []catalog.Assignment{assigned("m", "former")},
			owner: "b", reason: "box-b has the engine, the file and the room", write: true},
		{name: "an owner without its engine", model: model("m", 1), nodes: []Node{without(able("a", room), "engine"), able("b", room)}, given: []catalog.Assignment{assigned("m", "a")},
			owner: "b", reason: "box-b has the engine, the file and the room", write: true},
	})
}

// profiled is a model with a profile for each engine.
func profiled(priorities ...int) catalog.Model {
	m := model("m", 1)
	for i, engine := range []string{catalog.EngineLlamaCpp, engineOther} {
		m.Profiles = append(m.Profiles, catalog.Profile{ID: fmt.Sprintf("p%d", i), Engine: engine, Priority: priorities[i]})
	}
	return m
}

func runs(n Node, engines ...string) Node {
	n.Presence.Engines = nil
	for _, e := range engines {
		n.Presence.Engines = append(n.Presence.Engines, catalog.EngineInfo{Name: e})
	}
	return n
}

// TestEngineComesThird: the priority of profiles, then the default engine of the format,
// and both before the load.
func TestEngineComesThird(t *testing.T) {
	usual, other := runs(able("a", room), catalog.EngineLlamaCpp), runs(able("b", room), engineOther)
	busy := []catalog.Assignment{assigned("x", "a"), assigned("y", "a")}
	checkChoices(t, []choice{
		{name: "the default engine though more loaded", model: profiled(0, 0), nodes: []Node{usual, other}, given: busy, owner: "a", write: true,
			reason: "box-a has the engine, the file and the room, and of 2 such nodes the preferred engine, llamacpp"},
		{name: "a higher priority", model: profiled(0, 1), nodes: []Node{usual, other}, owner: "b", write: true,
			reason: "box-b has the engine, the file and the room, and of 2 such nodes the preferred engine, other"},
		{name: "a node with both runs the preferred one", model: profiled(0, 1), nodes: []Node{runs(able("c", room), catalog.EngineLlamaCpp, engineOther), usual}, owner: "c", write: true,
			reason: "box-c has the engine, the file and the room, and of 2 such nodes the preferred engine, other"},
		{name: "a resident before the preferred engine", model: profiled(0, 1), nodes: []Node{since(usual, "m", 1), other}, owner: "a", write: true, reason: "box-a serves it already"},
		{name: "none of the engines", model: profiled(0, 1), nodes: []Node{runs(able("c", room), catalog.EngineSim)}, failed: true,
			reason: "no node can serve it: box-c: engine other is not installed (llmgw engines install other there)"},
		{name: "a format that no engine reads", model: with2(model("m", 1), func(m *catalog.Model) { m.Source.Format = "safetensors" }), nodes: []Node{able("a", room)}, failed: true,
			reason: `no node can serve it: box-a: no engine reads the format "safetensors"`},
		{name: "a format that only a profile's engine reads", model: with2(profiled(0, 0), func(m *catalog.Model) { m.Source.Format, m.Profiles = "safetensors", m.Profiles[1:] }), nodes: []Node{other}, owner: "b", write: true,
			reason: "box-b has the engine, the file and the room"},
	})
}

func TestLeastLoadedComesLast(t *testing.T) {
	checkChoices(t, []choice{
		{name: "the fewest slots", model: model("m", 1), nodes: []Node{able("a", room), able("b", room), able("c", room)},
			given: []catalog.Assignment{assigned("x", "a"), assigned("y", "b"), assigned("z", "b")}, owner: "c", write: true,
			reason: "box-c has the engine, the file and the room, and the fewest slots of 3 such nodes"},
		{name: "of those with room", model: model("m", 1), nodes: []Node{able("a", room), able("b", 1<<29)}, given: []catalog.Assignment{assigned("x", "a")}, owner: "a", write: true,
			reason: "box-a has the engine, the file and the room"},
		{name: "nobody is there", model: model("m", 1), failed: true, reason: "no node is there to serve it"},
		{name: "all are gone", model: model("m", 1), nodes: []Node{gone(able("a", room))}, failed: true, reason: "no node is there to serve it"},
		{name: "each refusal is told", model: requires("eu"), failed: true,
			nodes: []Node{
				away(able("a", room)), stopping(in("eu", able("b", room))), started("c"), cordoned(able("d", room)), in("us", able("e", room)),
				in("eu", without(able("f", room), "engine")), in("eu", without(able("g", room), "file")), in("eu", able("h", 5<<20)),
			},
			reason: "no node can serve it: box-a: does not answer now; box-b: is stopping; box-c: has just started and has not told yet what it has; box-d: is cordoned; " +
				"box-e: it lacks the required label zone=eu; box-f: engine llamacpp is not installed (llmgw engines install llamacpp there); " +
				"box-g: the file is not on its disk (llmgw pull file:/models/m --as m there); box-h: needs 1.2 GiB of memory, 5 MiB is free there"},
		{name: "each device is told", model: model("m", 1), failed: true,
			nodes:  []Node{settings(withGPU(withGPU(able("a", 0), "GPU-1", room), "GPU-2", 1<<30), catalog.NodeSettings{CordonedDevices: []string{"GPU-1"}})},
			reason: "no node can serve it: box-a: its device GPU-1 is cordoned, needs 1.2 GiB of memory, 1.0 GiB is free there on GPU-2, needs 1.2 GiB of memory, 0 MiB is free there"},
	})
}

// TestReplicasOfOneModelAreTold to be spread, not to be few.
func TestReplicasOfOneModelAreTold(t *testing.T) {
	given := []catalog.Assignment{assigned("m", "a"), assigned("x", "b"), assigned("y", "b")}
	input := Input{Models: []catalog.Model{model("m", 2)}, Nodes: []Node{able("a", room), able("b", room)}, Assignments: given}
	d := decision(t, input, "m", 1)
	if want := "box-b has the engine, the file and the room, and the fewest replicas of it of 2 such nodes"; d.Owner != "b" || d.Reason != want {
		t.Errorf("%s has it because %s", d.Owner, d.Reason)
	}
}

func TestWhatIsNotWanted(t *testing.T) {
	given := func(change func(*catalog.Assignment)) []catalog.Assignment {
		a := demanded("m", "a")
		change(&a)
		return []catalog.Assignment{a}
	}
	asItIs := func(*catalog.Assignment) {}
	idle := loaded(able("a", room), catalog.ReplicaStatus{Model: "m", Idle: true})
	checkChoices(t, []choice{
		{name: "stopped", model: with2(model("m", 1), func(m *catalog.Model) { m.State = catalog.ModelStopped }), nodes: []Node{able("a", room)}, given: given(asItIs), write: true, reason: "the model is stopped"},
		{name: "unloaded", model: onDemand("m", 1), nodes: []Node{able("a", room)}, given: given(func(a *catalog.Assignment) { a.Demand = false }), write: true, reason: "not wanted: scale.min is 0"},
		{name: "above scale.max", model: onDemand("m", 0), nodes: []Node{able("a", room)}, given: given(asItIs), write: true, reason: "not wanted: scale.max is 0"},
		{name: "pinned elsewhere", model: with2(onDemand("m", 1), func(m *catalog.Model) { m.Pin = "b" }), nodes: []Node{able("a", room), able("b", room)}, given: given(asItIs), write: true,
			reason: "the model is pinned to box-b, and no request asks for it"},
		{name: "its node is gone", model: onDemand("m", 1), nodes: []Node{gone(able("a", room))}, given: given(asItIs), write: true, reason: "box-a is away, and no request asks for it"},
		{name: "its node is no member", model: onDemand("m", 1), nodes: []Node{able("b", room)}, given: given(asItIs), write: true, reason: "a is away, and no request asks for it"},
		{name: "its node lost the label", model: labelled(onDemand("m", 1), catalog.Selector{Forbid: map[string]string{"zone": "eu"}}), nodes: []Node{in("eu", idle)}, given: given(asItIs), write: true,
			reason: "box-a: it has the forbidden label zone=eu"},
		{name: "its device is gone", model: onDemand("m", 1), nodes: []Node{able("a", room)}, given: given(func(a *catalog.Assignment) { a.Device = "GPU-7" }), write: true,
			reason: "box-a: its device GPU-7 is no longer there"},
		{name: "idle", model: onDemand("m", 1), nodes: []Node{idle}, given: given(asItIs), write: true, reason: "no request for 1m0s (scale.idle)"},
		{name: "idle by a setting of before", model: with2(onDemand("m", 1), func(m *catalog.Model) { m.Scale.Idle = 0 }), nodes: []Node{idle}, given: given(asItIs), owner: "a", reason: "before"},
		{name: "idle on a node that is silent", model: onDemand("m", 1), nodes: []Node{away(idle)}, given: given(asItIs), owner: "a", reason: "before"},
		{name: "wanted always now", model: model("m", 1), nodes: []Node{idle}, given: given(func(a *catalog.Assignment) { a.Reason = onRequest + "it fits" }), owner: "a", write: true, reason: "it fits"},
	})
	deleted := decision(t, Input{Assignments: given(asItIs), Nodes: []Node{idle}}, "m", 0)
	if deleted.Reason != "the model is no longer in the catalog" || deleted.Owner != "" || deleted.Write.Epoch != 4 {
		t.Errorf("deleted: %+v", deleted)
	}
}

// TestRowsOfAnyNumber: another version, or a broken one, may write a slot that nobody
// counts up to.
func TestRowsOfAnyNumber(t *testing.T) {
	input := Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{able("a", room)}, Assignments: []catalog.Assignment{
		{Model: "m", Slot: 2_000_000_000, Owner: "a", Epoch: 7}, {Model: "m", Slot: -1, Owner: "a", Epoch: 8, Demand: true}, {Model: "m", Slot: -5, Epoch: 9},
	}}
	var got []string
	for _, d := range Plan(input) {
		got = append(got, fmt.Sprintf("%d %q %v", d.Slot, d.Owner, d.Write != nil))
	}
	if want := `-5 "" false; -1 "" true; 0 "a" true; 2000000000 "" true`; strings.Join(got, "; ") != want {
		t.Errorf("got %s", strings.Join(got, "; "))
	}
	input.Models[0].Scale = catalog.Scale{Min: 1 << 40, Max: 1 << 40}
	if got := len(Plan(input)); got > catalog.MaxReplicas+3 {
		t.Errorf("%d slots are wanted", got)
	}
	input.Models[0].Scale = catalog.Scale{Min: -3}
	if d := decision(t, input, "m", -1); d.Owner != "" || d.Unsatisfied {
		t.Errorf("with scale.min below zero: %+v", d)
	}
}

func TestFiguresNeverLookLikeEnough(t *testing.T) {
	for _, tc := range []struct {
		size, free int64
		want       string
	}{
		{1 << 30, 1<<30 + 1<<30/5 - 1<<20, "needs 1.2 GiB of memory, 1.1 GiB is free there"},
		{10 << 30, 12<<30 - 1, "needs 12.0 GiB of memory, 11.9 GiB is free there"},
		{1 << 20, 1 << 20, "needs 2 MiB of memory, 1 MiB is free there"},
		{5 << 17, 5 << 17, "needs 1 MiB of memory, 0 MiB is free there"},
		{1 << 30, 1<<30 - 1, "needs 1.2 GiB of memory, 1023 MiB is free there"},
		{1 << 30, 0, "needs 1.2 GiB of memory, 0 MiB is free there"},
	} {
		m := model("m", 1)
		m.Source.SizeBytes = tc.size
		if d := decision(t, Input{Models: []catalog.Model{m}, Nodes: []Node{able("a", tc.free)}}, "m", 0); d.Reason != "no node can serve it: box-a: "+tc.want {
			t.Errorf("%d of %d: %s", tc.size, tc.free, d.Reason)
		}
	}
}
