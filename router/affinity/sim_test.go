package affinity

import (
	"container/heap"
	"container/list"
	"math/rand/v2"
	"slices"
	"time"
)

// The simulated mesh. Its engines know nothing of this package's index: they
// have a cache of their own, so that what heads believe can be wrong.
const (
	simReplicas = 8
	simKV       = 1_000_000             // tokens of each cache
	simPrefill  = 8000                  // tokens/s, one prompt at a time
	simToken    = 20 * time.Millisecond // a decoded token
	simWire     = 5 * time.Millisecond  // from head to head
	simPresence = time.Second           // how often holders tell their load
)

// simulation runs one trace through one policy, in virtual time. Equal
// parameters give equal results.
type simulation struct {
	heads  int
	loss   float64 // of messages, for each that should get one
	policy policy

	now     time.Time
	events  events
	engines []*engine
	told    [simReplicas]int // requests in flight, as holders last told
	rng     *rand.Rand
	count   uint64

	ttft         []time.Duration
	blocks, hits int
	requests     int // that have not ended
}

// policy chooses replicas. chosen gives two functions: called at the first
// token and at the end.
type policy interface {
	pick(s *simulation, head int, r *traced) (replica int, first, done func())
}

type event struct {
	at  time.Time
	seq uint64
	run func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func (s *simulation) after(d time.Duration, run func()) {
	s.count++
	heap.Push(&s.events, event{s.now.Add(d), s.count, run})
}

// outcome is what a run gave.
type outcome struct {
	hits      float64 // of all blocks
	mean, p90 time.Duration
	spread    float64 // tokens computed by the busiest replica, by the mean
}

func simulate(trace []traced, heads int, loss float64, p policy) outcome {
	s := &simulation{heads: heads, loss: loss, policy: p, now: time.Unix(1_000_000_000, 0), rng: rand.New(rand.NewPCG(1, uint64(heads)))}
	for range simReplicas {
		s.engines = append(s.engines, &engine{s: s, cache: newCache(simKV)})
	}
	for i := range trace {
		r := &trace[i]
		head := s.rng.IntN(heads)
		s.after(r.at, func() { s.arrive(head, r) })
	}
	s.requests = len(trace)
	s.presence()
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.run()
	}
	return s.outcome()
}

// presence tells all heads what is in flight, until all is done.
func (s *simulation) presence() {
	for i, e := range s.engines {
		s.told[i] = e.inFlight
	}
	if s.requests > 0 {
		s.after(simPresence, s.presence)
	}
}

func (s *simulation) arrive(head int, r *traced) {
	began := s.now
	replica, first, done := s.policy.pick(s, head, r)
	e := s.engines[replica]
	e.inFlight++
	e.take(&job{r: r, first: func() {
		s.ttft = append(s.ttft, s.now.Sub(began))
		first()
		s.after(time.Duration(r.output)*simToken, func() {
			e.inFlight--
			s.requests--
			done()
		})
	}})
}

func (s *simulation) outcome() outcome {
	slices.Sort(s.ttft)
	var sum time.Duration
	for _, d := range s.ttft {
		sum += d
	}
	most, all := 0, 0
	for _, e := range s.engines {
		most = max(most, e.computed)
		all += e.computed
	}
	n := len(s.ttft)
	return outcome{
		hits: float64(s.hits) / float64(s.blocks), mean: sum / time.Duration(n), p90: s.ttft[n*9/10],
		spread: float64(most) * simReplicas / float64(all),
	}
}

// engine computes prompts one after the other.
type engine struct {
	s        *simulation
	cache    *cache
	queue    []*job
	busy     bool
	inFlight int
	computed int // tokens
}

type job struct {
	r     *traced
	first func()
}

func (e *engine) take(j *job) {
	e.queue = append(e.queue, j)
	if !e.busy {
		e.start()
	}
}

func (e *engine) start() {
	j := e.queue[0]
	e.queue = e.queue[1:]
	e.busy = true
	hits := e.cache.depth(j.r.chain)
	e.s.blocks += len(j.r.chain)
	e.s.hits += hits
	fresh := max(j.r.input-j.r.chain.to(hits), 1)
	e.computed += fresh
	e.s.after(time.Duration(fresh)*time.Second/simPrefill, func() {
		e.cache.use(j.r.chain)
		e.busy = false
		j.first()
		if len(e.queue) > 0 {
			e.start()
		}
	})
}

// cache is an engine's: blocks by last use, the ends of prompts dropped first.
type cache struct {
	tokens, limit int
	blocks        map[Hash]*list.Element
	order         list.List // newest first
}

type cached struct {
	hash   Hash
	tokens int
}

func newCache(limit int) *cache { return &cache{limit: limit, blocks: make(map[Hash]*list.Element)} }

func (c *cache) depth(chain Chain) int {
	for i, l := range chain {
		if c.blocks[l.Hash] == nil {
			return i
		}
	}
	return len(chain)
}

func (c *cache) use(chain Chain) {
	for i := len(chain) - 1; i >= 0; i-- {
		if e := c.blocks[chain[i].Hash]; e != nil {
			c.order.MoveToFront(e)
			continue
		}
		tokens := int(chain.tokens(i))
		c.blocks[chain[i].Hash] = c.order.PushFront(cached{chain[i].Hash, tokens})
		c.tokens += tokens
	}
	for c.tokens > c.limit {
		last := c.order.Remove(c.order.Back()).(cached)
		delete(c.blocks, last.hash)
		c.tokens -= last.tokens
	}
}
