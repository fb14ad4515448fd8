package placement

import (
	"slices"
	"strings"
	"testing"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
)

func TestPlan(t *testing.T) {
	owns := func(owner string, epoch uint64) []catalog.Assignment {
		return []catalog.Assignment{{Model: "m", Owner: owner, Epoch: epoch, Reason: "before"}}
	}
	pinned := func(to string) catalog.Model { m := model("m", 1); m.Pin = to; return m }
	stopped := model("m", 1)
	stopped.State = catalog.ModelStopped
	unknownRAM := with(able("a", 0), func(n *Node) { n.Presence.Inventory.RAMFree = nil })

	for _, tc := range []struct {
		name   string
		in     Input
		owner  string
		write  bool
		failed bool
		reason string // a part of it
	}{
		{"not wanted and not owned is nothing", Input{Models: []catalog.Model{model("m", 0)}, Nodes: []Node{able("a", 9<<30)}}, "", false, false, ""},
		{"the only able node gets it", Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{able("a", 9<<30)}}, "a", true, false, "has the engine"},
		{"no engine", Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{with(able("a", 9<<30), func(n *Node) { n.Presence.Engines = nil })}},
			"", false, true, "llmgw engines install llamacpp"},
		{"no file", Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{with(able("a", 9<<30), func(n *Node) { n.Presence.Weights = nil })}},
			"", false, true, "the file is not on its disk"},
		{"no room", Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{able("a", 1<<29)}}, "", false, true, "needs 1.2 GiB of memory, 512 MiB is free"},
		{"unknown memory is not zero", Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{unknownRAM}}, "a", true, false, ""},
		{"no nodes", Input{Models: []catalog.Model{model("m", 1)}}, "", false, true, "no node"},
		{"a stopping node gets nothing", Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{with(able("a", 9<<30), func(n *Node) { n.Presence.Stopping = true })}},
			"", false, true, "stopping"},
		{"sticky: an owner with no room left keeps what it serves", Input{Models: []catalog.Model{model("m", 1)}, Assignments: owns("a", 3),
			Nodes: []Node{ready(able("a", 0), "m"), able("b", 9<<30)}}, "a", false, false, "before"},
		{"sticky: an owner that is not heard keeps its slot", Input{Models: []catalog.Model{model("m", 1)}, Assignments: owns("a", 3),
			Nodes: []Node{with(able("a", 0), func(n *Node) { n.Live = false }), able("b", 9<<30)}}, "a", false, false, ""},
		{"sticky: an owner that has just started keeps its slot", Input{Models: []catalog.Model{model("m", 1)}, Assignments: owns("a", 3),
			Nodes: []Node{started("a"), able("b", 9<<30)}}, "a", false, false, ""},
		{"a pinned owner that has just started keeps its slot", Input{Models: []catalog.Model{pinned("a")}, Assignments: owns("a", 3),
			Nodes: []Node{started("a"), able("b", 9<<30)}}, "a", false, false, ""},
		{"a node that has just started is given nothing", Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{started("a")}},
			"", false, true, "has just started"},
		{"a gone owner loses it", Input{Models: []catalog.Model{model("m", 1)}, Assignments: owns("a", 3),
			Nodes: []Node{with(able("a", 0), func(n *Node) { n.Live, n.Gone = false, true }), able("b", 9<<30)}}, "b", true, false, ""},
		{"an owner whose file went away loses it unless it serves", Input{Models: []catalog.Model{model("m", 1)}, Assignments: owns("a", 3),
			Nodes: []Node{with(able("a", 9<<30), func(n *Node) { n.Presence.Weights = nil }), able("b", 9<<30)}}, "b", true, false, ""},
		{"a pin moves it", Input{Models: []catalog.Model{pinned("b")}, Assignments: owns("a", 3),
			Nodes: []Node{ready(able("a", 9<<30), "m"), able("b", 9<<30)}}, "b", true, false, "pinned to box-b"},
		{"a pin to a node that is away waits", Input{Models: []catalog.Model{pinned("c")}, Nodes: []Node{able("a", 9<<30)}}, "", false, true, "away"},
		{"a pin that cannot run it says why", Input{Models: []catalog.Model{pinned("b")}, Nodes: []Node{able("a", 9<<30), able("b", 1)}}, "", false, true, "box-b: needs"},
		{"stopped vacates", Input{Models: []catalog.Model{stopped}, Assignments: owns("a", 3), Nodes: []Node{able("a", 9<<30)}}, "", true, false, "stopped"},
		{"unload vacates", Input{Models: []catalog.Model{model("m", 0)}, Assignments: owns("a", 3), Nodes: []Node{able("a", 9<<30)}}, "", true, false, "scale.min is 0"},
		{"a deleted model vacates", Input{Assignments: owns("a", 3), Nodes: []Node{able("a", 9<<30)}}, "", true, false, "no longer in the catalog"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			decisions := Plan(tc.in)
			if tc.reason == "" && tc.owner == "" && !tc.write && !tc.failed {
				if len(decisions) != 0 {
					t.Fatalf("got %+v, want nothing", decisions)
				}
				return
			}
			if len(decisions) != 1 {
				t.Fatalf("got %d decisions, want 1: %+v", len(decisions), decisions)
			}
			d := decisions[0]
			if d.Owner != tc.owner || (d.Write != nil) != tc.write || d.Unsatisfied != tc.failed || !strings.Contains(d.Reason, tc.reason) {
				t.Errorf("got owner %q, write %v, unsatisfied %v, reason %q", d.Owner, d.Write, d.Unsatisfied, d.Reason)
			}
			if d.Write != nil && len(tc.in.Assignments) > 0 && d.Write.Epoch <= tc.in.Assignments[0].Epoch {
				t.Errorf("epoch %d does not rise above %d", d.Write.Epoch, tc.in.Assignments[0].Epoch)
			}
		})
	}
}

func TestPlanSpeaksForMemoryThatIsNotTakenYet(t *testing.T) {
	in := Input{Models: []catalog.Model{model("m", 1), model("n", 1)}, Nodes: []Node{able("a", 2<<30)}}
	decisions := Plan(in)
	if decisions[0].Owner != "a" || !decisions[1].Unsatisfied {
		t.Errorf("2 GiB were given to two models of 1.2 GiB: %+v", decisions)
	}
}

func TestReplicasOfOneModelAreSpread(t *testing.T) {
	busy := able("a", 90<<30)
	in := Input{Models: []catalog.Model{model("m", 2), model("n", 1), model("o", 1)}, Nodes: []Node{busy, able("b", 90<<30)},
		Assignments: []catalog.Assignment{{Model: "n", Owner: "a", Epoch: 1}, {Model: "o", Owner: "a", Epoch: 1}}}
	var owners []string
	for _, d := range Plan(in) {
		if d.Model == "m" {
			owners = append(owners, d.Owner)
		}
	}
	slices.Sort(owners)
	if diff := cmp.Diff([]string{"a", "b"}, owners); diff != "" {
		t.Errorf("two replicas on one box are lost together: %s", diff)
	}
}

func TestReconcile(t *testing.T) {
	lost := []catalog.Assignment{{Model: "m", Owner: "b", Epoch: 4}}
	for _, tc := range []struct {
		name string
		in   Input
		want []Action
	}{
		{"own slot runs", Input{Nodes: []Node{able("a", 0)}, Assignments: []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 2}}},
			[]Action{{Model: "m", Epoch: 2, Run: true}}},
		{"vacant slot is released", Input{Nodes: []Node{ready(able("a", 0), "m")}, Assignments: []catalog.Assignment{{Model: "m", Epoch: 3, Reason: "unloaded"}}},
			[]Action{{Model: "m", Epoch: 3, Reason: "unloaded"}}},
		{"a loser waits for the winner", Input{Nodes: []Node{ready(able("a", 0), "m"), able("b", 0)}, Assignments: lost}, nil},
		{"a loser drains once the winner serves", Input{Nodes: []Node{ready(able("a", 0), "m"), ready(able("b", 0), "m")}, Assignments: lost},
			[]Action{{Model: "m", Epoch: 4, Reason: "box-b serves it now"}}},
		{"a winner that is not heard is not waited away", Input{Nodes: []Node{ready(able("a", 0), "m"), with(ready(able("b", 0), "m"), func(n *Node) { n.Live = false })}, Assignments: lost}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Reconcile("a", tc.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStewardIsOneLiveNode(t *testing.T) {
	nodes := []Node{able("a", 0), able("b", 0), with(able("c", 0), func(n *Node) { n.Live = false })}
	first := Steward("m", nodes)
	slices.Reverse(nodes)
	if again := Steward("m", nodes); again != first || (first != "a" && first != "b") {
		t.Errorf("got steward %q and %q", first, again)
	}
	if got := Steward("m", nil); got != "" {
		t.Errorf("got steward %q of no nodes", got)
	}
}
