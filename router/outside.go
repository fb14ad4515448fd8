package router

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/openai"
	"llmgw/router/relay"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// lastTier is below every priority of a profile: providers are asked when no
	// replica of the mesh has room.
	lastTier = math.MinInt32
	// outsideHop is the way to a provider and back, in comparing one that is used
	// as an equal with replicas of the mesh.
	outsideHop = 100 * time.Millisecond
	// kindOutside is a relay to a provider, in metrics.
	kindOutside = "outside"
)

// ProviderReplica is a provider as a replica of a model that it answers for. m
// is the mesh's, if held is set, and else what a client asked for. False: it is
// not used for that model.
func ProviderReplica(p *catalog.Provider, m catalog.Model, held bool) (Replica, bool) {
	if held && p.Held == catalog.HeldNever {
		return Replica{}, false
	}
	names := []string{m.Name}
	if held {
		names = append(names, m.Aliases...)
	}
	for _, name := range names {
		theirs, pattern, ok := p.Match(name)
		if !ok {
			continue
		}
		r := Replica{
			Peer: "provider/" + p.ID, Node: p.ID, Model: m.ID, Provider: p, Theirs: theirs, Pattern: pattern,
			Priority: lastTier + p.Priority, Hop: outsideHop,
		}
		if held && p.Held == catalog.HeldEqual {
			r.Priority = p.Priority
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

// WithProviders adds the providers to a model of the mesh's that may be used for
// it as well.
func WithProviders(view ModelView, providers []*catalog.Provider) ModelView {
	for _, p := range providers {
		if c, ok := ProviderReplica(p, view.Model, true); ok && view.Model.State != catalog.ModelStopped {
			view.Replicas = append(view.Replicas[:len(view.Replicas):len(view.Replicas)], c)
		}
	}
	return view
}

// OutsideView is what providers make of a name that no model of the mesh has.
// False: none answers to it.
func OutsideView(name string, providers []*catalog.Provider) (ModelView, bool) {
	view := ModelView{Outside: true, Loaded: true, Model: catalog.Model{ID: catalog.FoldName(name), Name: name, State: catalog.ModelServed}}
	for _, p := range providers {
		if c, ok := ProviderReplica(p, view.Model, false); ok {
			view.Replicas = append(view.Replicas, c)
		}
	}
	return view, len(view.Replicas) > 0
}

// OutsideNames are the names that providers answer to, without those of patterns.
func OutsideNames(providers []*catalog.Provider) []string {
	var out []string
	for _, p := range providers {
		for _, m := range p.Models {
			same := func(name string) bool { return catalog.FoldName(name) == catalog.FoldName(m.Pattern) }
			if !strings.Contains(m.Pattern, "*") && !slices.ContainsFunc(out, same) {
				out = append(out, m.Pattern)
			}
		}
	}
	return out
}

// provider is whom the answers of a view's model are paid to, as far as that is
// known before one is chosen: empty while a node of the mesh may give them.
func (v ModelView) provider() string {
	if len(v.Replicas) == 0 || slices.ContainsFunc(v.Replicas, func(c Replica) bool { return c.Provider == nil }) {
		return ""
	}
	return slices.MaxFunc(v.Replicas, func(a, b Replica) int { return cmp.Compare(a.Priority, b.Priority) }).Provider.ID
}

// label is what metrics call a model. Clients choose the names that a pattern
// fits, and how a name is spelled, in as many ways as they like.
func label(view ModelView, replica Replica) string {
	if replica.Provider != nil && view.Outside {
		return replica.Pattern
	}
	return view.Model.Name
}

// abroad says that a replica is reached outside the mesh from this node.
func (c *Replica) abroad() bool { return c.Provider != nil && !c.Sponsored }

// asked is the model that its holder is asked for.
func (c *Replica) asked() string {
	if c.Sponsored {
		return c.Pattern
	}
	return c.Model
}

// family is what stands for a replica's model where it must not be of a client's
// choosing.
func (c *Replica) family() string {
	if c.Provider != nil {
		return c.Pattern
	}
	return c.Model
}

// shares is the model of a replica that has its load for itself: a provider has it
// for all its models together.
func (c *Replica) shares() string {
	switch {
	case c.Sponsored:
		return hostPrefix + c.Provider.ID
	case c.Provider != nil:
		return ""
	}
	return c.Model
}

// paidTo is the provider of an answer, for accounting, and the node.
func (c *Replica) paidTo() (provider, node string) {
	switch {
	case c.Sponsored:
		return c.Provider.ID, c.Peer
	case c.Provider != nil:
		return c.Provider.ID, ""
	}
	return "", c.Peer
}

// known is the model as the one who serves it has it.
func known(view ModelView, c Replica) catalog.Model {
	m := view.Model
	if c.Provider != nil {
		// The body is compared with an ID that no name is, unless it has theirs.
		m.Name, m.ID = c.Theirs, "\n"
	}
	return m
}

// outside is what this node knows of the services outside the mesh.
type outside struct {
	conns *relay.Outside
	cools *prometheus.CounterVec // provider, status

	mu      sync.Mutex
	cooling map[keyName]cooldown
	running map[string]int // requests, by provider
}

// keyName names a key of a provider; its key is empty for one without keys.
type keyName struct{ provider, key string }

// cooldown keeps requests from a key.
type cooldown struct {
	until  time.Time
	times  int // in a row
	status int // the answer that began it
}

const (
	// refusedFor is how long a key is left alone that the provider does not take,
	// or has no money for: only a person ends that.
	refusedFor = 5 * time.Minute
	// firstCool is the wait where the provider names none; each further one in a
	// row doubles it up to mostCool, which bounds what providers name as well.
	firstCool, mostCool = 5 * time.Second, 10 * time.Minute
	// maxCooling bounds the keys that are remembered.
	maxCooling = 4096
)

func newOutside(cfg Config) *outside {
	o := &outside{
		conns: relay.NewOutside(cfg.Limits), cooling: make(map[keyName]cooldown), running: make(map[string]int),
		cools: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_provider_cooldowns_total", Help: "Keys of providers that were left alone for a while, by the status that began it.",
		}, []string{"provider", "status"}),
	}
	cfg.Metrics.MustRegister(o.cools)
	return o
}

// ready gives the keys that may be used now, in order.
func (o *outside) ready(p *catalog.Provider, now time.Time) []catalog.ProviderKey {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []catalog.ProviderKey
	for _, k := range relay.KeysOf(p) {
		if !now.Before(o.cooling[keyName{p.ID, k.ID}].until) {
			out = append(out, k)
		}
	}
	return out
}

// closed says why a provider gets no request now; nil: it does.
func (o *outside) closed(p *catalog.Provider, now time.Time) *providerError {
	if len(o.ready(p, now)) == 0 {
		return o.coolest(p, now)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.Parallel > 0 && o.running[p.ID] >= p.Parallel {
		return &providerError{provider: p.ID, kind: providerFull, wait: time.Second}
	}
	return nil
}

// coolest describes the cool-down that ends first.
func (o *outside) coolest(p *catalog.Provider, now time.Time) *providerError {
	o.mu.Lock()
	defer o.mu.Unlock()
	var least cooldown
	for i, k := range relay.KeysOf(p) {
		if c := o.cooling[keyName{p.ID, k.ID}]; i == 0 || c.until.Before(least.until) {
			least = c
		}
	}
	return &providerError{provider: p.ID, kind: kindOf(least.status), status: least.status, wait: max(least.until.Sub(now), time.Second)}
}

// cool leaves a key alone: for as long as the provider said, or for a time that
// grows. It gives how long that is.
func (o *outside) cool(p *catalog.Provider, key string, status int, asked time.Duration, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.makeRoom(now)
	name := keyName{p.ID, key}
	c := o.cooling[name]
	if asked <= 0 {
		asked = firstCool << min(c.times, 10)
	}
	wait := min(max(asked, time.Second), mostCool)
	c.status, c.times = status, c.times+1
	if until := now.Add(wait); until.After(c.until) {
		c.until = until
	}
	o.cooling[name] = c
	o.cools.WithLabelValues(p.ID, statusLabel(status)).Inc()
	return wait
}

func (o *outside) makeRoom(now time.Time) {
	if len(o.cooling) < maxCooling {
		return
	}
	for name, c := range o.cooling {
		if now.Sub(c.until) > mostCool {
			delete(o.cooling, name)
		}
	}
	if len(o.cooling) >= maxCooling {
		clear(o.cooling)
	}
}

// heard takes over what another head learned of a key.
func (o *outside) heard(name keyName, status int, wait time.Duration, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.makeRoom(now)
	c := o.cooling[name]
	if until := now.Add(min(wait, mostCool)); until.After(c.until) {
		c.until, c.status = until, status
		o.cooling[name] = c
	}
}

// cooled is what heads tell each other of a provider's key. How long is told, not until
// when: their clocks differ.
type cooled struct {
	Provider string `json:"provider"`
	Key      string `json:"key"` // ID
	Status   int    `json:"status"`
	MS       int64  `json:"ms"`
}

// cool leaves a key of a provider alone, here and at the other heads.
func (r *Router) cool(p *catalog.Provider, key string, status int, asked time.Duration) {
	wait := r.outside.cool(p, key, status, asked, r.now())
	if r.cfg.Share == nil {
		return
	}
	msg, err := json.Marshal(cooled{p.ID, key, status, wait.Milliseconds()})
	if err == nil { // of plain fields: it cannot fail
		r.cfg.Share.Cooled(msg)
	}
}

// TakeCooled takes what another head learned of a provider's key.
func (r *Router) TakeCooled(from string, msg []byte) {
	var c cooled
	if err := json.Unmarshal(msg, &c); err != nil || c.MS <= 0 || c.Provider == "" || len(c.Provider)+len(c.Key) > maxCooledName {
		r.cfg.Log.Debug("another head's word on a provider was not understood", "from", from, "error", err)
		return
	}
	r.outside.heard(keyName{c.Provider, c.Key}, c.Status, time.Duration(min(c.MS, mostCool.Milliseconds()))*time.Millisecond, r.now())
}

// maxCooledName bounds the names that another head can have remembered.
const maxCooledName = 256

// works ends what was held against a key.
func (o *outside) works(p *catalog.Provider, key string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// One that began meanwhile is younger than this answer's request.
	if name := (keyName{p.ID, key}); !now.Before(o.cooling[name].until) {
		delete(o.cooling, name)
	}
}

// enter counts a request at a provider, unless it has as many as it may.
func (o *outside) enter(p *catalog.Provider) (leave func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.Parallel > 0 && o.running[p.ID] >= p.Parallel {
		return nil, false
	}
	o.running[p.ID]++
	return sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.running[p.ID]--; o.running[p.ID] <= 0 {
			delete(o.running, p.ID)
		}
	}), true
}

// KeyState is a cool-down of a provider's key at this node.
type KeyState struct {
	Key    string // ID
	Status int    // the answer that began it
	Left   time.Duration
}

// Cooling tells which keys of a provider this node leaves alone now, and how many
// of its requests are there.
func (r *Router) Cooling(p *catalog.Provider) (keys []KeyState, running int) {
	o, now := r.outside, r.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range relay.KeysOf(p) {
		if c := o.cooling[keyName{p.ID, k.ID}]; now.Before(c.until) {
			keys = append(keys, KeyState{k.ID, c.status, c.until.Sub(now)})
		}
	}
	return keys, o.running[p.ID]
}

// ProbeProvider asks a provider for its models with each of its keys.
func (r *Router) ProbeProvider(ctx context.Context, p *catalog.Provider) (relay.Probe, error) {
	return r.outside.conns.Probe(ctx, p)
}

// OutsideModels is which models a provider says it has.
func (r *Router) OutsideModels(ctx context.Context, p *catalog.Provider) ([]string, error) {
	return r.outside.conns.Models(ctx, p, r.via())
}

// usable takes the providers out of a view that cannot have the request: their
// keys cool down, they have as many requests as they may, the API key must keep to
// nodes with some label, or they lack what is asked for. The mesh's own replicas
// are judged elsewhere. An error is why none is left, and none will come.
func (i *inference) usable(view ModelView) (ModelView, *openai.Error) {
	if !slices.ContainsFunc(view.Replicas, func(c Replica) bool { return c.Provider != nil }) {
		return view, nil
	}
	r := i.t.r
	now := r.now()
	var why *openai.Error
	kept := make([]Replica, 0, len(view.Replicas))
	for _, c := range view.Replicas {
		var e *openai.Error
		if c.Provider != nil {
			e = i.unfit(view, c, now)
		}
		switch {
		case e == nil:
			kept = append(kept, c)
		case why == nil:
			why = e
		}
	}
	view.Replicas = kept
	if len(kept) > 0 || view.Loadable {
		why = nil
	}
	return view, why
}

func (i *inference) unfit(view ModelView, c Replica, now time.Time) *openai.Error {
	if !i.t.key.AllowsNode(c.Labels) {
		return noNodeRight(view)
	}
	if closed := i.t.r.outside.closed(c.Provider, now); closed != nil && c.abroad() {
		return closed.shown(view)
	}
	return i.lacking(view.Model, c.Lacks)
}

// complainOutside logs what a provider did; its keys are in no error.
func (r *Router) complainOutside(p *catalog.Provider, key catalog.ProviderKey, status int, id string) {
	if !r.quiet.allow(r.now()) {
		return
	}
	r.cfg.Log.Warn("a provider does not serve a key", slog.String("provider", p.ID), slog.String("key", key.Prefix()),
		slog.Int("status", status), slog.String("request_id", id))
}
