package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router"
	"llmgw/router/relay"
)

const (
	// hostEach is how often a host is looked at: llama-server does not notice that
	// clients leave when its slots are asked for more often than each 2 s.
	hostEach = 3 * time.Second
	// hostTime bounds one look.
	hostTime = 10 * time.Second
	// A host is down when hostBad of the last hostLooks failed, and up again when
	// the last hostGood did not. The first look decides by itself.
	hostLooks, hostBad, hostGood = 5, 3, 2
	// maxHosts bounds the hosts of one node, hostProblem the bytes of what is told of
	// a fault: a host chooses some of its words.
	maxHosts, hostProblem = 16, 300
)

// hosted is what this node saw of the hosts that it sponsors.
type hosted struct {
	mu    sync.Mutex
	hosts map[string]*hostWatch // by ID
}

type hostWatch struct {
	status catalog.HostStatus
	url    string
	looked bool
	busy   bool   // a look is on its way
	fails  []bool // of the last looks, the youngest last
}

// list is for presence.
func (h *hosted) list() []catalog.HostStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []catalog.HostStatus
	for _, w := range h.hosts {
		if w.looked {
			out = append(out, w.status)
		}
	}
	slices.SortFunc(out, func(a, b catalog.HostStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// begin says which hosts are to be looked at now, and forgets those that are not
// sponsored here any more or have moved.
func (h *hosted) begin(sponsored []*catalog.Provider) []*catalog.Provider {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.hosts
	h.hosts = map[string]*hostWatch{}
	var due []*catalog.Provider
	for _, p := range sponsored {
		w := before[p.ID]
		if w == nil || w.url != p.URL {
			w = &hostWatch{url: p.URL}
		}
		h.hosts[p.ID] = w
		if !w.busy {
			w.busy = true
			due = append(due, p)
		}
	}
	return due
}

// kind is what the host was found to run; empty: it has to be found out.
func (h *hosted) kind(p *catalog.Provider) catalog.HostKind {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.hosts[p.ID]; w != nil && w.status.Up && !slices.Contains(w.fails, true) {
		return w.status.Kind
	}
	return ""
}

// end takes in a look. It reports that the host went up or down.
func (h *hosted) end(p *catalog.Provider, seen catalog.HostStatus, err error, now time.Time) (turned bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.hosts[p.ID]
	if w == nil || w.url != p.URL {
		return false
	}
	w.busy = false
	w.fails = append(w.fails, err != nil)
	w.fails = w.fails[max(len(w.fails)-hostLooks, 0):]
	up := w.healthy()
	turned = !w.looked || up != w.status.Up
	before := w.status
	if err == nil {
		w.status = seen
	}
	w.status.ID, w.status.Up, w.status.Since, w.status.Problem = p.ID, up, before.Since, ""
	if turned {
		w.status.Since = now.Unix()
	}
	switch {
	case err != nil && !up:
		w.status.Problem, w.status.LoadKnown, w.status.InFlight = clipText(err.Error(), hostProblem), false, 0
	case !up:
		w.status.Problem = "it answers again, and has to do so once more"
	}
	w.looked = true
	return turned
}

// clipText is the start of a text, whole letters of it.
func clipText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func (w *hostWatch) healthy() bool {
	last, bad := !w.fails[len(w.fails)-1], 0
	for _, f := range w.fails {
		if f {
			bad++
		}
	}
	switch {
	case !w.looked:
		return last
	case w.status.Up:
		return bad < hostBad
	}
	return len(w.fails) >= hostGood && !slices.Contains(w.fails[len(w.fails)-hostGood:], true)
}

// pollHosts looks at the hosts that this node sponsors, until ctx ends.
func (n *Node) pollHosts(ctx context.Context) error {
	tick := time.NewTicker(hostEach)
	defer tick.Stop()
	var looks sync.WaitGroup
	defer looks.Wait()
	docs := n.catalog.Watch(catalog.NamespaceProviders)
	defer docs.Close()
	for {
		for _, p := range n.hosted.begin(n.sponsored()) {
			looks.Go(func() { n.lookAt(ctx, p) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-docs.C:
		}
	}
}

// sponsored are the hosts that this node looks after.
func (n *Node) sponsored() []*catalog.Provider {
	docs, err := n.catalog.Providers()
	if err != nil {
		n.log.Error("hosts cannot be read", "error", err)
		return nil
	}
	var out []*catalog.Provider
	for _, p := range docs {
		if p.Sponsor == n.mesh.Self() && p.Check() == nil {
			out = append(out, &p)
		}
	}
	return out[:min(len(out), maxHosts)]
}

func (n *Node) lookAt(ctx context.Context, p *catalog.Provider) {
	ctx, cancel := context.WithTimeout(ctx, hostTime)
	defer cancel()
	get := hostAPI(func(path string) (int, []byte, error) { return n.router.GetOutside(ctx, p, path, hostDocument) })
	kind, err := n.hosted.kind(p), error(nil)
	if kind == "" {
		kind, err = kindOf(get)
	}
	var seen catalog.HostStatus
	if err == nil {
		seen, err = readHost(get, kind)
	}
	if n.hosted.end(p, seen, err, n.now()) {
		n.log.Info("a host was looked at", "host", p.ID, "up", err == nil, "kind", kind, "error", err)
		n.wake()
	}
}

// readHosts tells what is known of hosts: what live sponsors say of them.
func (v *view) readHosts(docs []*catalog.Provider) []router.Host {
	var out []router.Host
	for _, p := range docs {
		n, ok := v.node(p.Sponsor)
		if p.Sponsor == "" || !ok || !isLive(n) || n.Presence.Stopping {
			continue
		}
		for _, s := range n.Presence.Hosts {
			if s.ID == p.ID {
				out = append(out, router.Host{
					Provider: p, Status: s, Peer: n.ID, Node: v.name(n.ID), Local: n.ID == v.nodes[0].ID, Labels: v.settings[n.ID].Labels,
				})
			}
		}
	}
	return out
}

// host finds a host by ID.
func (v *view) host(id string) (router.Host, bool) {
	i := slices.IndexFunc(v.hosts, func(h router.Host) bool { return h.Provider.ID == id })
	if i < 0 {
		return router.Host{}, false
	}
	return v.hosts[i], true
}

// hostTarget is the way to a model of a host, which this node must sponsor.
func (l local) hostTarget(host, theirs, model string) (relay.Target, func(), error) {
	h, ok := l.view.Load().host(host)
	if !ok || !h.Local || h.Provider.Direct {
		return relay.Target{}, nil, &relay.Refusal{Kind: relay.RefusedNotHere, Detail: "this node sponsors no such host"}
	}
	if m, has := h.Status.Model(theirs); !has || m.Name != theirs || !h.Status.Up {
		return relay.Target{}, nil, &relay.Refusal{Kind: relay.RefusedNotHere, Detail: "the host has no such model now"}
	}
	leave, ok := l.router.EnterHost(h.Provider)
	if !ok {
		return relay.Target{}, nil, &relay.Refusal{Kind: relay.RefusedBusy, Detail: "the host has as many requests as it may"}
	}
	return relay.Target{Host: h.Provider, Model: model, Engine: string(h.Status.Kind)}, leave, nil
}
