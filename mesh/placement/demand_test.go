package placement

import (
	"strings"
	"testing"

	"llmgw/mesh/catalog"
)

func TestWantsAndIdle(t *testing.T) {
	given := []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 3, Demand: true, Reason: "before"}}
	busyIdle := catalog.ReplicaStatus{Model: "m", Idle: true, InFlight: 1}
	for _, tc := range []struct {
		name   string
		model  catalog.Model
		node   Node
		given  []catalog.Assignment
		owner  string
		write  bool
		reason string
	}{
		{"a want is like scale.min 1", onDemand("m", 1), wants(able("a", 9<<30), "m", 1), nil, "a", true, "requests ask for it"},
		{"without scale.max nothing is loaded on demand", onDemand("m", 0), wants(able("a", 9<<30), "m", 1), given, "", true, "scale.max is 0"},
		{"a want of a node that is not heard counts for nothing", onDemand("m", 1), with(wants(able("a", 9<<30), "m", 1), func(n *Node) { n.Live = false }), nil, "", false, ""},
		{"what was wanted stays", onDemand("m", 1), loaded(able("a", 0), catalog.ReplicaStatus{Model: "m"}), given, "a", false, "before"},
		{"what is loading stays", onDemand("m", 1), able("a", 9<<30), given, "a", false, "before"},
		{"what is idle goes", onDemand("m", 1), loaded(able("a", 0), catalog.ReplicaStatus{Model: "m", Idle: true}), given, "", true, "no request for 1m0s"},
		{"what is idle and wanted stays", onDemand("m", 1), wants(loaded(able("a", 0), catalog.ReplicaStatus{Model: "m", Idle: true}), "m", 1), given, "a", false, "before"},
		{"what is busy stays", onDemand("m", 1), loaded(able("a", 0), busyIdle), given, "a", false, "before"},
		{"what is wanted always stays though idle", model("m", 1), loaded(able("a", 0), catalog.ReplicaStatus{Model: "m", Idle: true}), []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 3}}, "a", false, ""},
		{"what becomes wanted always is written so", model("m", 1), loaded(able("a", 0), catalog.ReplicaStatus{Model: "m", Idle: true}), given, "a", true, "before"},
		{"what was wanted goes with its node", onDemand("m", 1), with(able("a", 9<<30), func(n *Node) { n.Live, n.Gone = false, true }), given, "", true, "away"},
		{"stopped refuses wants", with2(onDemand("m", 1), func(m *catalog.Model) { m.State = catalog.ModelStopped }), wants(able("a", 9<<30), "m", 1), given, "", true, "stopped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Plan(Input{Models: []catalog.Model{tc.model}, Nodes: []Node{tc.node}, Assignments: tc.given})
			if len(got) == 0 {
				got = []Decision{{}}
			}
			if d := got[0]; d.Owner != tc.owner || (d.Write != nil) != tc.write || !strings.Contains(d.Reason, tc.reason) {
				t.Errorf("got %+v", d)
			}
		})
	}
}

// TestAnUnloadEndsWhatWasAskedForBefore, and that alone: the mark of the unload is
// compared with the one that those knew who asked.
func TestAnUnloadEndsWhatWasAskedForBefore(t *testing.T) {
	unloaded := with2(onDemand("m", 1), func(m *catalog.Model) { m.Unloaded = 7 })
	asks := func(after uint64, n Node) Node {
		n.Presence.Wants = []catalog.Want{{Model: "m", Replicas: 1, After: after}}
		return n
	}
	serving := loaded(able("a", 0), catalog.ReplicaStatus{Model: "m"})
	given := func(demand bool, after uint64) []catalog.Assignment {
		return []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 3, Demand: demand, After: after, Reason: "before"}}
	}
	for name, tc := range map[string]struct {
		node   Node
		given  []catalog.Assignment
		owner  string
		write  bool
		reason string
	}{
		"a want of before loads nothing":                          {asks(0, able("a", room)), nil, "", false, ""},
		"nor one from before an unload in between":                {asks(6, able("a", room)), nil, "", false, ""},
		"a want of now loads":                                     {asks(7, able("a", room)), nil, "a", true, "requests ask for it"},
		"a want that knows of a later unload loads":               {asks(8, able("a", room)), nil, "a", true, "requests ask for it"},
		"a want of before keeps nothing that was loaded by hand":  {asks(0, serving), given(false, 0), "", true, "not wanted: scale.min is 0"},
		"a want of before keeps nothing that was loaded for it":   {asks(0, serving), given(true, 0), "", true, "unloaded"},
		"nobody keeps what was loaded before":                     {serving, given(true, 6), "", true, "unloaded"},
		"what was loaded since stays":                             {serving, given(true, 7), "a", false, "before"},
		"a want of now takes over what was loaded by hand":        {asks(7, serving), given(false, 0), "a", true, "requests ask for it; before"},
		"a want of now takes over what was loaded for one before": {asks(7, serving), given(true, 0), "a", true, "requests ask for it; before"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Models: []catalog.Model{unloaded}, Nodes: []Node{tc.node}, Assignments: tc.given}
			d := append(Plan(in), Decision{})[0]
			if d.Owner != tc.owner || (d.Write != nil) != tc.write || !strings.Contains(d.Reason, tc.reason) {
				t.Fatalf("got %+v", d)
			}
			after := apply(in, Plan(in))
			for _, d := range Plan(after) {
				if d.Write != nil {
					t.Errorf("it is written again: %+v", d)
				}
			}
			after.Nodes = []Node{serving} // once nobody waits
			if d := append(Plan(after), Decision{})[0]; d.Owner != tc.owner {
				t.Errorf("without the want: %+v", d)
			}
		})
	}
}

func TestRequestsMayAskForUpToScaleMax(t *testing.T) {
	in := Input{Models: []catalog.Model{onDemand("m", 2)}, Nodes: []Node{wants(able("a", 9<<30), "m", 5), able("b", 9<<30), able("c", 9<<30)}}
	got := Plan(in)
	if len(got) != 2 || got[0].Owner == got[1].Owner || got[0].Owner == "" || got[1].Owner == "" {
		t.Errorf("got %+v", got)
	}
}

func TestMemoryIsTakenFromWhatWasUsedLongestAgo(t *testing.T) {
	nodes := func(busy bool) []Node {
		n := able("a", 1<<29)
		inFlight := 0
		if busy {
			inFlight = 1
		}
		n = loaded(n, catalog.ReplicaStatus{Model: "old", Used: 10, InFlight: inFlight})
		n = loaded(n, catalog.ReplicaStatus{Model: "fresh", Used: 90})
		n = loaded(n, catalog.ReplicaStatus{Model: "kept", Used: 1})
		return []Node{n}
	}
	given := []catalog.Assignment{{Model: "old", Owner: "a", Epoch: 1, Demand: true}, {Model: "fresh", Owner: "a", Epoch: 1, Demand: true}, {Model: "kept", Owner: "a", Epoch: 1}}
	models := []catalog.Model{onDemand("old", 1), onDemand("fresh", 1), model("kept", 1), model("need", 1)}
	in := Input{Models: models, Nodes: nodes(false), Assignments: given}
	if got := owners2(in); got["old"] != "" || got["fresh"] != "a" || got["kept"] != "a" || got["need"] != "" {
		t.Errorf("got %v", got)
	}
	for _, d := range Plan(in) {
		if d.Model == "need" && (!d.Unsatisfied || !strings.Contains(d.Reason, "old makes room")) {
			t.Errorf("got %+v", d)
		}
		if d.Model == "old" && !strings.Contains(d.Reason, "need needs its memory") {
			t.Errorf("got %+v", d)
		}
	}
	// While it leaves nothing more is taken, and once it left the memory is given.
	in = apply(in, Plan(in))
	for _, d := range Plan(in) {
		if d.Write != nil || d.Model == "need" && !strings.Contains(d.Reason, "about to be free") {
			t.Errorf("got %+v", d)
		}
	}
	if got := owners(settle(in)); got[catalog.AssignmentID{Model: "need"}] != "a" {
		t.Errorf("after it left: %v", got)
	}
	// A busy one is never taken.
	in = Input{Models: models, Nodes: nodes(true), Assignments: given}
	if got := owners2(in); got["old"] != "a" || got["fresh"] != "" {
		t.Errorf("with the oldest busy: %v", got)
	}
	// What is wanted is not taken either: then there is no room yet, and that is said.
	full := nodes(true)
	full[0] = wants(full[0], "fresh", 1)
	in = Input{Models: models, Nodes: full, Assignments: given}
	for _, d := range Plan(in) {
		if d.Write != nil || d.Model == "need" && (!d.Waits || d.Reason != "waits for its turn on box-a: old is busy, fresh is waited for") {
			t.Errorf("got %+v", d)
		}
	}
}

func TestFitIsPerDevice(t *testing.T) {
	unknown := withGPU(able("a", 0), "GPU-1", 0)
	unknown.Presence.Inventory.Devices[0].MemoryFree = nil
	cpuOnly := withGPU(able("a", 0), "GPU-1", 9<<30)
	cpuOnly.Presence.Engines[0].Devices = ""
	cordoned := settings(withGPU(able("a", 0), "GPU-1", 9<<30), catalog.NodeSettings{CordonedDevices: []string{"GPU-1"}})
	for _, tc := range []struct {
		name   string
		node   Node
		owner  string
		device string
		reason string
	}{
		{"a GPU with room comes before the CPU", withGPU(able("a", 9<<30), "GPU-1", 9<<30), "a", "GPU-1", "the room on GPU-1"},
		{"a full GPU leaves the CPU", withGPU(able("a", 9<<30), "GPU-1", 1<<20), "a", "", ""},
		{"memory of two devices is not one", withGPU(able("a", 700<<20), "GPU-1", 700<<20), "", "", "on GPU-1"},
		{"unknown memory is not zero", unknown, "a", "GPU-1", ""},
		{"an engine for the CPU does not see the GPU", cpuOnly, "", "", "needs 1.2 GiB of memory, 0 MiB is free there"},
		{"a cordoned GPU is given nothing", cordoned, "", "", "its device GPU-1 is cordoned"},
		{"the roomier of two GPUs", withGPU(withGPU(able("a", 0), "GPU-1", 5<<30), "GPU-2", 9<<30), "a", "GPU-2", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Plan(Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{tc.node}})[0]
			if d.Owner != tc.owner || d.Device != tc.device || !strings.Contains(d.Reason, tc.reason) {
				t.Errorf("got %+v", d)
			}
		})
	}
	two := Plan(Input{Models: []catalog.Model{model("m", 1), model("n", 1)}, Nodes: []Node{withGPU(withGPU(able("a", 0), "GPU-1", 5<<30), "GPU-2", 5<<30)}})
	if two[0].Device == two[1].Device {
		t.Errorf("two models went to one of two GPUs: %+v", two)
	}
	serving := loaded(cordoned, catalog.ReplicaStatus{Model: "m", Device: "GPU-1"})
	given := []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 1, Device: "GPU-1"}}
	if d := Plan(Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{serving}, Assignments: given})[0]; d.Owner != "a" || d.Write != nil {
		t.Errorf("a cordoned GPU lost what it serves: %+v", d)
	}
	lost := Plan(Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{able("a", 9<<30)}, Assignments: given})[0]
	if lost.Owner != "a" || lost.Device != "" || lost.Write == nil || lost.Write.Epoch != 2 {
		t.Errorf("after its GPU went: %+v", lost)
	}
	if got := Reconcile("a", Input{Nodes: []Node{serving}, Assignments: given}); len(got) != 1 || got[0].Device != "GPU-1" {
		t.Errorf("the holder is told %+v", got)
	}
}

func TestWhoServesItAlreadyComesFirst(t *testing.T) {
	other := model("other", 1)
	in := Input{Models: []catalog.Model{model("m", 1), other}, Nodes: []Node{able("a", 9<<30), loaded(able("b", 0), catalog.ReplicaStatus{Model: "m", Digest: digest})},
		Assignments: []catalog.Assignment{{Model: "other", Owner: "b", Epoch: 1}}}
	if d := Plan(in)[0]; d.Owner != "b" || !strings.Contains(d.Reason, "serves it already") {
		t.Errorf("got %+v", d)
	}
	in.Nodes[1].Presence.Replicas[0].Digest = "sha256:former"
	if d := Plan(in)[0]; d.Owner != "a" {
		t.Errorf("a replica of other weights was taken for this model: %+v", d)
	}
}

func TestOfEqualProfilesTheDefaultEngineIsTaken(t *testing.T) {
	m := model("m", 1)
	m.Profiles = []catalog.Profile{{ID: "a", Engine: "other"}, {ID: "b", Engine: catalog.EngineLlamaCpp}, {ID: "c", Engine: catalog.EngineLlamaCpp}}
	installed := []catalog.EngineInfo{{Name: "other"}, {Name: catalog.EngineLlamaCpp}}
	if p, _, _ := ChooseProfile(m, installed); p.ID != "b" {
		t.Errorf("got %+v", p)
	}
	m.Profiles[0].Priority = 1
	if p, _, _ := ChooseProfile(m, installed); p.ID != "a" {
		t.Errorf("with a priority: %+v", p)
	}
}

func TestTwoEntriesOfOneSourceHaveOwnersOfTheirOwn(t *testing.T) {
	in := Input{Models: []catalog.Model{model("m", 1), model("n", 1)}, Nodes: []Node{able("a", 9<<30), able("b", 9<<30)}}
	got := owners2(in)
	if got["m"] == "" || got["n"] == "" || got["m"] == got["n"] {
		t.Errorf("got %v", got)
	}
	in = apply(in, Plan(in))
	in.Models[0].State = catalog.ModelStopped
	if got := owners2(in); got["m"] != "" || got["n"] == "" {
		t.Errorf("one stopped: %v", got)
	}
}

func TestWhatIfTellsWhatMakesRoom(t *testing.T) {
	n := loaded(able("a", 1<<29), catalog.ReplicaStatus{Model: "old", Used: 1})
	need := model("need", 1)
	got := map[string]Effect{}
	for _, o := range WhatIf(Input{Models: []catalog.Model{onDemand("old", 1)}, Nodes: []Node{n}, Assignments: []catalog.Assignment{{Model: "old", Owner: "a", Epoch: 1, Demand: true}}}, Change{Model: &need}) {
		got[o.Model] = o.Effect
	}
	if got["need"] != Gained || got["old"] != Lost {
		t.Errorf("got %v", got)
	}
}
