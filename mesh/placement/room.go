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
	bytes int64  // that are free when it is gone
	why   string // it cannot go now
}

// makeRoom looks at nodes that want nothing but memory for a slot of m. Where
// memory is about to become free it waits for that; else it takes slots away on
// the node where the fewest have to go; and else it waits for those that can go
// later. The answer says what the slot waits for; empty: no room can be made.
func (p *planner) makeRoom(m catalog.Model, current catalog.Assignment, full []Node) string {
	var best []victim
	var at Node
	var on catalog.Device
	turn := ""
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
			now, later := p.onDemand(n, d, current.Slot < m.Scale.Min)
			victims := enough(now, missing)
			if victims != nil && (best == nil || len(victims) < len(best)) {
				best, at, on = victims, n, d
			}
			if all := slices.Concat(now, later); turn == "" && enough(all, missing) != nil {
				turn = fmt.Sprintf("waits for its turn on %s: %s", p.name(n.ID), whys(later))
			}
		}
	}
	if best == nil {
		return turn
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
		if p.owned[id].Owner == n.ID || p.unreadable.has(id) || !on(r, d) || r.PID == 0 && r.State != catalog.ReplicaReady {
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

// onDemand are the slots on a device that requests asked for, used longest ago first:
// those that can make room now, and those that can later, with why. What was just
// loaded makes room at once only for what is wanted always.
func (p *planner) onDemand(n Node, d catalog.Device, always bool) (now, later []victim) {
	for id, a := range p.owned {
		m, known := p.model(id.Model)
		r, begun := n.Presence.Replica(id.Model, id.Slot)
		if !begun {
			r.Device = a.Device
		}
		if !known || a.Owner != n.ID || id.Slot < m.Scale.Min || !on(r, d) {
			continue
		}
		v := victim{id: id, used: r.Used, bytes: need(m, n), why: p.notYet(m, r, begun, always)}
		if begun && !isOf(m, r) { // what was promised to its weights of now is free, too
			v.bytes += need(m, n)
		}
		if v.why == "" {
			now = append(now, v)
		} else if !begun || r.State == catalog.ReplicaReady || loads(r.State) { // the others have failed
			later = append(later, v)
		}
	}
	for _, all := range [][]victim{now, later} {
		slices.SortFunc(all, func(a, b victim) int {
			return cmp.Or(cmp.Compare(a.used, b.used), strings.Compare(a.id.Model, b.id.Model), cmp.Compare(a.id.Slot, b.id.Slot))
		})
	}
	return now, later
}

// notYet says why a slot that requests asked for cannot make room now; empty if it
// can.
func (p *planner) notYet(m catalog.Model, r catalog.ReplicaStatus, begun, always bool) string {
	switch {
	case !begun || r.State != catalog.ReplicaReady:
		return "is being loaded"
	case r.Slot < p.wanted(m):
		return "is waited for"
	case r.InFlight > 0:
		return "is busy"
	case r.Fresh && !always:
		return "was just loaded"
	}
	return ""
}

func whys(later []victim) string {
	texts := make([]string, len(later))
	for i, v := range later {
		texts[i] = v.id.Model + " " + v.why
	}
	return strings.Join(texts, ", ")
}

// enough picks the first of all that free so many bytes; nil if they are too few.
func enough(all []victim, missing int64) []victim {
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
