package affinity

import "time"

const (
	// defaultRate is a prefill rate until one was measured.
	defaultRate = 2000 // tokens/s
	// defaultService is how long a request holds a slot, until measured.
	defaultService = 2 * time.Second
	// measurable is the least work that a rate is read from: below it the time
	// is that of other things.
	measurable = 256 // tokens
	// weigh is the part of a new measurement in an average.
	weigh = 0.2
	// toldFor is how long what another head told of its load is believed: it
	// tells again each second.
	toldFor = 3 * time.Second
	// rateFor is how long an own measurement goes before what others told.
	rateFor = 5 * time.Minute
	// defaultKV is the cache of a replica that does not tell, in tokens.
	defaultKV = 256 << 10
	// leastShare bounds how far a cache is believed smaller than it tells.
	leastShare = 1.0 / 16
)

// replica is what this head believes of one.
type replica struct {
	index *index
	boot  uint64
	// share of the cache it tells that seems to hold prefixes: engines keep
	// some for answers, and drop when they must.
	share    float64
	kv       int64   // in the engine's tokens
	perToken float64 // an engine's tokens for one of ours

	pending  int // tokens of own requests that have no first byte
	inFlight int // own requests
	told     map[string]load
	rate     float64   // own measurement; 0: none
	rated    time.Time // when
	service  time.Duration
	listed   time.Time // when it was last a candidate or in the catalog
}

// load is one head's part of a replica's load.
type load struct {
	pending, inFlight int
	rate              int // tokens/s as that head measured; 0: not
	at                time.Time
}

func newReplica(now time.Time) *replica {
	r := &replica{share: 1, perToken: 1, kv: defaultKV, told: make(map[string]load), service: defaultService, listed: now}
	r.index = newIndex(blocksFor(r.kv), r.kv)
	return r
}

// blocksFor bounds the blocks of a cache: most have 128 tokens and more, those
// of short messages fewer.
func blocksFor(tokens int64) int { return int(min(tokens/32+64, maxBlocks)) }

// see takes over what the holder tells.
func (r *replica) see(c Candidate, now time.Time) {
	r.listed = now
	if c.Boot != 0 && c.Boot != r.boot {
		if r.boot != 0 {
			r.index.clear()
		}
		r.boot = c.Boot
	}
	if c.KVTokens > 0 && c.KVTokens != r.kv {
		r.kv = c.KVTokens
		r.bound()
	}
}

func (r *replica) bound() {
	tokens := int64(float64(r.kv) * r.share / r.perToken)
	r.index.limit(blocksFor(tokens), tokens)
}

// load is this head's own, exactly, and what the others told.
func (r *replica) load(now time.Time) (pending, inFlight int) {
	pending, inFlight = r.pending, r.inFlight
	for _, t := range r.told {
		if now.Sub(t.at) <= toldFor {
			pending += t.pending
			inFlight += t.inFlight
		}
	}
	return pending, inFlight
}

// rateAt is the prefill rate as all heads measured it, so that they agree; a
// guess where none has.
func (r *replica) rateAt(now time.Time) float64 {
	sum, n := 0, 0 // whole numbers: their sum does not depend on the order
	if r.rate > 0 && now.Sub(r.rated) < rateFor {
		sum, n = int(r.rate), 1
	}
	for _, t := range r.told {
		if t.rate > 0 && now.Sub(t.at) < rateFor {
			sum += t.rate
			n++
		}
	}
	switch {
	case n > 0:
		return float64(sum) / float64(n)
	case r.rate > 0:
		return r.rate
	}
	return defaultRate
}

// measure reads a rate from a request that had work before it and of its own.
func (r *replica) measure(work int, took time.Duration, now time.Time) {
	if work < measurable || took <= 0 {
		return
	}
	rate := float64(work) / took.Seconds()
	if r.rate > 0 {
		// One answer from a cache that we knew nothing of is no faster engine.
		rate = min(max(rate, r.rate/4), r.rate*4)
		rate = r.rate + weigh*(rate-r.rate)
	}
	r.rate, r.rated = rate, now
}

func (r *replica) served(took time.Duration) {
	r.service += time.Duration(weigh * float64(took-r.service))
}

// correct compares what was believed warm with what the engine found.
func (r *replica) correct(believed, cached int) {
	before := r.share
	switch {
	case believed < measurable:
	case cached < believed/2:
		r.share = max(r.share*0.9, leastShare)
	case cached >= believed*9/10:
		r.share = min(r.share*1.01, 1)
	}
	if r.share != before {
		r.bound()
	}
}

// counted learns how many tokens the engine makes of a prompt.
func (r *replica) counted(estimate, prompt int) {
	ratio := min(max(float64(prompt)/float64(estimate), 0.1), 10)
	r.perToken += 0.05 * (ratio - r.perToken)
	r.bound()
}
