package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmgw/engines/process"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router"
	"llmgw/router/relay"
)

// routes is the view as the router sees it.
type routes struct{ *Node }

// Resolve finds a model by name or alias, or providers that answer to the name. The name
// of a model or route that cannot be read is the mesh's all the same: it goes to none.
func (r routes) Resolve(name string) (router.ModelView, bool) {
	v := r.view.Load()
	m, ok := catalog.Resolve(v.models, name)
	switch {
	case ok:
		return v.reach(m), true
	case v.keptBack(name):
		return router.ModelView{Model: catalog.Model{ID: catalog.FoldName(name), Name: name, State: catalog.ModelServed}, Problem: "this box cannot read its entry (llmgw status)"}, true
	}
	return v.outside(name)
}

// keptBack says whether a name is of something that cannot be read, and of nothing else.
func (v *view) keptBack(name string) bool {
	_, routed := catalog.ResolveRoute(v.routes, name)
	return v.withheld[catalog.FoldName(name)] && !routed
}

// Route finds a name that stands for models.
func (r routes) Route(name string) (catalog.Route, bool) {
	return catalog.ResolveRoute(r.view.Load().routes, name)
}

// Alive says whether a member is heard now.
func (r routes) Alive(peer string) bool {
	n, ok := r.view.Load().node(peer)
	return ok && isLive(n)
}

// List is the whole catalog.
func (r routes) List() []router.ModelView {
	v := r.view.Load()
	out := make([]router.ModelView, 0, len(v.models))
	for _, m := range v.models {
		out = append(out, v.reach(m))
	}
	return append(out, v.outsideModels(r.offered.names(v.providers))...)
}

// route tells where a model is served: on nodes that are live by replicas that
// presence says are Ready.
func (v *view) route(m catalog.Model) router.ModelView {
	out := router.ModelView{Model: m}
	var failed []string
	for _, n := range v.nodes {
		for _, s := range n.Presence.Replicas {
			switch {
			case s.Model != m.ID:
			case isLive(n) && !n.Presence.Stopping && s.State == catalog.ReplicaReady:
				out.Replicas = append(out.Replicas, router.Replica{
					Peer: n.ID, Node: v.name(n.ID), Local: n.State == mesh.StateSelf, Model: m.ID, Slot: s.Slot, Epoch: s.Epoch, Digest: s.Digest,
					InFlight: s.InFlight, Slots: atOnce(s), Context: s.Context,
					Boot: uint64(s.PID) + s.Cleared<<32, KVTokens: cmp.Or(s.KVTokens, int64(s.Context)*int64(s.Slots)), KVUse: s.KVUse, Priority: profileOf(m, s.Profile).Priority, Weight: profileOf(m, s.Profile).Weight,
					Hop: n.RoundTrip, Lacks: s.Lacks, Labels: v.settings[n.ID].Labels,
				})
			case s.State == catalog.ReplicaFailed || s.State == catalog.ReplicaQuarantined || s.State == catalog.ReplicaBackoff:
				failed = append(failed, strings.Join(append([]string{fmt.Sprintf("%s: %s on %s", s.Reason, s.State, v.name(n.ID))}, s.LastLines...), "\n"))
			}
		}
	}
	out.Loaded = len(out.Replicas) > 0
	if out.Loaded {
		return out
	}
	switch out.Problem = strings.Join(failed, "\n"); {
	case v.unloaded(m):
		out.Problem = "it was unloaded while requests waited for it"
	case out.Problem == "":
		out.Problem, _ = problemOf(v, m, false)
		out.Loadable, out.Stage = v.coming(m, out.Problem)
	}
	return out
}

// atOnce are the requests that a replica computes at once: as many as its engine
// has slots for, or what it was seen to do while others waited in it.
func atOnce(s catalog.ReplicaStatus) int {
	if s.AtOnce > 0 && (s.Slots == 0 || s.AtOnce < s.Slots) {
		return s.AtOnce
	}
	return s.Slots
}

// unloaded says whether requests of this node wait for a model in vain: it was
// unloaded since they began, and nobody asks for it anew. The router ends them within
// seconds, and refuses new ones here as long: it cannot tell the two apart.
func (v *view) unloaded(m catalog.Model) bool {
	d, _ := v.decision(m.ID)
	return v.outlived[m.ID] && m.Scale.Min == 0 && d.Owner == "" && !d.Waits
}

// coming says whether a request may wait for a model that is not loaded, and how
// far it is. problem is why it is not loaded now.
func (v *view) coming(m catalog.Model, problem string) (loadable bool, stage string) {
	d, decided := v.decision(m.ID)
	holder, known := v.node(d.Owner)
	switch {
	case m.State == catalog.ModelStopped || m.Scale.Min == 0 && m.Scale.Max == 0:
		return false, ""
	case decided && d.Unsatisfied && !d.Waits, m.Pin != "" && known && !isLive(holder):
		return false, ""
	case problem == "":
		return true, "waiting"
	}
	if known {
		for _, f := range holder.Presence.Fetches {
			if f.As == m.Name && f.Total > 0 {
				return true, fmt.Sprintf("%s %d %% on %s", f.Phase, 100*f.Done/f.Total, v.name(d.Owner))
			}
		}
	}
	return true, problem
}

// profileOf finds a profile; the zero one, which is as good as any, is of an earlier
// state of the catalog.
func profileOf(m catalog.Model, id string) catalog.Profile {
	i := slices.IndexFunc(m.Profiles, func(p catalog.Profile) bool { return p.ID == id })
	if i < 0 {
		return catalog.Profile{}
	}
	return m.Profiles[i]
}

// signals tells the other heads where prompts are sent, and which providers to leave alone.
type signals struct{ *Node }

func (s signals) Publish(msg []byte) {
	if err := s.mesh.Signal(mesh.SignalWarm, msg); err != nil {
		s.log.Debug("other heads were not told of a decision", "error", err)
	}
}

func (s signals) Cooled(msg []byte) {
	if err := s.mesh.Signal(mesh.SignalCool, msg); err != nil {
		s.log.Debug("other heads were not told that a provider's key is left alone", "error", err)
	}
}

// forgetSilent drops what heads told of their load that are not heard any more.
func (n *Node) forgetSilent(v *view) {
	for _, other := range v.nodes {
		if !isLive(other) {
			n.router.ForgetHead(other.ID)
		}
	}
}

// streams opens streams to other members.
type streams struct{ *Node }

func (s streams) Open(ctx context.Context, peer, protocol string) (relay.Stream, error) {
	return s.mesh.Open(ctx, peer, protocol)
}

// local reaches the engines of this node.
type local struct{ *Node }

// Target gives a ready replica of a model. The epoch that the caller knows may be
// older or newer than this node's: news of an assignment travels apart from
// news of the replica. What is ready here serves either way; that it holds the
// right weights is checked by digest.
func (l local) Target(model string, _ uint64) (relay.Target, func(), error) {
	if l.stopping.Load() {
		return relay.Target{}, nil, &relay.Refusal{Kind: relay.RefusedStopping}
	}
	if host, theirs, ok := router.SplitHostModel(model); ok {
		return l.hostTarget(host, theirs, model)
	}
	t, release, err := l.supervisor.Acquire(model)
	if err != nil {
		return relay.Target{}, nil, refusal(err)
	}
	id := catalog.AssignmentID{Model: catalog.FoldName(t.Model), Slot: t.Slot}
	l.usage.touch(id, l.now())
	done := func() { l.usage.touch(id, l.now()); release() }
	return relay.Target{
		URL: t.URL, Key: t.Key, Model: t.Model, Slot: t.Slot, Epoch: t.Epoch, Digest: t.Digest, Engine: t.Engine,
		KeepAlive: t.Engine == catalog.EngineSim,
	}, done, nil
}

func refusal(err error) *relay.Refusal {
	kind := relay.RefusedNotHere
	switch {
	case errors.Is(err, process.ErrBusy):
		kind = relay.RefusedBusy
	case errors.Is(err, process.ErrStopping):
		kind = relay.RefusedStopping
	}
	return &relay.Refusal{Kind: kind, Detail: err.Error()}
}
