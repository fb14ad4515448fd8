package limits

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"llmgw/crdt"
	"llmgw/mesh/catalog"
	"llmgw/router/keys"
	"llmgw/router/openai"
)

// Request asks for what a client's request needs.
type Request struct {
	Key      keys.Info
	Model    string // ID
	Provider string // outside the mesh; empty: the mesh's own
	// Payees are all who may answer in the end: what it may cost is what the dearest
	// takes. None: Model and Provider.
	Payees []Payee
	// Estimate is the prompt's size and the most that the answer may have. Output
	// gives way to what answers of the model mostly have, once that is known.
	Estimate openai.Usage
	Stream   bool
}

// Payee is a model of a provider; empty: of the mesh.
type Payee struct{ Model, Provider string }

// Outcome is how a request ended.
type Outcome struct {
	Usage    openai.Usage
	Status   int    // HTTP; 499 for a client that left
	Node     string // peer ID of the node that served it
	Model    string // ID; empty: as asked
	Provider string
}

// need is a limit of a minute, or of requests at once, that a request has to pass.
type need struct {
	subject
	metric catalog.Metric
	limit  uint64
	amount uint64
}

// subject is a key, a project or a tenant.
type subject struct {
	level, id, name string
	rules           catalog.Rules
}

func (n need) meter() crdt.Meter {
	return crdt.Meter{Limit: n.level, Subject: n.id, Metric: string(n.metric)}
}

// held is what a grant holds of one meter.
type held struct {
	meter  crdt.Meter
	metric catalog.Metric
	hold   crdt.Hold
}

// Grant is a request that runs. It ends once, by Settle or Release.
type Grant struct {
	l        *Limiter
	req      Request
	at       time.Time
	subjects []subject
	holds    []held
	aside    []aside
	requests shown
	tokens   shown
	once     sync.Once
}

// Admit lets a request run, or gives a *Refusal. Another error means that ctx
// ended meanwhile. Nothing is held after an error.
func (l *Limiter) Admit(ctx context.Context, req Request) (*Grant, error) {
	now := l.cfg.Now()
	g := &Grant{l: l, req: req, at: now}
	refusal := l.subjects(g)
	if refusal != nil {
		return nil, l.refuse(refusal)
	}
	window, asked, refusal := l.askOwner(ctx, g)
	if refusal == nil {
		refusal = l.take(g, window, asked, now)
	}
	if refusal != nil {
		return nil, l.refuse(refusal)
	}
	if refusal := l.takeRights(ctx, g); refusal != nil {
		g.undo()
		return nil, l.refuse(refusal)
	}
	l.stats.admitted.Add(1)
	if err := ctx.Err(); err != nil {
		g.Release()
		return nil, err
	}
	return g, nil
}

func (l *Limiter) refuse(r *Refusal) error {
	l.stats.refuse(r.Level, r.Metric)
	return r
}

// subjects finds whom the request counts for.
func (l *Limiter) subjects(g *Grant) *Refusal {
	k := g.req.Key
	g.subjects = append(g.subjects, subject{LevelKey, k.ID, k.Name, k.Rules})
	if k.Project == "" {
		return nil
	}
	p, ok := l.cfg.Book.Project(k.Project)
	if !ok {
		return &Refusal{Level: LevelProject, Name: k.Project, Metric: MetricMissing, RetryAfter: time.Second}
	}
	g.subjects = append(g.subjects, subject{LevelProject, p.ID, p.ID, p.Rules})
	if p.Tenant == "" {
		return nil
	}
	t, ok := l.cfg.Book.Tenant(p.Tenant)
	if !ok {
		return &Refusal{Level: LevelTenant, Name: p.Tenant, Metric: MetricMissing, RetryAfter: time.Second}
	}
	g.subjects = append(g.subjects, subject{LevelTenant, t.ID, t.ID, t.Rules})
	return nil
}

// needs lists the limits that bind the request. A request larger than a limit waits
// for a whole minute's worth of it.
func (g *Grant) needs(output uint64) []need {
	u := openai.Usage{Input: g.req.Estimate.Input, Output: output}
	var out []need
	for _, s := range g.subjects {
		if len(s.rules.Limits) == 0 {
			continue
		}
		for _, metric := range catalog.Metrics() {
			if limit, ok := s.rules.Limits[metric]; ok {
				out = append(out, need{s, metric, limit, max(min(amountOf(metric, u), limit), 1)})
			}
		}
	}
	return out
}

// amountOf is what a request with this usage counts in a metric.
func amountOf(m catalog.Metric, u openai.Usage) uint64 {
	switch m {
	case catalog.MetricInputTokens:
		return u.Input
	case catalog.MetricOutputTokens:
		return u.Output
	case catalog.MetricTokens:
		return add(u.Input, u.Output)
	}
	return 1
}

// take holds everything that the request needs, or nothing. With asked, the owner
// let it pass in that window.
func (l *Limiter) take(g *Grant, window int64, asked bool, now time.Time) *Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	needs := g.needs(l.output(g.req))
	policy := l.cfg.Policy()
	if !asked {
		window = crdt.WindowOf(now)
		if policy == Owner && l.ownerOf(g) != l.cfg.Peer {
			policy = Share
		}
		if refusal := l.pass(needs, policy, now); refusal != nil {
			return refusal
		}
	}
	if refusal := l.setAside(g, now); refusal != nil {
		return refusal
	}
	for _, n := range needs {
		h, err := l.hold(l.meter(n.meter()), window, n.amount, now)
		if err != nil {
			g.drop(now)
			return &Refusal{Level: n.level, Name: n.name, Metric: string(n.metric), Limit: n.limit, Used: crdt.MaxAmount, RetryAfter: time.Minute}
		}
		g.holds = append(g.holds, held{n.meter(), n.metric, h})
	}
	l.show(g, needs, now)
	return nil
}

// pass says which need is not met; of several the one that takes longest.
func (l *Limiter) pass(needs []need, policy Policy, now time.Time) *Refusal {
	var worst *Refusal
	for _, n := range needs {
		m := l.meter(n.meter())
		if m.parallel() {
			l.renew(m, now)
		}
		v := l.judge(m, n.limit, n.amount, policy, now)
		if v.ok {
			continue
		}
		if policy == Share {
			l.want(m, n.amount, now)
		}
		r := n.refusal(v)
		if worst == nil || r.RetryAfter > worst.RetryAfter || n.limit == 0 {
			worst = r
		}
	}
	return worst
}

func (n need) refusal(v verdict) *Refusal {
	r := &Refusal{Level: n.level, Name: n.name, Metric: string(n.metric), Limit: n.limit, Used: uint64(v.view.taken), RetryAfter: v.wait}
	if n.limit == 0 {
		r.RetryAfter = 0
	}
	return r
}

// show keeps what the response headers tell: of each kind the limit with the least
// left.
func (l *Limiter) show(g *Grant, needs []need, now time.Time) {
	for _, n := range needs {
		if n.metric == catalog.MetricParallel {
			continue
		}
		v := l.read(l.meter(n.meter()), now)
		left := n.limit - min(uint64(v.taken+0.999), n.limit)
		to := &g.tokens
		if n.metric == catalog.MetricRequests {
			to = &g.requests
		}
		if !to.set || left < to.remaining {
			*to = shown{n.metric, n.limit, left, v.reset(), true}
		}
	}
}

// Header writes x-ratelimit-{limit,remaining,reset}-{requests,tokens}, as it was
// when the request was admitted. A kind without a limit is left out.
func (g *Grant) Header(h http.Header) {
	g.requests.header(h)
	g.tokens.header(h)
}

// Settle ends the grant with what was used. It does not wait for the disk, and takes
// no notice of whether the client is there. What comes after the first Settle or
// Release does nothing.
func (g *Grant) Settle(o Outcome) {
	g.once.Do(func() {
		if o.Model == "" {
			o.Model = g.req.Model
		}
		now := g.l.cfg.Now()
		g.l.mu.Lock()
		g.l.outputs.learn(o.Model, o.Usage.Output)
		g.free(func(m catalog.Metric) uint64 { return amountOf(m, o.Usage) }, now)
		g.l.mu.Unlock()
		g.l.stats.settled.Add(1)
		g.record(o, now)
	})
}

// Release ends the grant of a request that no engine got.
func (g *Grant) Release() {
	g.once.Do(func() {
		g.undo()
		g.l.stats.released.Add(1)
	})
}

// undo gives back all that is held.
func (g *Grant) undo() {
	g.l.mu.Lock()
	all := g.aside
	g.drop(g.l.cfg.Now())
	g.l.mu.Unlock()
	g.giveRights(all, nil)
}

// drop gives back the holds and what was set aside. The caller holds mu.
func (g *Grant) drop(now time.Time) {
	g.free(func(catalog.Metric) uint64 { return 0 }, now)
	g.l.unset(g.aside)
	g.aside = nil
}

// free ends the holds with what was used. The caller holds mu.
func (g *Grant) free(used func(catalog.Metric) uint64, now time.Time) {
	var errs []error
	for _, h := range g.holds {
		errs = append(errs, g.l.free(g.l.meter(h.meter), h.hold, used(h.metric), now))
	}
	g.holds = nil
	if err := errors.Join(errs...); err != nil {
		g.l.cfg.Log.Error("a limit has counted to its end", "error", err)
	}
}
