package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
)

// settled decides a slot that stays where it is, or that nobody may have; false if
// it needs an owner.
func (p *planner) settled(m catalog.Model, current catalog.Assignment) (Decision, bool) {
	switch {
	case m.State == catalog.ModelStopped:
		return p.vacate(current, "the model is stopped"), true
	case current.Slot < 0 || current.Slot >= p.wanted(m):
		d := p.linger(m, current)
		if d.Owner != "" && d.Owner == current.Owner && p.leaves(m, current) {
			return Decision{}, false
		}
		return d, true
	case m.Pin != "":
		return p.settledPin(m, current)
	}
	if owner, ok := p.node(current.Owner); ok && !owner.Gone && p.mayStay(m, current, owner) == "" && !p.leaves(m, current) {
		return p.keepLongest(m, current, owner), true
	}
	return Decision{}, false
}

// leaves says whether a slot could stay but for its owner's being drained. One that
// is not heard is not drained: who knows what it serves?
func (p *planner) leaves(m catalog.Model, current catalog.Assignment) bool {
	owner, ok := p.node(current.Owner)
	return ok && owner.Live && owner.Settings.Draining && m.Pin == "" && p.mayStay(m, current, owner) == ""
}

// fill finds an owner for a slot that needs one.
func (p *planner) fill(v vacancy) Decision {
	switch {
	case v.leaves:
		return p.moveAway(v.model, v.current)
	case v.model.Pin != "":
		return p.fillPinned(v.model, v.current)
	}
	return p.place(v.model, v.current)
}

// moveAway gives a slot of a node that is drained to another that can have it as
// things are, or ends it where no request needs it just now; without such a node it
// stays, as what works is not ended for a wish.
func (p *planner) moveAway(m catalog.Model, current catalog.Assignment) Decision {
	fit, _, refused := p.candidates(m, current.Slot, current.Owner)
	owner := p.name(current.Owner)
	if len(fit) == 0 {
		p.promise(current)
		d := p.keep(m, current)
		if d.Write == nil {
			d.Reason = fmt.Sprintf("stays on %s, which is being drained: no other node can take it: %s", owner, orNone(refused))
		}
		return d
	}
	if from, _ := p.node(current.Owner); current.Slot >= p.wanted(m) && from.inFlight(m.ID, current.Slot) == 0 {
		return p.vacate(current, owner+" is being drained, and no request asks for it")
	}
	return p.give(m, current, fit[0].Node, fit[0].device, owner+" is being drained; "+p.reason(m, fit))
}

func orNone(refused []string) string {
	if len(refused) == 0 {
		return "there is none"
	}
	return strings.Join(refused, "; ")
}

// linger decides a slot that nobody asks for now. One that requests had asked for
// stays where it works until it is idle.
func (p *planner) linger(m catalog.Model, current catalog.Assignment) Decision {
	owner, ok := p.node(current.Owner)
	switch {
	case !current.Demand || current.Slot < 0:
		return p.vacate(current, fmt.Sprintf("not wanted: scale.min is %d", m.Scale.Min))
	case current.After < m.Unloaded:
		return p.vacate(current, "unloaded")
	case current.Slot >= m.Scale.Max:
		return p.vacate(current, fmt.Sprintf("not wanted: scale.max is %d", m.Scale.Max))
	case m.Pin != "" && m.Pin != current.Owner:
		return p.vacate(current, fmt.Sprintf("the model is pinned to %s, and no request asks for it", p.name(m.Pin)))
	case !ok || owner.Gone:
		return p.vacate(current, fmt.Sprintf("%s is away, and no request asks for it", p.name(current.Owner)))
	}
	if why := p.mayStay(m, current, owner); why != "" {
		return p.vacate(current, fmt.Sprintf("%s: %s", p.name(current.Owner), why))
	}
	if r, ok := owner.Presence.Replica(m.ID, current.Slot); ok && owner.Live && r.State == catalog.ReplicaReady && r.Idle && r.InFlight == 0 && m.Scale.Idle > 0 {
		return p.vacate(current, fmt.Sprintf("no request for %s (scale.idle)", m.Scale.Idle))
	}
	return p.keepLongest(m, current, owner)
}

// inFlight is how many requests a node's replica has.
func (n Node) inFlight(model string, slot int) int {
	r, _ := n.Presence.Replica(model, slot)
	return r.InFlight
}

// keepLongest keeps the owner, unless after a partition another node that may have the
// slot serves it too and has served it for longer: that one's cache is the warmer.
func (p *planner) keepLongest(m catalog.Model, current catalog.Assignment, owner Node) Decision {
	best, since := owner, servesSince(m, current.Slot, owner)
	if since == 0 {
		return p.keep(m, current)
	}
	for _, n := range p.nodes {
		if other := servesSince(m, current.Slot, n); other != 0 && other < since && holds(m, current.Slot, n) && p.closed(m, n) == "" {
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
	return ok && n.Live && r.State == catalog.ReplicaReady && isOf(m, r)
}

// isOf says whether a replica has the weights of m; one that does not tell has.
func isOf(m catalog.Model, r catalog.ReplicaStatus) bool {
	return r.Digest == "" || r.Digest == m.Source.Digest
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

// settledPin is settled for a model with a pin.
func (p *planner) settledPin(m catalog.Model, current catalog.Assignment) (Decision, bool) {
	pin, known := p.node(m.Pin)
	switch {
	case !known || pin.Gone:
		return p.unsatisfied(current, fmt.Sprintf("pinned to %s, which is away; it loads when that node is back", p.name(m.Pin))), true
	case current.Owner == m.Pin && p.mayStay(m, current, pin) == "":
		return p.keep(m, current), true
	case !pin.Live:
		return p.unsatisfied(current, fmt.Sprintf("pinned to %s, which does not answer now", p.name(m.Pin))), true
	}
	return Decision{}, false
}

func (p *planner) fillPinned(m catalog.Model, current catalog.Assignment) Decision {
	pin, _ := p.node(m.Pin)
	device, why := p.fit(m, current.Slot, pin)
	if why.text == "" {
		return p.give(m, current, pin, device, "pinned to "+p.name(m.Pin))
	}
	if why.memory {
		if waiting := p.makeRoom(m, current, []Node{pin}); waiting != "" {
			return p.waits(current, waiting)
		}
	}
	return p.unsatisfied(current, fmt.Sprintf("pinned to %s: %s", p.name(m.Pin), why.text))
}

// candidate is a node that could be given a slot, with the device it would use.
type candidate struct {
	Node
	device   string
	resident bool
	profile  catalog.Profile
}

// candidates are the nodes but one that a slot could be given to, the best first, those
// that lack nothing but memory, and why each of the others not; but is empty for all.
func (p *planner) candidates(m catalog.Model, slot int, but string) (fit []candidate, full []Node, refused []string) {
	for _, n := range p.nodes {
		if n.Gone || n.ID == but {
			continue
		}
		device, why := p.fit(m, slot, n)
		switch {
		case why.text == "":
			profile, _, _ := ChooseProfile(m, n.Presence.Engines)
			fit = append(fit, candidate{n, device, holds(m, slot, n), profile})
			continue
		case why.memory:
			full = append(full, n)
		}
		refused = append(refused, fmt.Sprintf("%s: %s", p.name(n.ID), why.text))
	}
	slices.SortFunc(fit, func(a, b candidate) int { return p.compare(m, slot, a, b) })
	return fit, full, refused
}

func (p *planner) place(m catalog.Model, current catalog.Assignment) Decision {
	fit, full, refused := p.candidates(m, current.Slot, "")
	if len(fit) == 0 {
		if waiting := p.makeRoom(m, current, full); waiting != "" {
			return p.waits(current, waiting)
		}
		if len(refused) == 0 {
			return p.unsatisfied(current, "no node is there to serve it")
		}
		return p.unsatisfied(current, "no node can serve it: "+strings.Join(refused, "; "))
	}
	return p.give(m, current, fit[0].Node, fit[0].device, p.reason(m, fit))
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
		compareEngines(m, a.profile, b.profile),
		cmp.Compare(p.slots[a.ID], p.slots[b.ID]),
		cmp.Compare(rendezvous(m.ID, slot, b.ID), rendezvous(m.ID, slot, a.ID)),
		strings.Compare(a.ID, b.ID))
}

// reason says of sorted candidates why the first is chosen: what sets it apart from the
// second.
func (p *planner) reason(m catalog.Model, fit []candidate) string {
	best := fit[0]
	if best.resident {
		return p.name(best.ID) + " serves it already"
	}
	reason := fmt.Sprintf("%s has the engine, the file and the room", p.name(best.ID))
	if best.device != "" {
		reason += " on " + best.device
	}
	alike := 0 // but for their load
	for _, c := range fit {
		if p.same(m.ID, c.ID) == p.same(m.ID, best.ID) && compareEngines(m, c.profile, best.profile) == 0 {
			alike++
		}
	}
	switch {
	case alike > 1:
		reason += fmt.Sprintf(", and the fewest slots of %d such nodes", alike)
	case len(fit) > 1 && p.same(m.ID, fit[1].ID) > p.same(m.ID, best.ID):
		reason += fmt.Sprintf(", and the fewest replicas of it of %d such nodes", len(fit))
	case len(fit) > 1:
		reason += fmt.Sprintf(", and of %d such nodes the preferred engine, %s", len(fit), best.profile.Engine)
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

// keep leaves a slot where it is. Who wants it is written anew when that changed:
// one that is wanted always now would end when it is idle, and one that requests
// alone want now would end with the last of them, or by an unload that they came
// after.
func (p *planner) keep(m catalog.Model, current catalog.Assignment) Decision {
	current.Reason = cmp.Or(current.Reason, p.name(current.Owner)+" has it already")
	d := Decision{Model: current.Model, Slot: current.Slot, Owner: current.Owner, Device: current.Device, Demand: current.Demand, Reason: current.Reason}
	if now := wantedBy(m, current); now.Demand != current.Demand || now.After > current.After {
		now.Epoch, now.Steward = current.Epoch+1, ""
		d.Demand, d.Reason, d.Write = now.Demand, now.Reason, &now
	}
	return d
}

// onRequest begins the reason of a slot that nobody wants always.
const onRequest = "requests ask for it; "

// wantedBy is an assignment with who wants it as things are: Scale.Min, or requests
// that came after the last unload.
func wantedBy(m catalog.Model, a catalog.Assignment) catalog.Assignment {
	a.Reason = strings.TrimPrefix(a.Reason, onRequest)
	a.Demand, a.After = a.Slot >= m.Scale.Min, 0
	if a.Demand {
		a.Reason, a.After = onRequest+a.Reason, m.Unloaded
	}
	return a
}

func (p *planner) give(m catalog.Model, current catalog.Assignment, n Node, device, reason string) Decision {
	write := wantedBy(m, catalog.Assignment{Model: m.ID, Slot: current.Slot, Owner: n.ID, Epoch: current.Epoch + 1, Device: device, Reason: reason})
	p.promise(write)
	return Decision{Model: m.ID, Slot: current.Slot, Owner: n.ID, Device: device, Demand: write.Demand, Reason: write.Reason, Write: &write}
}

func (p *planner) vacate(current catalog.Assignment, reason string) Decision {
	d := Decision{Model: current.Model, Slot: current.Slot, Reason: reason}
	if current.Owner != "" {
		p.withdraw(current)
		d.Write = &catalog.Assignment{Model: current.Model, Slot: current.Slot, Epoch: current.Epoch + 1, Reason: reason}
	}
	return d
}

func (p *planner) unsatisfied(current catalog.Assignment, reason string) Decision {
	d := p.vacate(current, reason)
	d.Unsatisfied = true
	return d
}

func (p *planner) waits(current catalog.Assignment, reason string) Decision {
	d := p.unsatisfied(current, reason)
	d.Waits = true
	return d
}

// orphans vacates slots of models that the catalog no longer has. Those of one that
// cannot be read stay.
func (p *planner) orphans() []Decision {
	var decisions []Decision
	for id, a := range p.owned {
		_, known := p.model(id.Model)
		switch {
		case known || a.Owner == "":
		case p.unreadable.has(id):
			decisions = append(decisions, Decision{Model: a.Model, Slot: a.Slot, Owner: a.Owner, Device: a.Device, Demand: a.Demand, Reason: "the model cannot be read here (llmgw status)"})
		default:
			decisions = append(decisions, p.vacate(a, "the model is no longer in the catalog"))
		}
	}
	return decisions
}
