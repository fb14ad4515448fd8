// Package placement decides which node owns which slot of a model. It is pure:
// catalog, live inventory and current assignments in, wanted assignments out,
// each with a reason that a person can read. The same inputs in any order give
// the same answer on every node, and an answer that was carried out asks for
// nothing more.
//
// A model's slots below Scale.Min are wanted always, those below Scale.Max while
// a node's presence wants them, for requests that began after the model was unloaded
// last. One that was wanted so stays with its owner until its holder says that it is
// idle, until the model is unloaded, or until its memory is needed: then the one
// that was used longest ago goes, and never one that is busy, nor for requests one
// that was just loaded for others. Who waits for longest has the first turn.
//
// Order of choice: the pin, else the owner that has it (sticky: nothing moves
// while it works), else who serves it already, else among the nodes that have
// the labels, the engine, the file and the room the one with the fewest slots of
// this model, then the one whose engine is preferred, then the one with the fewest
// slots of all, ties by rendezvous hash. Room is counted for each
// device; memory that could not be measured is unknown, not zero. What cannot be
// satisfied is an answer with a reason, not a loop.
//
// Labels are a rule, not a wish: an owner that lost them loses the slot though
// it works. A cordon, of a node or of one of its devices, only keeps new replicas
// away. A node that is drained gives away what others can have, and keeps the rest:
// what is pinned to it, and what no other has the room, the file or the engine for.
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
	// Unreadable are not among them.
	Unreadable Unreadable
}

// Unreadable is what the catalog has and this version cannot read. Nothing is decided of
// it, and what runs of it goes on.
type Unreadable struct {
	Models []string // IDs
	Slots  []catalog.AssignmentID
}

// has says whether a slot is one that nothing is known of.
func (u Unreadable) has(id catalog.AssignmentID) bool {
	return slices.Contains(u.Models, id.Model) || slices.Contains(u.Slots, id)
}

// Decision is what should hold for one slot of a model.
type Decision struct {
	Model string
	Slot  int
	Owner string // peer ID; empty: nobody
	// Device of the owner that the slot is counted on; empty: the CPU.
	Device string
	// Demand: requests ask for it, not Scale.Min.
	Demand bool
	// Reason says why this owner, or why nobody.
	Reason string
	// Unsatisfied: the slot is wanted and no node can have it.
	Unsatisfied bool
	// Waits: it is Unsatisfied until something ends that ends by itself.
	Waits bool
	// Unread: what is stored of it cannot be read, so that who runs it goes on.
	Unread bool
	// Write is the assignment to store when it differs from what is stored.
	Write *catalog.Assignment
}

// Plan decides every slot that is wanted or owned, ordered by model and slot.
func Plan(in Input) []Decision { return newPlanner(in).plan() }

// plan decides what stays and what goes first, since what goes leaves room and load
// behind, and then what needs a place.
func (p *planner) plan() []Decision {
	decisions := p.orphans()
	var open []vacancy
	for _, m := range p.models {
		for _, slot := range p.slotsOf(m) {
			current := p.slot(m.ID, slot)
			if p.unreadable.has(catalog.AssignmentID{Model: m.ID, Slot: slot}) {
				decisions = append(decisions, Decision{Model: m.ID, Slot: slot, Unsatisfied: true, Unread: true, Reason: "whose node it is cannot be read here (llmgw status)"})
				continue
			}
			if d, settled := p.settled(m, current); settled {
				decisions = append(decisions, d)
				continue
			}
			p.withdraw(current)
			open = append(open, vacancy{m, current, p.leaves(m, current)})
		}
	}
	slices.SortStableFunc(open, p.compareVacancies)
	for _, v := range open {
		decisions = append(decisions, p.fill(v))
	}
	for i, d := range decisions {
		if reason, ok := p.evicted[d.id()]; ok {
			decisions[i] = p.vacate(p.before[d.id()], reason)
		}
	}
	slices.SortFunc(decisions, func(a, b Decision) int {
		return cmp.Or(strings.Compare(a.Model, b.Model), cmp.Compare(a.Slot, b.Slot))
	})
	return decisions
}

// vacancy is a slot that needs an owner, with who had it.
type vacancy struct {
	model   catalog.Model
	current catalog.Assignment
	leaves  bool // it works, on a node that is drained
}

// compareVacancies orders what needs a place: what works somewhere last, those with
// a pin, which have no other choice, before those that may go elsewhere, then what
// is wanted always, then what requests have waited for longest.
func (p *planner) compareVacancies(a, b vacancy) int {
	return cmp.Or(
		compareBool(a.leaves, b.leaves),
		-compareBool(a.model.Pin != "", b.model.Pin != ""),
		-compareBool(a.always(), b.always()),
		-cmp.Compare(p.waited(a.model), p.waited(b.model)))
}

// always says whether Scale.Min wants the slot.
func (v vacancy) always() bool { return v.current.Slot < v.model.Scale.Min }

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (d Decision) id() catalog.AssignmentID {
	return catalog.AssignmentID{Model: d.Model, Slot: d.Slot}
}

// Steward is the live node that writes a model's assignments; empty without one that
// can: a node that stops, or that has just started, writes none.
func Steward(model string, nodes []Node) string {
	best := ""
	for _, n := range nodes {
		if !n.Live || n.Presence.Stopping || !n.Presence.Complete {
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
