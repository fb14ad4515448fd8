package placement

import (
	"slices"
	"testing"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
)

func TestWhatANodeIsToldToDo(t *testing.T) {
	onGPU := assigned("m", "a")
	onGPU.Device = "GPU-1"
	lost := []catalog.Assignment{assigned("m", "b")}
	serving := since(able("a", room), "m", 9)
	winner := since(able("b", room), "m", 10)
	const ends = "box-b serves it now"
	run := []Action{{Model: "m", Epoch: 3, Run: true}}
	release := func(epoch uint64, reason string) []Action {
		return []Action{{Model: "m", Epoch: epoch, Reason: reason}}
	}
	for _, tc := range []struct {
		name  string
		model catalog.Model
		nodes []Node
		given []catalog.Assignment
		want  []Action
	}{
		{"nothing", model("m", 0), []Node{able("a", room)}, nil, nil},
		{"its slot runs", model("m", 1), []Node{able("a", room)}, []catalog.Assignment{assigned("m", "a")}, run},
		{"on its device", model("m", 1), []Node{able("a", room)}, []catalog.Assignment{onGPU}, []Action{{Model: "m", Epoch: 3, Run: true, Device: "GPU-1"}}},
		{"a slot of others does not", model("m", 1), []Node{able("a", room), able("b", room)}, lost, nil},
		{"not against a label", requires("eu"), []Node{in("us", serving)}, []catalog.Assignment{assigned("m", "a")}, release(3, "it lacks the required label zone=eu")},
		{"what is vacant ends, for the reason of the row", model("m", 0), []Node{serving}, []catalog.Assignment{{Model: "m", Epoch: 4, Reason: "unloaded"}}, release(4, "unloaded")},
		{"what has no row ends", model("m", 0), []Node{serving}, nil, release(0, "it has no assignment")},
		{"what has a row without reason ends", model("m", 0), []Node{serving}, []catalog.Assignment{{Model: "m", Epoch: 4}}, release(4, "it has no assignment")},
		{"what is about to be given stays", model("m", 1), []Node{serving}, []catalog.Assignment{{Model: "m", Epoch: 4}}, nil},
		{"a loser ends once the winner serves", pinnedTo("b"), []Node{serving, winner}, lost, release(3, ends)},
		{"a loser that serves nobody ends at once", pinnedTo("b"), []Node{with(serving, func(n *Node) {
			n.Presence.Replicas = slices.Clone(n.Presence.Replicas)
			n.Presence.Replicas[0].State = catalog.ReplicaLoading
		}), able("b", room)}, lost, release(3, "box-b has the slot now, and nobody is served here")},
		{"not while it loads", pinnedTo("b"), []Node{serving, able("b", room)}, lost, nil},
		{"not while the winner is silent", pinnedTo("b"), []Node{serving, away(winner)}, lost, nil},
		{"not while the winner stops", pinnedTo("b"), []Node{serving, stopping(winner)}, lost, nil},
		{"not for one that is no member", pinnedTo("b"), []Node{serving}, lost, nil},
		{"not when it will get the slot back", model("m", 1), []Node{serving, winner}, lost, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Reconcile("a", Input{Models: []catalog.Model{tc.model}, Nodes: tc.nodes, Assignments: tc.given})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNothingBeginsInMemoryThatSomethingLeaves: a node had begun what was just taken
// away from it, and was given another for the room.
func TestNothingBeginsInMemoryThatSomethingLeaves(t *testing.T) {
	leaves := catalog.ReplicaStatus{Model: "gone", State: catalog.ReplicaLoading, PID: 7}
	holds := func(free int64, replicas ...catalog.ReplicaStatus) Node {
		return with(able("a", free), func(n *Node) { n.Presence.Replicas = replicas })
	}
	for name, tc := range map[string]struct {
		node   Node
		begins bool
	}{
		"while it holds the memory":         {holds(1<<30, leaves), false},
		"with room for both":                {holds(2<<30, leaves), true},
		"once it left":                      {holds(2 << 30), true},
		"without room and nothing leaves":   {holds(1 << 30), true},
		"what has begun goes on":            {holds(0, leaves, catalog.ReplicaStatus{Model: "m", State: catalog.ReplicaLoading, PID: 8}), true},
		"when nothing can be measured":      {with(holds(0, leaves), func(n *Node) { n.Presence.Inventory.RAMFree = nil }), true},
		"what holds none is not waited for": {holds(1<<30, catalog.ReplicaStatus{Model: "gone", State: catalog.ReplicaFailed}), true},
	} {
		in := Input{Models: []catalog.Model{model("m", 1), with2(model("gone", 1), func(m *catalog.Model) { m.Pin = "b" })}, Nodes: []Node{tc.node, able("b", room)},
			Assignments: []catalog.Assignment{assigned("m", "a"), assigned("gone", "b")}}
		begins := slices.ContainsFunc(Reconcile("a", in), func(a Action) bool { return a.Run && a.Model == "m" })
		if begins != tc.begins {
			t.Errorf("%s: it begins: %v", name, begins)
		}
	}
}

func TestACandidateSaysWhyNot(t *testing.T) {
	owned := []catalog.Assignment{assigned("m", "a")}
	for _, tc := range []struct {
		name  string
		model catalog.Model
		node  Node
		given []catalog.Assignment
		want  Candidate
	}{
		{"it could", model("m", 1), able("a", room), nil, Candidate{Node: "a"}},
		{"the owner that loads could, though its memory is promised to itself", model("m", 1), able("a", 2<<30), owned, Candidate{Node: "a", Owns: true, Slots: 1}},
		{"the owner that serves", model("m", 1), since(able("a", 0), "m", 1), owned, Candidate{Node: "a", Owns: true, Serves: true, Slots: 1}},
		{"the owner that is silent", model("m", 1), away(able("a", room)), owned, Candidate{Node: "a", Owns: true, Slots: 1, Why: "does not answer now"}},
		{"gone", model("m", 1), gone(able("a", room)), owned, Candidate{Node: "a", Owns: true, Slots: 1, Why: "left, or has not answered for long"}},
		{"not the pin", pinnedTo("b"), able("a", room), nil, Candidate{Node: "a", Why: "the model is pinned to b"}},
		{"serves and may not", requires("eu"), in("us", since(able("a", room), "m", 1)), nil, Candidate{Node: "a", Serves: true, Why: "it lacks the required label zone=eu"}},
		{"slots of other models count", model("m", 1), able("a", room), []catalog.Assignment{assigned("x", "a"), assigned("y", "a")}, Candidate{Node: "a", Slots: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Why(Input{Models: []catalog.Model{tc.model}, Nodes: []Node{tc.node}, Assignments: tc.given}, "m")
			if len(got) != 1 {
				t.Fatalf("got %+v", got)
			}
			if diff := cmp.Diff([]Candidate{tc.want}, got[0].Candidates); diff != "" {
				t.Error(diff)
			}
		})
	}
	orphan := Why(Input{Nodes: []Node{able("a", room)}, Assignments: owned}, "m")
	if len(orphan) != 1 || orphan[0].Epoch != 3 || len(orphan[0].Candidates) != 0 {
		t.Errorf("a deleted model: %+v", orphan)
	}
}

// TestAWhyKnowsWhatOthersGet in the same plan: the memory is promised to them.
func TestAWhyKnowsWhatOthersGet(t *testing.T) {
	got := Why(Input{Models: []catalog.Model{model("a1", 1), model("m", 1)}, Nodes: []Node{able("a", 2<<30)}}, "m")
	if !got[0].Unsatisfied || got[0].Candidates[0].Why != "needs 1.2 GiB of memory, 819 MiB is free there" {
		t.Errorf("got %+v", got[0])
	}
}

// TestAWhyTakesNothingFromItself: what is kept for a slot that waits is free to it, and
// to no other.
func TestAWhyTakesNothingFromItself(t *testing.T) {
	input := Input{Models: []catalog.Model{bytesOf(model("need", 1), 7<<28), onDemand("old", 1), bytesOf(model("small", 1), 1<<28)},
		Nodes: []Node{with(full("a", lru("old", 1)), func(n *Node) { free := int64(1 << 30); n.Presence.Inventory.RAMFree = &free })}, Assignments: []catalog.Assignment{demanded("old", "a")}}
	for model, want := range map[string]string{"need": "needs 2.1 GiB of memory, 1.0 GiB is free there", "small": "needs 308 MiB of memory, 102 MiB is free there"} {
		if got := Why(input, model)[0]; got.Candidates[0].Why != want {
			t.Errorf("%s: %+v", model, got)
		}
	}
}

// TestAWhatIfFollowsALongChain: each model waits for the room of the one before.
func TestAWhatIfFollowsALongChain(t *testing.T) {
	n := able("a", 0)
	var input Input
	for i := range 9 {
		id := string(rune('a' + i))
		input.Models = append(input.Models, onDemand(id, 1))
		input.Assignments = append(input.Assignments, demanded(id, "a"))
		n = loaded(n, lru(id, int64(i)))
	}
	need := model("need", 9)
	input.Nodes = []Node{n}
	for _, o := range WhatIf(input, Change{Model: &need}) {
		if want := map[bool]Effect{true: Gained, false: Lost}[o.Model == "need"]; o.Effect != want {
			t.Errorf("%s slot %d is %s: %s", o.Model, o.Slot, o.Effect, o.Reason)
		}
	}
}

// TestAWhatIfEndsWhatMoves: a pin takes a model to another node, and what waits for
// its memory gets it.
func TestAWhatIfEndsWhatMoves(t *testing.T) {
	input := Input{Models: []catalog.Model{model("m", 1), pinnedWait("a")}, Nodes: []Node{since(able("a", 0), "m", 1), able("b", 2<<30)}, Assignments: []catalog.Assignment{assigned("m", "a")}}
	moved := pinnedTo("b")
	got := map[string]Effect{}
	for _, o := range WhatIf(input, Change{Model: &moved}) {
		got[o.Model] = o.Effect
	}
	if diff := cmp.Diff(map[string]Effect{"m": Moved, "waits": Gained}, got); diff != "" {
		t.Error(diff)
	}
}

func pinnedWait(node string) catalog.Model {
	return with2(model("waits", 1), func(m *catalog.Model) { m.Pin = node })
}

// TestAWhatIfOfReplicasThatFailed: a replica that has failed for good does not take its slot's
// memory on paper, nor does a crash that starts again take it twice.
func TestAWhatIfOfReplicasThatFailed(t *testing.T) {
	for state, taken := range map[catalog.ReplicaState]bool{catalog.ReplicaQuarantined: false, catalog.ReplicaFailed: false, catalog.ReplicaBackoff: true, catalog.ReplicaStarting: true} {
		n := able("a", 2<<30)
		n.Presence.Replicas = []catalog.ReplicaStatus{{Model: "m", State: state}}
		after := settle(Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{n}, Assignments: []catalog.Assignment{assigned("m", "a")}})
		r, _ := after.Nodes[0].Presence.Replica("m", 0)
		free := *devices(after.Nodes[0])[0].MemoryFree
		if (r.State == catalog.ReplicaReady) != taken || (free < 1<<30) != taken {
			t.Errorf("%s becomes %s with %d free", state, r.State, free)
		}
	}
}

func TestAWhatIfWithOddQuestions(t *testing.T) {
	input := Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{able("a", room)}}
	again := able("a", 0)
	for name, c := range map[string]struct {
		change Change
		want   Effect
	}{
		"everywhere and no model":   {Change{Everywhere: true}, Kept},
		"without one that is not":   {Change{Without: []string{"nobody"}}, Kept},
		"a node that is there":      {Change{Add: &again}, Kept},
		"without all":               {Change{Without: []string{"a"}}, Lost},
		"the model as it is":        {Change{Model: &input.Models[0]}, Kept},
		"the model stopped by hand": {Change{Model: &[]catalog.Model{with2(model("m", 1), func(m *catalog.Model) { m.State = catalog.ModelStopped })}[0]}, Lost},
	} {
		got := WhatIf(input, c.change)
		if len(got) != 1 || got[0].Effect != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
