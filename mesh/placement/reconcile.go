package placement

import (
	"fmt"

	"llmgw/mesh/catalog"
)

// Action is what one node has to do to follow the assignments.
type Action struct {
	Model string
	Slot  int
	Epoch uint64
	Run   bool // else release
	// Device of self to run on; empty: the CPU.
	Device string
	// Reason of a release, for a person.
	Reason string
}

// Reconcile compares what self holds with what it owns. A ready replica that lost
// its slot to another node is released only once that node serves, and none when
// the slot is about to come back, so that a model never has no replica because two
// nodes changed their minds. Until what is released gave its memory back, nothing is
// begun that needs it: the assignments were made without knowing of it, when self
// began it after it was taken away. What cannot be read is neither begun nor released.
func Reconcile(self string, in Input) []Action {
	p := newPlanner(in)
	planned := map[catalog.AssignmentID]string{}
	for _, d := range Plan(in) {
		planned[catalog.AssignmentID{Model: d.Model, Slot: d.Slot}] = d.Owner
	}
	me, _ := p.node(self)
	var actions []Action
	for _, a := range in.Assignments {
		id := catalog.AssignmentID{Model: a.Model, Slot: a.Slot}
		if a.Owner == self && !p.unreadable.has(id) && !p.lacksRoom(me, a) {
			actions = append(actions, p.own(me, a))
		}
	}
	for _, r := range me.Presence.Replicas {
		id := catalog.AssignmentID{Model: r.Model, Slot: r.Slot}
		a := p.owned[id]
		if a.Owner == self || planned[id] == self || p.unreadable.has(id) {
			continue
		}
		if a.Owner == "" {
			actions = append(actions, Action{Model: r.Model, Slot: r.Slot, Epoch: a.Epoch, Reason: vacantReason(a)})
			continue
		}
		winner, known := p.node(a.Owner)
		release := Action{Model: r.Model, Slot: r.Slot, Epoch: a.Epoch}
		switch {
		case known && serves(winner, a):
			release.Reason = fmt.Sprintf("%s serves it now", p.name(a.Owner))
		case known && r.State != catalog.ReplicaReady:
			release.Reason = fmt.Sprintf("%s has the slot now, and nobody is served here", p.name(a.Owner))
		default:
			continue
		}
		actions = append(actions, release)
	}
	return actions
}

// lacksRoom says whether a replica that is to begin has to wait for what leaves its
// device.
func (p *planner) lacksRoom(me Node, a catalog.Assignment) bool {
	if _, begun := me.Presence.Replica(a.Model, a.Slot); begun {
		return false
	}
	for _, d := range devices(me) {
		if d.ID == deviceID(a.Device) {
			room, known := p.room(me, d)
			return known && room < 0 && p.leaving(me, d) > 0
		}
	}
	return false
}

// own checks the labels once more where the replica would run: what another
// node decided from old settings is not carried out.
func (p *planner) own(me Node, a catalog.Assignment) Action {
	action := Action{Model: a.Model, Slot: a.Slot, Epoch: a.Epoch, Run: true, Device: a.Device}
	for _, m := range p.models {
		if m.ID != a.Model {
			continue
		}
		if why := m.Labels.Refuses(me.Settings.Labels); why != "" {
			action.Run, action.Reason = false, why
		}
	}
	return action
}

// serves says whether requests are routed to the owner of a slot: not to one that stops.
func serves(n Node, a catalog.Assignment) bool {
	r, ok := n.Presence.Replica(a.Model, a.Slot)
	return ok && n.Live && !n.Presence.Stopping && r.State == catalog.ReplicaReady
}

func vacantReason(a catalog.Assignment) string {
	if a.Reason != "" {
		return a.Reason
	}
	return "it has no assignment"
}
