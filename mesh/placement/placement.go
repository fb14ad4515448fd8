// Package placement decides which node owns which slot of a model. It is pure:
// catalog, live inventory and current assignments in, wanted assignments out,
// each with a reason that a person can read. The same inputs in any order give
// the same answer on every node, and an answer that was carried out asks for
// nothing more.
//
// Order of choice: the pin, else the owner that has it (sticky: nothing moves
// while it works), else among the nodes that have the labels, the engine, the
// file and the room the one with the fewest slots of this model, then of all,
// ties by rendezvous hash. What cannot be satisfied is an answer with a reason, not a loop.
//
// Labels are a rule, not a wish: an owner that lost them loses the slot though
// it works. A cordon only keeps new replicas away.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"llmgw/mesh/catalog"

	"github.com/cespare/xxhash/v2"
)

// Node is a member as placement sees it.
type Node struct {
	ID   string
	Name string
	// Live nodes may get slots.
	Live bool
	// Gone nodes lose their slots: they left, or were dead for longer than the
	// hold-down. A node that is neither live nor gone keeps what it owns.
	Gone     bool
	Presence catalog.Presence // the last one heard
	Settings catalog.NodeSettings
}

// Input is everything that a decision depends on.
type Input struct {
	Models      []catalog.Model
	Nodes       []Node
	Assignments []catalog.Assignment
}

// Decision is what should hold for one slot of a model.
type Decision struct {
	Model string
	Slot  int
	Owner string // peer ID; empty: nobody
	// Reason says why this owner, or why nobody.
	Reason string
	// Unsatisfied: the slot is wanted and no node can have it.
	Unsatisfied bool
	// Write is the assignment to store when it differs from what is stored.
	Write *catalog.Assignment
}

// Plan decides every slot that is wanted or owned, ordered by model and slot.
func Plan(in Input) []Decision {
	p := newPlanner(in)
	var decisions []Decision
	for _, m := range p.models {
		for slot := range max(m.Scale.Min, p.highestSlot(m.ID)+1) {
			decisions = append(decisions, p.decide(m, slot))
		}
	}
	return append(decisions, p.orphans()...)
}

// Steward is the live node that writes a model's assignments; empty without
// live nodes.
func Steward(model string, nodes []Node) string {
	best := ""
	for _, n := range nodes {
		if !n.Live {
			continue
		}
		if best == "" || rendezvous(model, 0, n.ID) > rendezvous(model, 0, best) {
			best = n.ID
		}
	}
	return best
}

// rendezvous ranks nodes for a slot: each node computes the same order, and a
// node that comes or goes moves only its own slots.
func rendezvous(model string, slot int, node string) uint64 {
	return xxhash.Sum64String(fmt.Sprintf("%d:%s/%d/%s", len(model), model, slot, node))
}

type planner struct {
	models []catalog.Model
	nodes  []Node
	owned  map[catalog.AssignmentID]catalog.Assignment
	slots  map[string]int   // slots owned or given, by node
	spoken map[string]int64 // bytes promised to replicas that hold none yet, by node
}

func newPlanner(in Input) *planner {
	p := &planner{
		models: slices.SortedFunc(slices.Values(in.Models), func(a, b catalog.Model) int { return strings.Compare(a.ID, b.ID) }),
		nodes:  slices.SortedFunc(slices.Values(in.Nodes), func(a, b Node) int { return strings.Compare(a.ID, b.ID) }),
		owned:  make(map[catalog.AssignmentID]catalog.Assignment, len(in.Assignments)),
		slots:  map[string]int{},
		spoken: map[string]int64{},
	}
	for _, a := range in.Assignments {
		p.owned[catalog.AssignmentID{Model: a.Model, Slot: a.Slot}] = a
		p.promise(a.Owner, a.Model, a.Slot)
	}
	return p
}

// promise counts a slot for its owner and, until the replica is Ready, the
// memory that measured free memory does not show yet.
func (p *planner) promise(owner, model string, slot int) {
	n, ok := p.node(owner)
	if !ok {
		return
	}
	p.slots[owner]++
	if r, ok := n.Presence.Replica(model, slot); ok && r.State == catalog.ReplicaReady {
		return
	}
	i := slices.IndexFunc(p.models, func(m catalog.Model) bool { return m.ID == model })
	if i < 0 {
		return
	}
	if profile, _, ok := ChooseProfile(p.models[i], n.Presence.Engines); ok {
		p.spoken[owner] += p.models[i].MemoryNeed(profile)
	}
}

func (p *planner) node(id string) (Node, bool) {
	i := slices.IndexFunc(p.nodes, func(n Node) bool { return n.ID == id })
	if i < 0 {
		return Node{}, false
	}
	return p.nodes[i], true
}

// name is what a reason calls a node.
func (p *planner) name(id string) string {
	if n, ok := p.node(id); ok && n.Name != "" {
		return n.Name
	}
	return id
}

func (p *planner) highestSlot(model string) int {
	highest := -1
	for id := range p.owned {
		if id.Model == model {
			highest = max(highest, id.Slot)
		}
	}
	return highest
}

func (p *planner) decide(m catalog.Model, slot int) Decision {
	current := p.owned[catalog.AssignmentID{Model: m.ID, Slot: slot}]
	current.Model, current.Slot = m.ID, slot
	switch {
	case m.State == catalog.ModelStopped:
		return p.vacate(current, "the model is stopped")
	case slot >= m.Scale.Min:
		return p.vacate(current, fmt.Sprintf("not wanted: scale.min is %d", m.Scale.Min))
	case m.Pin != "":
		return p.decidePinned(m, current)
	}
	if owner, ok := p.node(current.Owner); ok && !owner.Gone && p.mayStay(m, current, owner) {
		return p.keepLongest(m, current, owner)
	}
	return p.place(m, current)
}

// keepLongest keeps the owner, unless after a partition another node serves the
// slot too and has served it for longer: that one's cache is the warmer.
func (p *planner) keepLongest(m catalog.Model, current catalog.Assignment, owner Node) Decision {
	best, since := owner, servesSince(m, current.Slot, owner)
	if since == 0 {
		return p.keep(current, current.Reason)
	}
	for _, n := range p.nodes {
		if other := servesSince(m, current.Slot, n); other != 0 && other < since && m.Labels.Refuses(n.Settings.Labels) == "" {
			best, since = n, other
		}
	}
	if best.ID == owner.ID {
		return p.keep(current, current.Reason)
	}
	return p.give(m, current, best, p.name(best.ID)+" has served it for longer")
}

// servesSince is when a live node began to serve a slot, on its own clock; zero
// if it does not.
func servesSince(m catalog.Model, slot int, n Node) int64 {
	if r, ok := n.Presence.Replica(m.ID, slot); ok && n.Live && r.State == catalog.ReplicaReady {
		return r.Since
	}
	return 0
}

// mayStay: an owner that serves, or still could, keeps its slot. One that is
// not heard keeps it too until it is gone.
func (p *planner) mayStay(m catalog.Model, current catalog.Assignment, owner Node) bool {
	if m.Labels.Refuses(owner.Settings.Labels) != "" {
		return false
	}
	if !owner.Live || !owner.Presence.Complete {
		return true
	}
	if r, ok := owner.Presence.Replica(m.ID, current.Slot); ok && r.State == catalog.ReplicaReady {
		return true
	}
	return lacks(m, owner) == ""
}

func (p *planner) decidePinned(m catalog.Model, current catalog.Assignment) Decision {
	pin, known := p.node(m.Pin)
	switch {
	case !known || pin.Gone:
		return p.unsatisfied(current, fmt.Sprintf("pinned to %s, which is away; it loads when that node is back", p.name(m.Pin)))
	case current.Owner == m.Pin:
		if !p.mayStay(m, current, pin) {
			return p.unsatisfied(current, fmt.Sprintf("pinned to %s: %s", p.name(m.Pin), cmp.Or(m.Labels.Refuses(pin.Settings.Labels), lacks(m, pin))))
		}
		return p.keep(current, current.Reason)
	case !pin.Live:
		return p.unsatisfied(current, fmt.Sprintf("pinned to %s, which does not answer now", p.name(m.Pin)))
	}
	if why := p.unfit(m, pin); why != "" {
		return p.unsatisfied(current, fmt.Sprintf("pinned to %s: %s", p.name(m.Pin), why))
	}
	return p.give(m, current, pin, "pinned to "+p.name(m.Pin))
}

func (p *planner) place(m catalog.Model, current catalog.Assignment) Decision {
	var fit []Node
	var refused []string
	for _, n := range p.nodes {
		if n.Gone {
			continue
		}
		if why := p.unfit(m, n); why != "" {
			refused = append(refused, fmt.Sprintf("%s: %s", p.name(n.ID), why))
			continue
		}
		fit = append(fit, n)
	}
	if len(fit) == 0 && len(refused) == 0 {
		return p.unsatisfied(current, "no node is there to serve it")
	}
	if len(fit) == 0 {
		return p.unsatisfied(current, "no node can serve it: "+strings.Join(refused, "; "))
	}
	best := slices.MinFunc(fit, func(a, b Node) int {
		return cmp.Or(
			cmp.Compare(p.same(m.ID, a.ID), p.same(m.ID, b.ID)), // two replicas on one box are lost together
			cmp.Compare(p.slots[a.ID], p.slots[b.ID]),
			cmp.Compare(rendezvous(m.ID, current.Slot, b.ID), rendezvous(m.ID, current.Slot, a.ID)),
			strings.Compare(a.ID, b.ID))
	})
	reason := fmt.Sprintf("%s has the engine, the file and the room", p.name(best.ID))
	if len(fit) > 1 {
		reason += fmt.Sprintf(", and the fewest slots of %d such nodes", len(fit))
	}
	return p.give(m, current, best, reason)
}

// same counts the slots of a model that a node owns or was given.
func (p *planner) same(model, node string) int {
	n := 0
	for id, a := range p.owned {
		if id.Model == model && a.Owner == node {
			n++
		}
	}
	return n
}

func (p *planner) keep(current catalog.Assignment, reason string) Decision {
	return Decision{Model: current.Model, Slot: current.Slot, Owner: current.Owner, Reason: reason}
}

func (p *planner) give(m catalog.Model, current catalog.Assignment, n Node, reason string) Decision {
	write := catalog.Assignment{Model: m.ID, Slot: current.Slot, Owner: n.ID, Epoch: current.Epoch + 1, Reason: reason}
	p.promise(n.ID, m.ID, current.Slot)
	p.owned[catalog.AssignmentID{Model: m.ID, Slot: current.Slot}] = write
	return Decision{Model: m.ID, Slot: current.Slot, Owner: n.ID, Reason: reason, Write: &write}
}

func (p *planner) vacate(current catalog.Assignment, reason string) Decision {
	d := Decision{Model: current.Model, Slot: current.Slot, Reason: reason}
	if current.Owner != "" {
		d.Write = &catalog.Assignment{Model: current.Model, Slot: current.Slot, Epoch: current.Epoch + 1, Reason: reason}
	}
	return d
}

func (p *planner) unsatisfied(current catalog.Assignment, reason string) Decision {
	d := p.vacate(current, reason)
	d.Unsatisfied = true
	return d
}

// orphans vacates slots of models that the catalog no longer has.
func (p *planner) orphans() []Decision {
	var decisions []Decision
	for id, a := range p.owned {
		known := slices.ContainsFunc(p.models, func(m catalog.Model) bool { return m.ID == id.Model })
		if !known && a.Owner != "" {
			decisions = append(decisions, p.vacate(a, "the model is no longer in the catalog"))
		}
	}
	slices.SortFunc(decisions, func(a, b Decision) int {
		return cmp.Or(strings.Compare(a.Model, b.Model), cmp.Compare(a.Slot, b.Slot))
	})
	return decisions
}
