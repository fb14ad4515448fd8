package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const digest = "sha256:aa"

func model(id string, min int) catalog.Model {
	return catalog.Model{
		ID: id, Name: id, State: catalog.ModelServed, Scale: catalog.Scale{Min: min, Max: min},
		Source: catalog.Source{URI: "file:/models/" + id, Digest: digest, SizeBytes: 1 << 30, Format: catalog.FormatGGUF},
	}
}

func able(id string, free int64) Node {
	return Node{ID: id, Name: "box-" + id, Live: true, Presence: catalog.Presence{
		Peer: id, Complete: true, Engines: []catalog.EngineInfo{{Name: catalog.EngineLlamaCpp}}, Weights: []string{digest},
		Inventory: catalog.Inventory{RAMFree: &free},
	}}
}

func with(n Node, change func(*Node)) Node {
	change(&n)
	return n
}

// withGPU gives a node a GPU that its engine computes on.
func withGPU(n Node, id string, free int64) Node {
	n.Presence.Engines = []catalog.EngineInfo{{Name: catalog.EngineLlamaCpp, Devices: "nvidia"}}
	n.Presence.Inventory.Devices = append(slices.Clone(n.Presence.Inventory.Devices), catalog.Device{ID: id, Kind: catalog.DeviceNVIDIA, MemoryFree: &free})
	return n
}

// started is a node that is heard and has told nothing yet.
func started(id string) Node { return Node{ID: id, Name: "box-" + id, Live: true} }

func ready(n Node, model string) Node {
	n.Presence.Replicas = append(slices.Clone(n.Presence.Replicas), catalog.ReplicaStatus{Model: model, State: catalog.ReplicaReady})
	return n
}

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

// apply stores what a plan asks for, as the stewards would.
func apply(in Input, decisions []Decision) Input {
	out := slices.Clone(in.Assignments)
	for _, d := range decisions {
		if d.Write == nil {
			continue
		}
		out = slices.DeleteFunc(out, func(a catalog.Assignment) bool { return a.Model == d.Model && a.Slot == d.Slot })
		out = append(out, *d.Write)
	}
	in.Assignments = out
	return in
}

// genInput draws a mesh with all that a decision depends on.
func genInput(t *rapid.T) Input {
	var in Input
	names := func(what string) string { return fmt.Sprintf("node%d", rapid.IntRange(0, 3).Draw(t, what)) }
	for i := range rapid.IntRange(0, 4).Draw(t, "models") {
		m := model(fmt.Sprintf("m%d", i), rapid.IntRange(0, 2).Draw(t, "min"))
		m.Scale.Max = m.Scale.Min + rapid.IntRange(0, 2).Draw(t, "more")
		if rapid.IntRange(0, 5).Draw(t, "pin?") == 5 {
			m.Pin = names("pin")
		}
		if rapid.IntRange(0, 5).Draw(t, "labels?") == 5 {
			m.Labels.Require = map[string]string{"zone": "eu"}
		}
		if rapid.IntRange(0, 5).Draw(t, "stopped?") == 5 {
			m.State = catalog.ModelStopped
		}
		in.Models = append(in.Models, m)
		for slot := range rapid.SampledFrom([]int{1, 2, 0}).Draw(t, "assigned") {
			in.Assignments = append(in.Assignments, catalog.Assignment{Model: m.ID, Slot: slot, Owner: names("owner"), Epoch: 1,
				Demand: rapid.Bool().Draw(t, "demand"), Device: rapid.SampledFrom([]string{"", "GPU-1"}).Draw(t, "device")})
		}
	}
	for i := range rapid.SampledFrom([]int{4, 3, 2, 1, 0}).Draw(t, "nodes") {
		in.Nodes = append(in.Nodes, genNode(t, fmt.Sprintf("node%d", i), in))
	}
	return in
}

func genNode(t *rapid.T, id string, in Input) Node {
	n := able(id, rapid.SampledFrom([]int64{0, 1 << 29, 1 << 30, 3 << 30}).Draw(t, "free"))
	n.Live = rapid.IntRange(0, 5).Draw(t, "dead?") != 5
	n.Gone = !n.Live && rapid.Bool().Draw(t, "gone")
	n.Settings.Cordoned = rapid.IntRange(0, 5).Draw(t, "cordoned?") == 5
	n.Settings.Labels = map[string]string{"zone": rapid.SampledFrom([]string{"eu", "us"}).Draw(t, "zone")}
	if rapid.IntRange(0, 5).Draw(t, "bare?") == 5 {
		n.Presence.Weights = nil
	}
	if rapid.Bool().Draw(t, "gpu?") {
		n = withGPU(n, "GPU-1", rapid.SampledFrom([]int64{0, 1 << 30, 3 << 30}).Draw(t, "gpu free"))
		if rapid.IntRange(0, 3).Draw(t, "gpu cordoned?") == 3 {
			n.Settings.CordonedDevices = []string{"GPU-1"}
		}
	}
	for _, m := range in.Models {
		if rapid.IntRange(0, 3).Draw(t, "want?") == 3 {
			n.Presence.Wants = append(n.Presence.Wants, catalog.Want{Model: m.ID, Replicas: rapid.IntRange(0, 3).Draw(t, "wanted")})
		}
	}
	for _, a := range in.Assignments {
		if a.Owner != id && rapid.IntRange(0, 5).Draw(t, "stray?") != 5 || rapid.IntRange(0, 5).Draw(t, "loaded?") == 5 {
			continue
		}
		n.Presence.Replicas = append(n.Presence.Replicas, catalog.ReplicaStatus{
			Model: a.Model, Slot: a.Slot, State: rapid.SampledFrom([]catalog.ReplicaState{catalog.ReplicaReady, catalog.ReplicaReady, catalog.ReplicaLoading}).Draw(t, "state"),
			Device: deviceID(a.Device), Since: int64(rapid.IntRange(1, 50).Draw(t, "since")), Used: int64(rapid.IntRange(1, 50).Draw(t, "used")),
			InFlight: rapid.IntRange(0, 1).Draw(t, "in flight"), Idle: rapid.Bool().Draw(t, "idle"), PID: 7,
		})
	}
	return n
}

func TestPlanDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genInput(t)
		want := Plan(in)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		r.Shuffle(len(in.Models), func(i, j int) { in.Models[i], in.Models[j] = in.Models[j], in.Models[i] })
		r.Shuffle(len(in.Nodes), func(i, j int) { in.Nodes[i], in.Nodes[j] = in.Nodes[j], in.Nodes[i] })
		r.Shuffle(len(in.Assignments), func(i, j int) { in.Assignments[i], in.Assignments[j] = in.Assignments[j], in.Assignments[i] })
		if diff := cmp.Diff(want, Plan(in)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestPlanCarriedOutAsksForNothingMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genInput(t)
		for range 3 {
			in = apply(in, Plan(in))
		}
		for _, d := range Plan(in) {
			if d.Write != nil {
				t.Fatalf("a settled plan still writes %+v because %q", *d.Write, d.Reason)
			}
		}
	})
}

// works says whether a slot is wanted, or may linger, and is served where it is
// allowed to be.
func works(in Input, a catalog.Assignment) bool {
	p := newPlanner(in)
	m, known := p.model(a.Model)
	n, there := p.node(a.Owner)
	if !known || !there || n.Gone || !n.Live || m.State == catalog.ModelStopped || m.Labels.Refuses(n.Settings.Labels) != "" || m.Pin != "" && m.Pin != a.Owner {
		return false
	}
	r, _ := n.Presence.Replica(a.Model, a.Slot)
	lingers := a.Demand && a.Slot < m.Scale.Max && (!r.Idle || r.InFlight > 0)
	return r.State == catalog.ReplicaReady && (a.Slot < p.wanted(m) || lingers)
}

func TestPlanNeverMovesWhatWorks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genInput(t)
		p := newPlanner(in)
		for _, d := range Plan(in) {
			a, owned := p.before[d.id()]
			if !owned || d.Write == nil || !works(in, a) || d.Write.Owner == a.Owner {
				continue
			}
			n, _ := p.node(a.Owner)
			m, _ := p.model(a.Model)
			r, _ := n.Presence.Replica(a.Model, a.Slot)
			switch {
			case d.Write.Owner != "" && r.Since > servesSince(m, a.Slot, node(in, d.Write.Owner)): // the other serves longer
			case d.Write.Owner == "" && strings.Contains(d.Reason, "needs its memory") && a.Demand && a.Slot >= p.wanted(m) && r.InFlight == 0:
			default:
				t.Fatalf("moved %s slot %d away from %s to %q: %s", d.Model, d.Slot, a.Owner, d.Write.Owner, d.Reason)
			}
		}
	})
}

func node(in Input, id string) Node {
	n, _ := newPlanner(in).node(id)
	return n
}

// Whoever decided what during a partition, once all see the same and follow it,
// no two live nodes serve one slot, and who serves it owns it.
func TestQuietLeavesOneOwnerOfEachSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := genInput(t)
		for i := range in.Nodes {
			for k := range in.Nodes[i].Presence.Replicas {
				in.Nodes[i].Presence.Replicas[k].InFlight = 0
			}
		}
		for range 8 {
			in = apply(in, Plan(in))
			next := slices.Clone(in.Nodes)
			for i, n := range in.Nodes {
				if n.Live {
					next[i].Presence.Replicas = follow(n, Reconcile(n.ID, in))
				}
			}
			in.Nodes = next
		}
		owner := map[catalog.AssignmentID]string{}
		for _, a := range in.Assignments {
			owner[catalog.AssignmentID{Model: a.Model, Slot: a.Slot}] = a.Owner
		}
		served := map[catalog.AssignmentID]string{}
		for _, n := range in.Nodes {
			for _, r := range n.Presence.Replicas {
				id := catalog.AssignmentID{Model: r.Model, Slot: r.Slot}
				if !n.Live || owner[id] != "" && !node(in, owner[id]).Live {
					continue // a winner that is not heard is not waited away
				}
				if other, twice := served[id]; twice {
					t.Fatalf("%v is served by %s and %s", id, other, n.ID)
				}
				if served[id] = n.ID; owner[id] != n.ID {
					t.Fatalf("%v is served by %s and owned by %q", id, n.ID, owner[id])
				}
			}
		}
	})
}

// follow is what a node's supervisor makes of its actions: everything loads.
func follow(n Node, actions []Action) []catalog.ReplicaStatus {
	out := slices.Clone(n.Presence.Replicas)
	for _, a := range actions {
		i := slices.IndexFunc(out, func(r catalog.ReplicaStatus) bool { return r.Model == a.Model && r.Slot == a.Slot })
		switch {
		case !a.Run && i >= 0:
			out = slices.Delete(out, i, i+1)
		case a.Run && i >= 0:
			out[i].State = catalog.ReplicaReady
		case a.Run:
			out = append(out, catalog.ReplicaStatus{Model: a.Model, Slot: a.Slot, State: catalog.ReplicaReady, Device: deviceID(a.Device), Since: 100, PID: 7})
		}
	}
	return out
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
