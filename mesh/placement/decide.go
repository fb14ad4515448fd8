package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
)

func (p *planner) decide(m catalog.Model, slot int) Decision {
	id := catalog.AssignmentID{Model: m.ID, Slot: slot}
	current := p.owned[id]
	current.Model, current.Slot = m.ID, slot
	switch {
	case m.State == catalog.ModelStopped:
		return p.vacate(current, "the model is stopped")
	case p.evicted[id] != "":
		return p.vacate(current, p.evicted[id])
	case slot >= p.wanted(m):
		return p.linger(m, current)
	case m.Pin != "":
		return p.decidePinned(m, current)
	}
	if owner, ok := p.node(current.Owner); ok && !owner.Gone && p.mayStay(m, current, owner) == "" {
		return p.keepLongest(m, current, owner)
	}
	return p.place(m, current)
}

// linger decides a slot that nobody asks for now. One that requests had asked for
// stays where it works until it is idle.
func (p *planner) linger(m catalog.Model, current catalog.Assignment) Decision {
	owner, ok := p.node(current.Owner)
	switch {
	case !current.Demand || current.Slot >= m.Scale.Max || m.Pin != "" && m.Pin != current.Owner:
		return p.vacate(current, fmt.Sprintf("not wanted: scale.min is %d", m.Scale.Min))
	case !ok || owner.Gone:
		return p.vacate(current, fmt.Sprintf("%s is away, and no request asks for it", p.name(current.Owner)))
	}
	if why := p.mayStay(m, current, owner); why != "" {
		return p.vacate(current, fmt.Sprintf("%s: %s", p.name(current.Owner), why))
	}
	if r, ok := owner.Presence.Replica(m.ID, current.Slot); ok && owner.Live && r.State == catalog.ReplicaReady && r.Idle && r.InFlight == 0 {
		return p.vacate(current, fmt.Sprintf("no request for %s (scale.idle)", m.Scale.Idle))
	}
	return p.keepLongest(m, current, owner)
}

// keepLongest keeps the owner, unless after a partition another node serves the
// slot too and has served it for longer: that one's cache is the warmer.
func (p *planner) keepLongest(m catalog.Model, current catalog.Assignment, owner Node) Decision {
	best, since := owner, servesSince(m, current.Slot, owner)
	if since == 0 {
		return p.keep(m, current)
	}
	for _, n := range p.nodes {
		if other := servesSince(m, current.Slot, n); other != 0 && other < since && m.Labels.Refuses(n.Settings.Labels) == "" {
			best, since = n, other
		}
	}
	if best.ID == owner.ID {
		return p.keep(m, current)
	}
	return p.give(m, current, best, residentOn(m, current.Slot, best), p.name(best.ID)+" has served it for longer")
}

// servesSince is when a live node began to serve a slot, on its own clock; zero
// if it does not.
func servesSince(m catalog.Model, slot int, n Node) int64 {
	if r, ok := n.Presence.Replica(m.ID, slot); ok && n.Live && r.State == catalog.ReplicaReady {
		return r.Since
	}
	return 0
}

// holds says whether a live node serves a slot of m with the weights of now.
func holds(m catalog.Model, slot int, n Node) bool {
	r, ok := n.Presence.Replica(m.ID, slot)
	return ok && n.Live && r.State == catalog.ReplicaReady && (r.Digest == "" || r.Digest == m.Source.Digest)
}

// residentOn is the device that a node's replica of a slot runs on.
func residentOn(m catalog.Model, slot int, n Node) string {
	r, _ := n.Presence.Replica(m.ID, slot)
	for _, d := range devices(n) {
		if d.ID == r.Device && d.Kind != catalog.DeviceCPU {
			return d.ID
		}
	}
	return ""
}

// mayStay says why an owner cannot keep its slot; empty if it can. One that
// serves, or still could, keeps it. One that is not heard keeps it too until it
// is gone.
func (p *planner) mayStay(m catalog.Model, current catalog.Assignment, owner Node) string {
	if why := m.Labels.Refuses(owner.Settings.Labels); why != "" {
		return why
	}
	if !owner.Live || !owner.Presence.Complete {
		return ""
	}
	if r, ok := owner.Presence.Replica(m.ID, current.Slot); ok && r.State == catalog.ReplicaReady {
		return ""
	}
	if current.Device != "" && !slices.ContainsFunc(devices(owner), func(d catalog.Device) bool { return d.ID == current.Device }) {
		return fmt.Sprintf("its device %s is no longer there", current.Device)
	}
	return lacks(m, owner)
}

func (p *planner) decidePinned(m catalog.Model, current catalog.Assignment) Decision {
	pin, known := p.node(m.Pin)
	switch {
	case !known || pin.Gone:
		return p.unsatisfied(current, fmt.Sprintf("pinned to %s, which is away; it loads when that node is back", p.name(m.Pin)))
	case current.Owner == m.Pin:
		if why := p.mayStay(m, current, pin); why != "" {
			return p.unsatisfied(current, fmt.Sprintf("pinned to %s: %s", p.name(m.Pin), why))
		}
		return p.keep(m, current)
	case !pin.Live:
		return p.unsatisfied(current, fmt.Sprintf("pinned to %s, which does not answer now", p.name(m.Pin)))
	}
	device, why := p.fit(m, current.Slot, pin)
	if why.text == "" {
		return p.give(m, current, pin, device, "pinned to "+p.name(m.Pin))
	}
	if waiting := p.makeRoom(m, current, []Node{pin}); waiting != "" {
		return p.unsatisfied(current, waiting)
	}
	return p.unsatisfied(current, fmt.Sprintf("pinned to %s: %s", p.name(m.Pin), why.text))
}

// candidate is a node that could be given a slot, with the device it would use.
type candidate struct {
	Node
	device   string
	resident bool
}

func (p *planner) place(m catalog.Model, current catalog.Assignment) Decision {
	var fit []candidate
	var full []Node
	var refused []string
	for _, n := range p.nodes {
		if n.Gone {
			continue
		}
		device, why := p.fit(m, current.Slot, n)
		switch {
		case why.text == "":
			fit = append(fit, candidate{n, device, holds(m, current.Slot, n)})
			continue
		case why.memory:
			full = append(full, n)
		}
		refused = append(refused, fmt.Sprintf("%s: %s", p.name(n.ID), why.text))
	}
	if len(fit) == 0 {
		if waiting := p.makeRoom(m, current, full); waiting != "" {
			return p.unsatisfied(current, waiting)
		}
		if len(refused) == 0 {
			return p.unsatisfied(current, "no node is there to serve it")
		}
		return p.unsatisfied(current, "no node can serve it: "+strings.Join(refused, "; "))
	}
	best := slices.MinFunc(fit, func(a, b candidate) int { return p.compare(m, current.Slot, a, b) })
	return p.give(m, current, best.Node, best.device, p.reason(best, len(fit)))
}

// compare orders candidates, the better first.
func (p *planner) compare(m catalog.Model, slot int, a, b candidate) int {
	if a.resident != b.resident { // nothing has to be loaded
		if a.resident {
			return -1
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(p.same(m.ID, a.ID), p.same(m.ID, b.ID)), // two replicas on one box are lost together
		cmp.Compare(p.slots[a.ID], p.slots[b.ID]),
		cmp.Compare(rendezvous(m.ID, slot, b.ID), rendezvous(m.ID, slot, a.ID)),
		strings.Compare(a.ID, b.ID))
}

func (p *planner) reason(best candidate, fit int) string {
	if best.resident {
		return p.name(best.ID) + " serves it already"
	}
	reason := fmt.Sprintf("%s has the engine, the file and the room", p.name(best.ID))
	if best.device != "" {
		reason += " on " + best.device
	}
	if fit > 1 {
		reason += fmt.Sprintf(", and the fewest slots of %d such nodes", fit)
	}
	return reason
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

// keep leaves a slot where it is. One that requests had asked for and that is
// wanted always now is written so, or it would end when it is idle.
func (p *planner) keep(m catalog.Model, current catalog.Assignment) Decision {
	d := Decision{Model: current.Model, Slot: current.Slot, Owner: current.Owner, Device: current.Device, Demand: current.Demand, Reason: current.Reason}
	if current.Demand && current.Slot < m.Scale.Min {
		write := current
		write.Demand, write.Epoch, write.Steward = false, current.Epoch+1, ""
		d.Demand, d.Write = false, &write
	}
	return d
}

func (p *planner) give(m catalog.Model, current catalog.Assignment, n Node, device, reason string) Decision {
	write := catalog.Assignment{Model: m.ID, Slot: current.Slot, Owner: n.ID, Epoch: current.Epoch + 1, Device: device, Demand: current.Slot >= m.Scale.Min}
	if write.Demand {
		reason = "requests ask for it; " + reason
	}
	write.Reason = reason
	p.promise(write)
	p.owned[catalog.AssignmentID{Model: m.ID, Slot: current.Slot}] = write
	return Decision{Model: m.ID, Slot: current.Slot, Owner: n.ID, Device: device, Demand: write.Demand, Reason: reason, Write: &write}
}

func (p *planner) vacate(current catalog.Assignment, reason string) Decision {
	d := Decision{Model: current.Model, Slot: current.Slot, Reason: reason}
	if current.Owner != "" {
		p.owned[d.id()] = catalog.Assignment{Model: current.Model, Slot: current.Slot, Epoch: current.Epoch}
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
		if _, known := p.model(id.Model); !known && a.Owner != "" {
			decisions = append(decisions, p.vacate(a, "the model is no longer in the catalog"))
		}
	}
	slices.SortFunc(decisions, func(a, b Decision) int {
		return cmp.Or(strings.Compare(a.Model, b.Model), cmp.Compare(a.Slot, b.Slot))
	})
	return decisions
}
