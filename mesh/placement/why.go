package placement

import (
	"cmp"
	"math"
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
	stored, planned := newPlanner(in), newPlanner(in)
	var out []Explanation
	for _, d := range planned.plan() {
		if d.Model == model {
			out = append(out, planned.explain(d, stored, Steward(model, in.Nodes)))
		}
	}
	return out
}

// explain tells of each node how it stands to a slot, all others being as planned.
func (p *planner) explain(d Decision, stored *planner, steward string) Explanation {
	current := stored.slot(d.Model, d.Slot)
	e := Explanation{Decision: d, Steward: steward, Epoch: current.Epoch}
	m, known := p.model(d.Model)
	if !known {
		return e
	}
	given := p.slot(d.Model, d.Slot)
	own := p.reserved[d.id()]
	p.withdraw(given) // what the slot itself takes is there for it
	p.spoken[own.at] -= own.free
	for _, n := range p.nodes {
		e.Candidates = append(e.Candidates, Candidate{
			Node: n.ID, Why: p.whyNot(m, current, n), Slots: stored.slots[n.ID],
			Owns: n.ID == current.Owner, Serves: servesSince(m, d.Slot, n) != 0,
		})
	}
	p.spoken[own.at] += own.free
	if given.Owner != "" {
		p.promise(given)
	}
	return e
}

// whyNot says why a node cannot have a slot; empty if it could.
func (p *planner) whyNot(m catalog.Model, current catalog.Assignment, n Node) string {
	switch {
	case n.Gone:
		return "left, or has not answered for long"
	case m.Pin != "" && m.Pin != n.ID:
		return "the model is pinned to " + p.name(m.Pin)
	case n.Live && n.ID == current.Owner && (m.Pin == n.ID || !n.Settings.Draining) && p.mayStay(m, current, n) == "":
		return ""
	}
	_, why := p.fit(m, current.Slot, n)
	return why.text
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

// WhatIf carries out what is decided now, makes the change, carries that out, and
// compares.
func WhatIf(in Input, change Change) []Outcome {
	now := settle(in)
	before := owners(now)
	changed := settle(change.apply(now))
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
	out := Input{Models: slices.Clone(in.Models), Nodes: slices.Clone(in.Nodes), Assignments: in.Assignments, Unreadable: in.Unreadable}
	for i := range out.Nodes {
		if slices.Contains(c.Without, out.Nodes[i].ID) {
			out.Nodes[i].Live, out.Nodes[i].Gone = false, true
		}
	}
	if c.Add != nil {
		out.Nodes = slices.DeleteFunc(out.Nodes, func(n Node) bool { return n.ID == c.Add.ID })
		out.Nodes = append(out.Nodes, *c.Add)
	}
	if c.Model != nil {
		out.Models = slices.DeleteFunc(out.Models, func(m catalog.Model) bool { return m.ID == c.Model.ID })
		out.Models = append(out.Models, *c.Model)
	}
	if c.Everywhere && c.Model != nil {
		for i := range out.Nodes {
			p := &out.Nodes[i].Presence
			p.Weights = append(slices.Clone(p.Weights), c.Model.Source.Digest)
		}
	}
	return out
}

// settle carries plans out on paper until they ask for nothing more: what makes room
// in one round lets another in in the next. Each round gives or takes a slot, starts a
// replica or ends one, so their number bounds the rounds.
func settle(in Input) Input {
	rounds := 4
	for _, m := range in.Models {
		rounds += 4 * (newPlanner(in).wanted(m) + 1)
	}
	for range rounds + 4*len(in.Assignments) {
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
		nodes, acted := followed(in)
		if !wrote && !acted {
			return in
		}
		in.Nodes = nodes
	}
	return in
}

// followed are the nodes after each live one did what Reconcile tells it: what it runs
// is loaded, and what it ended gave its memory back.
func followed(in Input) (nodes []Node, acted bool) {
	p := newPlanner(in)
	nodes = slices.Clone(in.Nodes)
	for i, n := range nodes {
		if !n.Live {
			continue
		}
		presence := &nodes[i].Presence
		presence.Replicas, presence.Inventory.Devices = slices.Clone(n.Presence.Replicas), devices(n)
		for _, a := range Reconcile(n.ID, in) {
			m, _ := p.model(a.Model)
			acted = follow(presence, a, need(m, n)) || acted
		}
	}
	return nodes, acted
}

// follow carries one action out on paper. What has failed for good stays as it is.
func follow(p *catalog.Presence, a Action, bytes int64) (acted bool) {
	i := slices.IndexFunc(p.Replicas, func(r catalog.ReplicaStatus) bool { return r.Model == a.Model && r.Slot == a.Slot })
	switch {
	case !a.Run && i >= 0:
		if r := p.Replicas[i]; r.PID != 0 || r.State == catalog.ReplicaReady {
			giveBack(p.Inventory.Devices, r, bytes)
		}
		p.Replicas = slices.Delete(p.Replicas, i, i+1)
	case a.Run && i < 0:
		r := catalog.ReplicaStatus{Model: a.Model, Slot: a.Slot, State: catalog.ReplicaReady, Device: deviceID(a.Device), Since: math.MaxInt64, Used: math.MaxInt64}
		giveBack(p.Inventory.Devices, r, -bytes)
		p.Replicas = append(p.Replicas, r)
	case a.Run && loads(p.Replicas[i].State):
		if p.Replicas[i].PID == 0 {
			giveBack(p.Inventory.Devices, p.Replicas[i], -bytes)
		}
		p.Replicas[i].State, p.Replicas[i].Since, p.Replicas[i].Used = catalog.ReplicaReady, math.MaxInt64, math.MaxInt64
	default:
		return false
	}
	return true
}

func loads(s catalog.ReplicaState) bool {
	return s == catalog.ReplicaStarting || s == catalog.ReplicaLoading || s == catalog.ReplicaWarming || s == catalog.ReplicaBackoff
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
