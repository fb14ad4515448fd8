package router

import (
	"net/http"
	"slices"
	"time"

	"llmgw/router/affinity"
	"llmgw/router/openai"
)

// replicaKey tells replicas apart over the mesh.
type replicaKey struct {
	peer  string
	model string
	slot  int
}

func (r Replica) key() replicaKey { return replicaKey{r.Peer, r.family(), r.Slot} }

func (r Replica) id() affinity.Replica { return affinity.ReplicaOf(r.Peer, r.shares(), r.Slot) }

// tried names a replica as it was when it was asked: one that came back under
// another epoch may be asked again.
type tried struct {
	replicaKey
	epoch uint64
}

// open leaves of replicas those that were not asked yet.
func open(replicas []Replica, asked map[tried]bool) []Replica {
	if len(asked) == 0 {
		return replicas
	}
	var out []Replica
	for _, c := range replicas {
		if !asked[tried{c.key(), c.Epoch}] {
			out = append(out, c)
		}
	}
	return out
}

func candidates(replicas []Replica) []affinity.Candidate {
	out := make([]affinity.Candidate, len(replicas))
	for i, c := range replicas {
		out[i] = affinity.Candidate{
			Replica: c.id(), Boot: c.Boot, Remote: !c.Local, Hop: c.Hop, InFlight: c.InFlight, Slots: c.Slots,
			KVTokens: c.KVTokens, KVUse: c.KVUse, Weight: c.Weight, Priority: c.Priority,
		}
	}
	return out
}

// pick chooses among the replicas that were not asked yet, and counts the
// request there. The ticket must be ended.
func (r *Router) pick(replicas []Replica, asked map[tried]bool, q affinity.Query) (Replica, *affinity.Ticket) {
	now := r.now()
	left := r.breakers.admits(open(replicas, asked), now)
	t := r.picker.Pick(q, candidates(left), now)
	if t == nil {
		return Replica{}, nil
	}
	r.share.soon(now)
	return left[t.Index], t
}

// sessionHeader is how a client names its conversation beside the body.
const sessionHeader = "X-Session-Id"

// maxSession bounds the text that names a conversation; a longer one is none.
const maxSession = 1024

// query is a request as the pick sees it. Beliefs are kept by replica, so the
// model needs no part in the hashes. What names the conversation goes with the
// key, as names are given freely: one client's are not another's.
func (t *request) query(stream bool, p *openai.Prompt) affinity.Query {
	q, root := chainOf(p)
	q.Whole = !stream
	name := t.req.Header.Get(sessionHeader)
	if name == "" {
		name = string(p.Session[:min(len(p.Session), maxSession+1)])
	}
	switch {
	case name != "" && len(name) <= maxSession:
		q.Root = affinity.NameHash(t.key.ID, name)
		q.Session = affinity.SessionHash(q.Root)
	case root > 0:
		q.Root = uint64(q.Chain[root-1].Hash)
	default:
		q.Root = affinity.NameHash(t.key.ID)
	}
	return q
}

// chainOf is what the bytes of a prompt say, and how much of the chain its first
// elements are.
func chainOf(p *openai.Prompt) (q affinity.Query, root int) {
	b := affinity.NewBuilder()
	b.Add(p.Tools)
	elements := 0
	p.Elements(func(raw []byte) {
		if elements == 0 {
			raw = steady(raw)
		}
		b.Add(raw)
		if elements++; elements <= rootElements {
			root = len(b.Chain())
		}
	})
	return affinity.Query{Chain: b.Chain(), Tokens: max(b.Tokens()+affinity.TokensOf(p.Other), 1)}, root
}

// steady leaves out the line that some agents put first and change with each
// turn: with it no turn would look like the one before.
func steady(first []byte) []byte {
	from, to := openai.Volatile(first)
	if from < 0 {
		return first
	}
	return slices.Concat(first[:from], first[to:])
}

// rootElements of a prompt, the system's message and the first of the user,
// stay the same in all turns of a conversation.
const rootElements = 2

// use wraps a ticket with what the router needs to do around it.
type use struct {
	r     *Router
	model string
	t     *affinity.Ticket
	timer *time.Timer // of an answer that comes whole; nil: none
}

// count begins the use of a ticket. An answer that comes whole has no first
// token to see: its prompt counts as computed when that was predicted.
func (r *Router) count(t *affinity.Ticket, model string, whole bool) *use {
	u := &use{r: r, model: model, t: t}
	if whole {
		u.timer = time.AfterFunc(t.Cost.Total, u.first)
	}
	return u
}

func (u *use) first() {
	now := u.r.now()
	u.t.First(now)
	u.r.share.soon(now)
}

func (u *use) done() {
	if u.timer != nil {
		u.timer.Stop()
	}
	now := u.r.now()
	u.t.Done(now)
	u.r.share.soon(now)
	u.r.queue.advance(u.model)
}

// learn takes over what the engine told of its cache.
func (u *use) learn(m *openai.UsageMeter) {
	if prompt, cached, ok := m.Cached(); ok {
		u.t.Cached(prompt, cached)
	}
}

// SetPrefixes changes whether warm prefixes count in choosing replicas, and for
// how long after its last use one does; 0: affinity.DefaultTTL. It is in force
// for the next request.
func (r *Router) SetPrefixes(on bool, ttl time.Duration) { r.picker.Set(on, ttl) }

// explainHeader asks for the candidates in place of an answer.
const explainHeader = "X-LLMGW-Explain"

func wantsExplanation(h http.Header) bool { return h.Get(explainHeader) == "1" }
