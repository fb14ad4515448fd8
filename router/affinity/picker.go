package affinity

import (
	"sync"
	"time"
)

const (
	// maxReplicas and totalBlocks bound what a head remembers in all.
	maxReplicas = 4096
	totalBlocks = 10_000_000
	// DefaultTTL is how long a prefix counts as warm after its last use.
	DefaultTTL = 30 * time.Minute
	// unlistedFor is how long a replica that the catalog does not list is
	// remembered: a box that was silent for a moment still has its cache.
	unlistedFor = time.Minute
	// sweepBlocks bounds the work of one sweep, for a moment's lock.
	sweepBlocks = 8192
)

// Query is a request as the pick sees it.
type Query struct {
	Chain   Chain
	Tokens  int    // of the prompt; at least the chain's
	Session Hash   // the conversation by its own name; 0: it has none
	Root    uint64 // the conversation for ties; the same in each turn
	// Whole: the answer comes in one piece, so that its first byte says nothing
	// of the time that the prompt took.
	Whole bool
}

// Picker chooses replicas for one head. The zero value is not usable.
type Picker struct {
	mu       sync.Mutex
	replicas map[Replica]*replica
	heads    map[string]*head
	out      outbox
	ttl      time.Duration
	off      bool
	stats    Stats
	costs    []Cost // scratch
}

// Stats counts since the start. Hits are as the heads believe (Warm of Tokens)
// and as engines report (Cached of Prompt).
type Stats struct {
	Picks, Tokens, Warm  uint64
	Answers              uint64 // that told their cached tokens
	Prompt, Cached       uint64
	Believed             uint64 // warm of the answers that told
	Blocks, Bytes        int    // now, in all indexes
	Replicas             int    // now
	Taken, Shared, Stale uint64 // messages of other heads, our own, taken too late
}

// NewPicker makes a picker that knows nothing. boot tells this head's messages
// from those of an earlier life; 0: it tells other heads nothing.
func NewPicker(boot uint64) *Picker {
	return &Picker{
		replicas: make(map[Replica]*replica), heads: make(map[string]*head),
		out: outbox{boot: boot}, ttl: DefaultTTL,
	}
}

// Set changes whether prefixes count and for how long they are warm; ttl 0 is
// DefaultTTL.
func (p *Picker) Set(prefixes bool, ttl time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = !prefixes
	if ttl <= 0 {
		ttl = DefaultTTL
	}
	p.ttl = min(ttl, maxTTL)
	if p.off {
		for _, r := range p.replicas {
			r.index.clear()
		}
	}
}

func (p *Picker) ttlUnits() stamp { return stamp(max(p.ttl/stampUnit, 1)) }

// Pick chooses one of the candidates and counts the request there at once. The
// ticket must be ended by Done. Nil: there are no candidates.
func (p *Picker) Pick(q Query, cs []Candidate, now time.Time) *Ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.costs = p.weigh(p.costs[:0], &q, cs, now)
	i := choose(p.costs)
	if i < 0 {
		return nil
	}
	cost, r := p.costs[i], p.replicas[cs[i].Replica]
	t := &Ticket{
		p: p, r: r, q: q, Index: i, Cost: cost, began: now,
		work: cost.Pending + cost.New, depth: r.index.depth(q.Chain, stampOf(now), p.ttlUnits()),
	}
	r.pending += cost.New
	r.inFlight++
	p.stats.Picks++
	p.stats.Tokens += uint64(q.Tokens)
	p.stats.Warm += uint64(cost.Warm)
	if !p.off {
		p.warm(r, q.Session, q.Chain, now)
		p.out.decided(decision{cs[i].Replica, q.Session, q.Chain, t.depth})
	}
	p.out.moved()
	return t
}

// warm makes a chain warm and keeps all indexes together within their bound.
func (p *Picker) warm(r *replica, session Hash, c Chain, now time.Time) {
	s := stampOf(now)
	if session != 0 {
		r.index.touch(session, 0, s)
	}
	r.index.use(c, s)
	if room := totalBlocks / len(p.replicas); r.index.blocks > room {
		if total, _ := p.size(); total > totalBlocks {
			for total = r.index.blocks; total > room; total-- {
				r.index.drop(r.index.oldest())
			}
		}
	}
}

// Explain gives what each candidate would cost, the choice marked, and counts
// nothing.
func (p *Picker) Explain(q Query, cs []Candidate, now time.Time) []Cost {
	p.mu.Lock()
	defer p.mu.Unlock()
	costs := p.weigh(nil, &q, cs, now)
	choose(costs)
	return costs
}

// weigh computes the costs of all candidates, in their order.
func (p *Picker) weigh(costs []Cost, q *Query, cs []Candidate, now time.Time) []Cost {
	ttl := p.ttlUnits()
	for _, c := range cs {
		r := p.know(c.Replica, now)
		r.see(c, now)
		costs = append(costs, r.costOf(q, c, now, ttl, !p.off))
	}
	return costs
}

func (p *Picker) know(id Replica, now time.Time) *replica {
	r := p.replicas[id]
	if r == nil {
		r = newReplica(now)
		p.replicas[id] = r
	}
	return r
}

// Keep drops what was long warm, heads that are silent, and the replicas that
// the catalog has not listed for a while: call it each few seconds.
func (p *Picker) Keep(listed []Replica, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range listed {
		if r := p.replicas[id]; r != nil {
			r.listed = now
		}
	}
	budget, s, ttl := sweepBlocks, stampOf(now), p.ttlUnits()
	for id, r := range p.replicas {
		if r.inFlight == 0 && now.Sub(r.listed) > unlistedFor {
			delete(p.replicas, id)
			continue
		}
		budget -= r.index.expire(s, ttl, budget)
	}
	p.dropSilent(now)
}

func (p *Picker) size() (blocks, bytes int) {
	for _, r := range p.replicas {
		blocks += r.index.blocks
		bytes += r.index.bytes()
	}
	return blocks, bytes
}

// Stats reads the counts.
func (p *Picker) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Blocks, s.Bytes = p.size()
	s.Replicas = len(p.replicas)
	return s
}

// Idle reports that this head has no request anywhere.
func (p *Picker) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replicas {
		if r.inFlight > 0 {
			return false
		}
	}
	return true
}
