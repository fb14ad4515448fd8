package router

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/relay"
)

const (
	// hostPrefix begins the name by which a sponsor is asked for a model of a host,
	// HOST/NAME behind it. No model's name has it.
	hostPrefix = "@"
	// lastHosts puts hosts that are used last before providers that are.
	lastHosts = lastTier + 10*catalog.MaxProviderPriority
	// coldHop is what a host takes to load a model, in comparing it with others.
	coldHop = 10 * time.Second
)

// Host is a host as its sponsor sees it.
type Host struct {
	Provider *catalog.Provider
	Status   catalog.HostStatus
	Peer     string // the sponsor
	Node     string // its name
	Local    bool   // it is this node
	Labels   map[string]string
}

// Replica is a host as a replica of a model, which is the mesh's if held is set,
// and else what a client asked for. False: it has no such model, is down, or is
// not used for models that the mesh holds.
func (h Host) Replica(m catalog.Model, held bool) (Replica, bool) {
	p := h.Provider
	if !h.Status.Up || held && p.Held == catalog.HeldNever {
		return Replica{}, false
	}
	names := []string{m.Name}
	if held {
		names = append(names, m.Aliases...)
	}
	for _, name := range names {
		theirs, ok := p.HostMatch(h.Status, name)
		if !ok {
			continue
		}
		r := Replica{
			Peer: "provider/" + p.ID, Node: p.ID, Model: m.ID, Provider: p, Theirs: theirs.Name, Pattern: HostModel(p.ID, theirs.Name),
			Context: theirs.Context, Slots: h.Status.Slots, KVTokens: h.Status.KVTokens, KVUse: h.Status.KVUse, InFlight: h.Status.InFlight,
			Priority: p.Priority, Labels: h.Labels,
		}
		if held && p.Held == catalog.HeldLast {
			r.Priority += lastHosts
		}
		if !p.Direct {
			r.Sponsored, r.Peer, r.Node, r.Local = true, h.Peer, h.Node, h.Local
		}
		if theirs.Cold {
			r.Hop = coldHop
		}
		for _, a := range catalog.NativeAbilities() {
			if !slices.Contains(p.Native, a) {
				r.Lacks = append(r.Lacks, a)
			}
		}
		return r, true
	}
	return Replica{}, false
}

// WithHosts adds the hosts to a view that have its model. A view of a name that
// the mesh has no model of comes into being by them.
func WithHosts(view ModelView, hosts []Host) ModelView {
	for _, h := range hosts {
		if c, ok := h.Replica(view.Model, !view.Outside); ok && view.Model.State != catalog.ModelStopped {
			view.Replicas = append(view.Replicas[:len(view.Replicas):len(view.Replicas)], c)
		}
	}
	return view
}

// HostModel is what a sponsor is asked for, to have it pass a request on.
func HostModel(host, theirs string) string { return hostPrefix + host + "/" + theirs }

// SplitHostModel undoes HostModel; false: it is a model of the mesh.
func SplitHostModel(model string) (host, theirs string, ok bool) {
	rest, ok := strings.CutPrefix(model, hostPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// shownModel is a model as clients know it.
func shownModel(model string) string {
	if _, theirs, ok := SplitHostModel(model); ok {
		return theirs
	}
	return model
}

var errHostMoved = errors.New("the host answers with a redirect, which is not followed")

// startTarget sends call to an engine of this node, or to one of a host that it
// sponsors.
func (r *Router) startTarget(ctx context.Context, t relay.Target, call *relay.Call, wait relay.Wait) (*relay.Exchange, error) {
	if t.Host == nil {
		return r.engines.Start(ctx, t, call, wait)
	}
	var key catalog.Secret
	if len(t.Host.Keys) > 0 {
		key = t.Host.Keys[0].Secret
	}
	x, err := r.outside.conns.Start(ctx, t.Host, key, "", call, wait)
	if err != nil {
		return nil, err
	}
	keepAllowed(x.Header)
	if x.Status >= 300 && x.Status < 400 {
		x.Close()
		return nil, &relay.BrokenError{Stage: relay.StageFirstByte, Err: errHostMoved}
	}
	return x, nil
}

// EnterHost counts a request of this node's at a host, unless it has as many as it
// may; leave ends it.
func (r *Router) EnterHost(p *catalog.Provider) (leave func(), ok bool) { return r.outside.enter(p) }

// GetOutside asks a host for a document; see relay.Outside.Get.
func (r *Router) GetOutside(ctx context.Context, p *catalog.Provider, path string, limit int) (int, []byte, error) {
	return r.outside.conns.Get(ctx, p, path, limit)
}
