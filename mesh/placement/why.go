package placement

import (
	"cmp"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
)

// Candidate is one node in the eyes of a decision.
type Candidate struct {
	Node string
	// Why not; empty: it could be given the model.
	Why string
	// Owns and Serves tell of the slot that the decision is about.
	Owns, Serves bool
	Slots        int // slots that it owns of all models
}

// Explanation is a decision with all that it was chosen from.
type Explanation struct {
	Decision
	Epoch      uint64
	Steward    string // who writes it
	Candidates []Candidate
}

// Why explains each slot of a model, as Plan decides it.
func Why(in Input, model string) []Explanation {
	var out []Explanation
	for _, d := range Plan(in) {
		if d.Model != model {
			continue
		}
		out = append(out, explain(in, d))
	}
	return out
}

func explain(in Input, d Decision) Explanation {
	p := newPlanner(in)
	e := Explanation{Decision: d, Steward: Steward(d.Model, in.Nodes)}
	current := p.owned[catalog.AssignmentID{Model: d.Model, Slot: d.Slot}]
	e.Epoch = current.Epoch
	i := slices.IndexFunc(p.models, func(m catalog.Model) bool { return m.ID == d.Model })
	if i < 0 {
		return e
	}
	for _, n := range p.nodes {
		c := Candidate{Node: n.ID, Owns: n.ID == current.Owner && current.Owner != "", Slots: p.slots[n.ID]}
		c.Serves = servesSince(p.models[i], d.Slot, n) != 0
		if !c.Serves {
			_, why := p.fit(p.models[i], d.Slot, n)
			c.Why = why.text
		}
		if n.Gone {
			c.Why = "left, or has not answered for long"
		}
		e.Candidates = append(e.Candidates, c)
	}
	return e
}

// Change is what a person thinks of doing.
type Change struct {
	Without []string       // peer IDs of nodes that would be gone
	Add     *Node          // a node that would be there
	Model   *catalog.Model // a model that would be wanted, new or as it would be
	// Everywhere: the model's file would be on every disk, since nobody has it yet.
	Everywhere bool
}

// Effect says what a change does to one slot.
type Effect string

// Effects of a change.
const (
	Kept    Effect = "kept"    // the same owner before and after
	Moved   Effect = "moved"   // another owner, after a load there
	Lost    Effect = "lost"    // had an owner, will have none
	Gained  Effect = "gained"  // had none, will have one
	Missing Effect = "missing" // has none, will have none
)

// Outcome is the fate of one wanted slot under a change.
type Outcome struct {
	Model         string
	Slot          int
	Before, After string // peer IDs; empty: nobody
	Effect        Effect
	Reason        string
}

// WhatIf runs Plan on the inventory as it is and as it would be, and compares.
func WhatIf(in Input, change Change) []Outcome {
	before := owners(settle(in))
	changed := settle(change.apply(in))
	after := owners(changed)
	reasons := map[catalog.AssignmentID]string{}
	wanted := map[catalog.AssignmentID]bool{}
	for _, d := range Plan(changed) {
		id := catalog.AssignmentID{Model: d.Model, Slot: d.Slot}
		reasons[id] = d.Reason
		wanted[id] = d.Owner != "" || d.Unsatisfied
	}
	for _, a := range changed.Assignments { // what had to make room
		id := catalog.AssignmentID{Model: a.Model, Slot: a.Slot}
		if a.Owner == "" && before[id] != "" && !wanted[id] {
			wanted[id], reasons[id] = true, a.Reason
		}
	}
	var out []Outcome
	for id, ok := range wanted {
		if ok {
			out = append(out, Outcome{
				Model: id.Model, Slot: id.Slot, Before: before[id], After: after[id],
				Effect: effect(before[id], after[id]), Reason: reasons[id],
			})
		}
	}
	slices.SortFunc(out, func(a, b Outcome) int {
		return cmp.Or(strings.Compare(a.Model, b.Model), cmp.Compare(a.Slot, b.Slot))
	})
	return out
}

func effect(before, after string) Effect {
	switch {
	case before == after && before != "":
		return Kept
	case before != "" && after != "":
		return Moved
	case before != "":
		return Lost
	case after != "":
		return Gained
	}
	return Missing
}

func (c Change) apply(in Input) Input {
	out := Input{Models: slices.Clone(in.Models), Nodes: slices.Clone(in.Nodes), Assignments: in.Assignments}
	for i := range out.Nodes {
		if slices.Contains(c.Without, out.Nodes[i].ID) {
			out.Nodes[i].Live, out.Nodes[i].Gone = false, true
		}
	}
	if c.Add != nil {
		out.Nodes = append(out.Nodes, *c.Add)
	}
	if c.Model != nil {
		out.Models = slices.DeleteFunc(out.Models, func(m catalog.Model) bool { return m.ID == c.Model.ID })
		out.Models = append(out.Models, *c.Model)
	}
	for i := range out.Nodes {
		if c.Everywhere {
			p := &out.Nodes[i].Presence
			p.Weights = append(slices.Clone(p.Weights), c.Model.Source.Digest)
		}
	}
	return out
}

// settleRounds is how often a plan is carried out on paper: what makes room in
// one round lets another in in the next.
const settleRounds = 4

// settle carries plans out on paper until they ask for nothing more.
func settle(in Input) Input {
	for range settleRounds {
		wrote := false
		for _, d := range Plan(in) {
			if d.Write == nil {
				continue
			}
			wrote = true
			in.Assignments = slices.DeleteFunc(slices.Clone(in.Assignments), func(a catalog.Assignment) bool {
				return a.Model == d.Model && a.Slot == d.Slot
			})
			in.Assignments = append(in.Assignments, *d.Write)
		}
		nodes, ended := released(in)
		if !wrote && !ended {
			return in
		}
		in.Nodes = nodes
	}
	return in
}

// released are the nodes after the replicas of vacant slots ended and gave their
// memory back.
func released(in Input) (nodes []Node, ended bool) {
	p := newPlanner(in)
	nodes = slices.Clone(in.Nodes)
	for i, n := range nodes {
		presence := &nodes[i].Presence
		presence.Replicas = nil
		presence.Inventory.Devices = devices(n)
		for _, r := range n.Presence.Replicas {
			a, known := p.owned[catalog.AssignmentID{Model: r.Model, Slot: r.Slot}]
			if !known || a.Owner != "" {
				presence.Replicas = append(presence.Replicas, r)
				continue
			}
			ended = true
			m, _ := p.model(r.Model)
			giveBack(presence.Inventory.Devices, r, need(m, n))
		}
	}
	return nodes, ended
}

func giveBack(devices []catalog.Device, r catalog.ReplicaStatus, bytes int64) {
	for i, d := range devices {
		if d.MemoryFree != nil && on(r, d) {
			free := *d.MemoryFree + bytes
			devices[i].MemoryFree = &free
		}
	}
}

func owners(in Input) map[catalog.AssignmentID]string {
	out := make(map[catalog.AssignmentID]string, len(in.Assignments))
	for _, a := range in.Assignments {
		out[catalog.AssignmentID{Model: a.Model, Slot: a.Slot}] = a.Owner
	}
	return out
}
