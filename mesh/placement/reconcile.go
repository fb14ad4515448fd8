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

// Reconcile compares what self holds with what it owns. A replica that lost
// its slot to another node is released only once that node serves, and not
// when the slot is about to come back, so that a model never has no replica
// because two nodes changed their minds.
func Reconcile(self string, in Input) []Action {
	p := newPlanner(in)
	planned := map[catalog.AssignmentID]string{}
	for _, d := range Plan(in) {
		planned[catalog.AssignmentID{Model: d.Model, Slot: d.Slot}] = d.Owner
	}
	me, _ := p.node(self)
	var actions []Action
	for _, a := range in.Assignments {
		if a.Owner == self {
			actions = append(actions, p.own(me, a))
		}
	}
	for _, r := range me.Presence.Replicas {
		id := catalog.AssignmentID{Model: r.Model, Slot: r.Slot}
		a := p.owned[id]
		if a.Owner == self || planned[id] == self {
			continue
		}
		if a.Owner == "" {
			actions = append(actions, Action{Model: r.Model, Slot: r.Slot, Epoch: a.Epoch, Reason: vacantReason(a)})
			continue
		}
		if winner, ok := p.node(a.Owner); ok && serves(winner, a) {
			reason := fmt.Sprintf("%s serves it now", p.name(a.Owner))
			actions = append(actions, Action{Model: r.Model, Slot: r.Slot, Epoch: a.Epoch, Reason: reason})
		}
	}
	return actions
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
