package placement

import (
	"iter"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
)

// planner is the working state of one Plan.
type planner struct {
	models []catalog.Model
	nodes  []Node
	before map[catalog.AssignmentID]catalog.Assignment // as stored
	owned  map[catalog.AssignmentID]catalog.Assignment // with what was given since
	slots  map[string]int                              // slots owned or given, by node
	on     map[place]int                               // the same, by device
	spoken map[place]int64                             // bytes promised to replicas that hold none yet
	// claimed are bytes of what leaves a device that slots wait for, reserved whose.
	claimed    map[place]int64
	reserved   map[catalog.AssignmentID]reservation
	unreadable Unreadable
	// evicted are slots that must make room, with the reason.
	evicted map[catalog.AssignmentID]string
}

// place is a device of a node.
type place struct{ node, device string }

func newPlanner(in Input) *planner {
	p := &planner{
		claimed: map[place]int64{}, reserved: map[catalog.AssignmentID]reservation{},
		models:  slices.SortedFunc(slices.Values(in.Models), func(a, b catalog.Model) int { return strings.Compare(a.ID, b.ID) }),
		nodes:   slices.SortedFunc(slices.Values(in.Nodes), func(a, b Node) int { return strings.Compare(a.ID, b.ID) }),
		before:  make(map[catalog.AssignmentID]catalog.Assignment, len(in.Assignments)),
		owned:   make(map[catalog.AssignmentID]catalog.Assignment, len(in.Assignments)),
		slots:   map[string]int{},
		on:      map[place]int{},
		spoken:  map[place]int64{},
		evicted: map[catalog.AssignmentID]string{}, unreadable: in.Unreadable,
	}
	for _, a := range in.Assignments {
		id := catalog.AssignmentID{Model: a.Model, Slot: a.Slot}
		p.before[id], p.owned[id] = a, a
		p.count(a, 1)
	}
	return p
}

// promise gives a slot to its new owner.
func (p *planner) promise(a catalog.Assignment) {
	p.withdraw(a)
	p.owned[catalog.AssignmentID{Model: a.Model, Slot: a.Slot}] = a
	p.count(a, 1)
}

// withdraw takes a slot from whoever owns it.
func (p *planner) withdraw(a catalog.Assignment) {
	id := catalog.AssignmentID{Model: a.Model, Slot: a.Slot}
	if owned := p.owned[id]; owned.Owner != "" {
		p.count(owned, -1)
		p.owned[id] = catalog.Assignment{Model: a.Model, Slot: a.Slot, Epoch: owned.Epoch}
	}
}

// count adds a slot to what its owner has, or takes it off, and with it, until the
// replica is Ready with the weights of now, the memory that measured free memory does
// not show yet.
func (p *planner) count(a catalog.Assignment, by int) {
	n, ok := p.node(a.Owner)
	if !ok {
		return
	}
	at := place{a.Owner, deviceID(a.Device)}
	p.slots[a.Owner] += by
	p.on[at] += by
	m, known := p.model(a.Model)
	if r, _ := n.Presence.Replica(a.Model, a.Slot); known && !(r.State == catalog.ReplicaReady && isOf(m, r)) {
		p.spoken[at] += int64(by) * need(m, n)
	}
}

// need is the memory of one replica of m on n; 0 if no engine there runs it.
func need(m catalog.Model, n Node) int64 {
	profile, _, ok := ChooseProfile(m, n.Presence.Engines)
	if !ok {
		return 0
	}
	return m.MemoryNeed(profile)
}

func (p *planner) model(id string) (catalog.Model, bool) {
	i := slices.IndexFunc(p.models, func(m catalog.Model) bool { return m.ID == id })
	if i < 0 {
		return catalog.Model{}, false
	}
	return p.models[i], true
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

// slot is who owns a slot as things are.
func (p *planner) slot(model string, slot int) catalog.Assignment {
	a := p.owned[catalog.AssignmentID{Model: model, Slot: slot}]
	a.Model, a.Slot = model, slot
	return a
}

// slotsOf are the slots of m that are wanted or that have a row, in order. A row may
// name any number, so they are not counted up to the highest.
func (p *planner) slotsOf(m catalog.Model) []int {
	var slots []int
	for slot := range p.wanted(m) {
		slots = append(slots, slot)
	}
	for id := range p.owned {
		if id.Model == m.ID && (id.Slot < 0 || id.Slot >= p.wanted(m)) {
			slots = append(slots, id.Slot)
		}
	}
	slices.Sort(slots)
	return slots
}

// wanted is how many replicas of m there should be now: Scale.Min, and up to
// Scale.Max as many as the requests of a node that is heard wait for. Those that
// began before m was unloaded do not count.
func (p *planner) wanted(m catalog.Model) int {
	wanted := max(min(m.Scale.Min, catalog.MaxReplicas), 0)
	if m.State == catalog.ModelStopped {
		return wanted
	}
	for w := range p.wants(m) {
		wanted = max(wanted, min(max(w.Replicas, 1), m.Scale.Max, catalog.MaxReplicas))
	}
	return wanted
}

// waited is how long requests have waited for m, in seconds.
func (p *planner) waited(m catalog.Model) (longest int64) {
	for w := range p.wants(m) {
		longest = max(longest, w.Waited)
	}
	return longest
}

// wants are what nodes that are heard want of m.
func (p *planner) wants(m catalog.Model) iter.Seq[catalog.Want] {
	return func(yield func(catalog.Want) bool) {
		for _, n := range p.nodes {
			for _, w := range n.Presence.Wants {
				if n.Live && w.Asks(m) && !yield(w) {
					return
				}
			}
		}
	}
}
