package node

import (
	"errors"
	"maps"
	"slices"
	"time"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/mesh/placement"
	"llmgw/router"
)

// view is the mesh at one moment, as every reader of this node sees it. It is
// immutable and replaced whole by the control loop.
type view struct {
	own         catalog.Presence // this node's
	models      []catalog.Model
	routes      []catalog.Route
	providers   []*catalog.Provider // that can be used, those that are asked first at the start; without hosts
	hosts       []router.Host       // that live nodes sponsor
	nodes       []mesh.Node         // self first, with its freshest presence
	assignments []catalog.Assignment
	decisions   []placement.Decision
	input       placement.Input
	names       map[string]string // node names by peer ID
	settings    map[string]catalog.NodeSettings
	withheld    map[string]bool // folded names that are the mesh's and cannot be read
	outlived    map[string]bool // models that requests of this node waited for when they were unloaded
}

// name is what a person calls a node.
func (v *view) name(id string) string {
	if name := v.names[id]; name != "" {
		return name
	}
	return id
}

// node finds a member by peer ID or, without case, by name.
func (v *view) node(idOrName string) (mesh.Node, bool) {
	for _, n := range v.nodes {
		if n.ID == idOrName {
			return n, true
		}
	}
	i := slices.IndexFunc(v.nodes, func(n mesh.Node) bool { return catalog.FoldName(n.Name) == catalog.FoldName(idOrName) })
	if i < 0 {
		return mesh.Node{}, false
	}
	return v.nodes[i], true
}

func (v *view) decision(model string) (placement.Decision, bool) {
	i := slices.IndexFunc(v.decisions, func(d placement.Decision) bool { return d.Model == model })
	if i < 0 {
		return placement.Decision{}, false
	}
	return v.decisions[i], true
}

// isLive says whether requests may be sent to a node.
func isLive(n mesh.Node) bool { return n.State == mesh.StateSelf || n.State == mesh.StateLive }

// holdDown is how long a dead node keeps its slots: longer than a daemon takes
// to come back with its engines still loaded.
const holdDown = 20 * time.Second

// deadSince remembers on this node's own clock how long others have been dead.
type deadSince map[string]time.Time

// gone says which nodes have been dead for longer than the hold-down.
func (d deadSince) gone(nodes []mesh.Node, now time.Time) map[string]bool {
	out := map[string]bool{}
	maps.DeleteFunc(d, func(id string, _ time.Time) bool {
		return !slices.ContainsFunc(nodes, func(n mesh.Node) bool { return n.ID == id })
	})
	for _, n := range nodes {
		if n.State != mesh.StateDead {
			delete(d, n.ID)
			out[n.ID] = n.State == mesh.StateLeft
			continue
		}
		if _, ok := d[n.ID]; !ok {
			d[n.ID] = now
		}
		out[n.ID] = now.Sub(d[n.ID]) >= holdDown
	}
	return out
}

// look makes a new view the current one. The control loop does in each round,
// and whoever wrote for an admin before it acknowledges: what was written is
// seen by the next request.
func (n *Node) look() (*view, error) {
	n.looking.Lock()
	defer n.looking.Unlock()
	v, err := n.newView()
	if err != nil {
		return nil, err
	}
	n.view.Store(v)
	return v, nil
}

// newView reads everything that a decision depends on. It is called with
// looking held.
func (n *Node) newView() (*view, error) {
	models, err := n.catalog.Models()
	if err != nil {
		return nil, err
	}
	assignments, err := n.catalog.Assignments()
	if err != nil {
		return nil, err
	}
	routes, err := n.catalog.Routes()
	if err != nil {
		return nil, err
	}
	providers, err := n.readProviders()
	if err != nil {
		return nil, err
	}
	own := n.presence(models)
	v := &view{own: own, models: models, routes: routes, assignments: assignments, nodes: n.mesh.Nodes(), names: map[string]string{}, outlived: n.wants.outlived(models)}
	said, err := n.catalog.NodeSettings()
	if err != nil {
		return nil, err
	}
	v.settings = said
	gone := n.dead.gone(v.nodes, n.now())
	for i := range v.nodes {
		if v.nodes[i].State == mesh.StateSelf {
			own.Addresses = v.nodes[i].Presence.Addresses // the mesh's to know
			v.nodes[i].Presence = own
		}
		member := v.nodes[i]
		v.names[member.ID] = member.Name
		v.input.Nodes = append(v.input.Nodes, placement.Node{
			ID: member.ID, Name: member.Name, Live: isLive(member), Gone: gone[member.ID], Presence: member.Presence,
			Settings: said[member.ID],
		})
	}
	v.hosts = v.readHosts(providers)
	v.providers = slices.DeleteFunc(providers, func(p *catalog.Provider) bool { return p.Sponsor != "" })
	badModels, err1 := n.catalog.UnreadableModels()
	badSlots, err2 := n.catalog.UnreadableSlots()
	var err3 error
	v.withheld, err3 = n.catalog.Withheld()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	v.input.Models, v.input.Assignments, v.input.Unreadable = models, assignments, placement.Unreadable{Models: badModels, Slots: badSlots}
	v.decisions = placement.Plan(v.input)
	return v, nil
}
