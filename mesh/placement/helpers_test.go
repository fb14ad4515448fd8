package placement

import (
	"slices"
	"testing"
	"time"

	"llmgw/mesh/catalog"
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

func settings(n Node, s catalog.NodeSettings) Node { n.Settings = s; return n }

func labelled(m catalog.Model, s catalog.Selector) catalog.Model { m.Labels = s; return m }

func since(n Node, model string, at int64) Node {
	n = ready(n, model)
	n.Presence.Replicas[len(n.Presence.Replicas)-1].Since = at
	return n
}

// onDemand is a model that requests may load so often.
func onDemand(id string, most int) catalog.Model {
	m := model(id, 0)
	m.Scale = catalog.Scale{Max: most, Idle: time.Minute}
	return m
}

func wants(n Node, model string, replicas int) Node {
	n.Presence.Wants = append(slices.Clone(n.Presence.Wants), catalog.Want{Model: model, Replicas: replicas})
	return n
}

// loaded is a node with a ready replica.
func loaded(n Node, r catalog.ReplicaStatus) Node {
	r.State, r.PID, r.Since = catalog.ReplicaReady, 7, 1
	n.Presence.Replicas = append(slices.Clone(n.Presence.Replicas), r)
	return n
}

func owners2(in Input) map[string]string {
	out := map[string]string{}
	for _, d := range Plan(in) {
		out[d.Model] += d.Owner
	}
	return out
}

func with2(m catalog.Model, change func(*catalog.Model)) catalog.Model { change(&m); return m }

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

// gone is a node that left, or whose hold-down is over; away one that is not heard.
func gone(n Node) Node { n.Live, n.Gone = false, true; return n }

func away(n Node) Node { n.Live = false; return n }

// decision is what was decided for one slot; the test fails when there is none.
func decision(t *testing.T, in Input, model string, slot int) Decision {
	t.Helper()
	for _, d := range Plan(in) {
		if d.Model == model && d.Slot == slot {
			return d
		}
	}
	t.Fatalf("nothing was decided of %s slot %d", model, slot)
	return Decision{}
}

func node(in Input, id string) Node {
	n, _ := newPlanner(in).node(id)
	return n
}

func modelOf(in Input, id string) (catalog.Model, bool) { return newPlanner(in).model(id) }

// assigned is an assignment of slot 0 at epoch 3.
func assigned(model, owner string) catalog.Assignment {
	return catalog.Assignment{Model: model, Owner: owner, Epoch: 3, Reason: "before"}
}

func demanded(model, owner string) catalog.Assignment {
	a := assigned(model, owner)
	a.Demand = true
	return a
}
