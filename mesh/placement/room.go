package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
)

// victim is a slot that could make room.
type victim struct {
	id    catalog.AssignmentID
	used  int64
	bytes int64 // that are free when it is gone
}

// makeRoom looks at nodes that want nothing but memory for a slot of m. Where
// memory is about to become free it waits for that; else it takes slots away on
// the node where the fewest have to go. The answer says what the slot waits for;
// empty: no room can be made.
func (p *planner) makeRoom(m catalog.Model, current catalog.Assignment, full []Node) string {
	var best []victim
	var at Node
	var on catalog.Device
	id := catalog.AssignmentID{Model: m.ID, Slot: current.Slot}
	for _, n := range p.byRank(m, current.Slot, full) {
		for _, d := range p.usable(m, n) {
			room, known := p.room(n, d)
			if !known || slices.Contains(n.Settings.CordonedDevices, d.ID) {
				continue
			}
			missing := need(m, n) - room - p.leaving(n, d)
			if missing <= 0 {
				p.reserve(id, n, d)
				return fmt.Sprintf("waits for memory on %s that is about to be free", p.name(n.ID))
			}
			if missing <= p.loading(n, d) {
				return fmt.Sprintf("waits until it is known what is free on %s, which loads another model", p.name(n.ID))
			}
			victims := p.enough(n, d, missing)
			if victims != nil && (best == nil || len(victims) < len(best)) {
				best, at, on = victims, n, d
			}
		}
	}
	if best == nil {
		return ""
	}
	var names []string
	for _, v := range best {
		p.evict(v.id, fmt.Sprintf("not used for longest, and %s needs its memory", m.Name))
		names = append(names, v.id.Model)
	}
	p.reserve(id, at, on)
	return fmt.Sprintf("waits for memory on %s: %s makes room", p.name(at.ID), strings.Join(names, ", "))
}

// reservation is what a slot waits for on a device: memory that leaves, and of what is
// free already the rest.
type reservation struct {
	at            place
	leaving, free int64
}

// reserve keeps memory for a slot that waits for it: who is filled after could take
// what is free of it, and what made room would have gone for nothing.
func (p *planner) reserve(id catalog.AssignmentID, n Node, d catalog.Device) {
	m, _ := p.model(id.Model)
	r := reservation{at: place{n.ID, d.ID}, leaving: min(max(p.leaving(n, d), 0), need(m, n))}
	r.free = need(m, n) - r.leaving
	p.reserved[id] = r
	p.spoken[r.at] += r.free
	p.claimed[r.at] += r.leaving
}

func (p *planner) byRank(m catalog.Model, slot int, nodes []Node) []Node {
	return slices.SortedFunc(slices.Values(nodes), func(a, b Node) int {
		return cmp.Or(cmp.Compare(rendezvous(m.ID, slot, b.ID), rendezvous(m.ID, slot, a.ID)), strings.Compare(a.ID, b.ID))
	})
}

// leaving is the memory of replicas that hold some and whose slot is no longer
// their node's, without what others wait for already.
func (p *planner) leaving(n Node, d catalog.Device) (bytes int64) {
	bytes = -p.claimed[place{n.ID, d.ID}]
	for _, r := range n.Presence.Replicas {
		id := catalog.AssignmentID{Model: r.Model, Slot: r.Slot}
		if p.owned[id].Owner == n.ID || !on(r, d) || r.PID == 0 && r.State != catalog.ReplicaReady {
			continue
		}
		if m, ok := p.model(r.Model); ok {
			bytes += need(m, n)
		}
	}
	return bytes
}

// loading is the memory of replicas that load: how much of it measured free memory
// lacks already is not known, and room counts all of it once more.
func (p *planner) loading(n Node, d catalog.Device) (bytes int64) {
	for _, r := range n.Presence.Replicas {
		owned := p.owned[catalog.AssignmentID{Model: r.Model, Slot: r.Slot}].Owner == n.ID
		if !owned || !on(r, d) || r.PID == 0 || !loads(r.State) {
			continue
		}
		if m, ok := p.model(r.Model); ok {
			bytes += need(m, n)
		}
	}
	return bytes
}

// on says whether a replica runs on a device; one that does not tell is on the CPU.
func on(r catalog.ReplicaStatus, d catalog.Device) bool {
	return r.Device == d.ID || r.Device == "" && d.Kind == catalog.DeviceCPU
}

// enough picks slots on a device that free so many bytes, those used longest ago
// first; nil if all that may go are too few.
func (p *planner) enough(n Node, d catalog.Device, missing int64) []victim {
	var all []victim
	for _, r := range n.Presence.Replicas {
		id := catalog.AssignmentID{Model: r.Model, Slot: r.Slot}
		m, known := p.model(r.Model)
		a := p.owned[id]
		if !known || a.Owner != n.ID || !a.Demand || r.Slot < p.wanted(m) || r.InFlight > 0 || r.State != catalog.ReplicaReady || !on(r, d) {
			continue
		}
		v := victim{id, r.Used, need(m, n)}
		if !isOf(m, r) { // what was promised to its weights of now is free, too
			v.bytes += need(m, n)
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b victim) int {
		return cmp.Or(cmp.Compare(a.used, b.used), strings.Compare(a.id.Model, b.id.Model), cmp.Compare(a.id.Slot, b.id.Slot))
	})
	for i, v := range all {
		if missing -= v.bytes; missing <= 0 {
			return all[:i+1]
		}
	}
	return nil
}

// evict takes a slot away at once: its memory counts as leaving for those that are
// filled after, which neither ask it for room again nor count it as load.
func (p *planner) evict(id catalog.AssignmentID, reason string) {
	p.evicted[id] = reason
	p.withdraw(p.owned[id])
}
