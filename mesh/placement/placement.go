// Package placement decides which node owns which slot of a model. It is pure:
// catalog, live inventory and current assignments in, wanted assignments out,
// each with a reason that a person can read. The same inputs in any order give
// the same answer on every node, and an answer that was carried out asks for
// nothing more.
//
// A model's slots below Scale.Min are wanted always, those below Scale.Max while
// a node's presence wants them. One that was wanted so stays with its owner until
// its holder says that it is idle, or until its memory is needed: then the one
// that was used longest ago goes, and never one that is busy.
//
// Order of choice: the pin, else the owner that has it (sticky: nothing moves
// while it works), else who serves it already, else among the nodes that have
// the labels, the engine, the file and the room the one with the fewest slots of
// this model, then of all, ties by rendezvous hash. Room is counted for each
// device; memory that could not be measured is unknown, not zero. What cannot be
// satisfied is an answer with a reason, not a loop.
//
// Labels are a rule, not a wish: an owner that lost them loses the slot though
// it works. A cordon, of a node or of one of its devices, only keeps new replicas
// away.
package placement

import (
	"fmt"

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
	// Device of the owner that the slot is counted on; empty: the CPU.
	Device string
	// Demand: requests ask for it, not Scale.Min.
	Demand bool
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
		for slot := range max(p.wanted(m), p.highestSlot(m.ID)+1) {
			decisions = append(decisions, p.decide(m, slot))
		}
	}
	for i, d := range decisions { // room was made by a model that came later
		if reason, ok := p.evicted[d.id()]; ok {
			decisions[i] = p.vacate(p.before[d.id()], reason)
		}
	}
	return append(decisions, p.orphans()...)
}

func (d Decision) id() catalog.AssignmentID {
	return catalog.AssignmentID{Model: d.Model, Slot: d.Slot}
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
