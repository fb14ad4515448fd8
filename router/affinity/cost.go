package affinity

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// kvCeiling is the KV use above which a replica gets nothing while another
	// is below: a prefill there would push running answers out.
	kvCeiling = 0.9
	// perRequest is what each request in flight adds to a prefill beside it.
	// It is small, as what holders tell is up to a second old: it decides where
	// nothing waits and nothing is warm.
	perRequest = 2 * time.Millisecond
	// tie is the difference in cost that says nothing, of beliefs as old as
	// ours. Among replicas that near the rendezvous decides, so that heads
	// which choose at the same moment choose alike.
	tie = time.Millisecond
	// defaultHop is the way to another node and back, until one is measured.
	defaultHop = 2 * time.Millisecond
	// sessionPrior is the part of a prompt that is taken for warm where its
	// session was last, when its bytes show nothing.
	sessionPrior = 0.5
)

// Replica names a replica in the whole mesh; see ReplicaOf.
type Replica uint64

// ReplicaOf names the replica of a model that a peer holds in a slot.
func ReplicaOf(peer, model string, slot int) Replica {
	var d xxhash.Digest
	d.ResetWithSeed(NameHash(peer, model))
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(slot))
	_, _ = d.Write(b[:])
	return Replica(d.Sum64())
}

// Candidate is a replica that may be chosen, as its holder last told.
type Candidate struct {
	Replica  Replica
	Boot     uint64 // changes when its engine starts anew, and its cache with it; 0: unknown
	Remote   bool
	Hop      time.Duration // to it and back; 0: unknown
	InFlight int           // requests there, all heads' together
	Slots    int           // requests it computes at once; 0: unknown
	KVTokens int64         // its cache holds, the largest tier; 0: unknown
	KVUse    float64       // of it by running requests, 0 to 1; 0: unknown
	Weight   float64       // its share beside others; 0: 1
	Priority int           // a lower one gets what a higher one cannot take
}

// Cost is a candidate's predicted time to the first token, and what it is made
// of.
type Cost struct {
	Replica  Replica
	Total    time.Duration
	Warm     int // tokens of this prompt
	New      int // tokens of this prompt to compute
	Pending  int // tokens that wait there
	InFlight int
	Rate     float64       // tokens a second in prefill
	Wait     time.Duration // for a slot
	Hop      time.Duration
	// Excluded: it gets the request only if all others are excluded as well.
	Excluded bool
	Why      string // it is excluded
	Chosen   bool
	tier     int
	full     bool
	rank     uint64
}

// costOf predicts the time to the first token: what waits there and what is
// new, at the rate that was measured, a slot and the way.
func (r *replica) costOf(q *Query, c Candidate, now time.Time, ttl stamp, on bool) Cost {
	pending, inFlight := r.load(now)
	out := Cost{
		Replica: c.Replica, Pending: pending, InFlight: max(inFlight, c.InFlight), Rate: r.rateAt(now),
		Hop: hopOf(c), tier: c.Priority, rank: rank(q.Root, c.Replica),
	}
	if on {
		out.Warm = r.warm(q, stampOf(now), ttl)
	}
	out.New = max(q.Tokens-out.Warm, 1)
	out.Wait = r.slotWait(out.InFlight, c.Slots)
	seconds := float64(out.Pending+out.New) / out.Rate
	if c.Weight > 0 {
		seconds /= c.Weight
	}
	out.Total = time.Duration(seconds*float64(time.Second)) + time.Duration(out.InFlight)*perRequest + out.Wait + out.Hop
	out.full = c.Slots > 0 && out.InFlight >= c.Slots
	if c.KVUse > kvCeiling {
		out.full, out.Excluded, out.Why = true, true, "its KV cache is full"
	}
	return out
}

func hopOf(c Candidate) time.Duration {
	if c.Hop == 0 && c.Remote {
		return defaultHop
	}
	return c.Hop
}

// warm tokens of the query. The session speaks only where the bytes do not.
func (r *replica) warm(q *Query, now, ttl stamp) int {
	if n := r.index.depth(q.Chain, now, ttl); n > 0 {
		return q.Chain.to(n)
	}
	if q.Session != 0 && r.index.depth(Chain{{Hash: q.Session}}, now, ttl) == 1 {
		return int(sessionPrior * float64(q.Tokens))
	}
	return 0
}

// slotWait is the time until one of its slots is free.
func (r *replica) slotWait(inFlight, slots int) time.Duration {
	if slots <= 0 || inFlight < slots {
		return 0
	}
	return time.Duration(inFlight-slots+1) * r.service / time.Duration(slots)
}

// rank orders replicas for one conversation, the same at each head.
func rank(root uint64, r Replica) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(root)
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(r))
	_, _ = d.Write(b[:])
	return d.Sum64()
}

// choose marks the best and what was out of question; -1 for no costs.
func choose(costs []Cost) int {
	holdBack(costs)
	best := -1
	for i, c := range costs {
		if best < 0 || c.before(costs[best]) {
			best = i
		}
	}
	if best < 0 {
		return -1
	}
	least := costs[best]
	for i, c := range costs {
		if c.Excluded == least.Excluded && c.Total <= least.Total+tie && c.rank > costs[best].rank {
			best = i
		}
	}
	costs[best].Chosen = true
	return best
}

func (c Cost) before(d Cost) bool {
	if c.Excluded != d.Excluded {
		return d.Excluded
	}
	return c.Total < d.Total
}

// holdBack excludes the replicas of a lower priority while one of a higher
// priority takes more. When all are full, all compete.
func holdBack(costs []Cost) {
	top, found := 0, false
	for _, c := range costs {
		if !c.full && !c.Excluded && (!found || c.tier > top) {
			top, found = c.tier, true
		}
	}
	if !found {
		return
	}
	for i := range costs {
		if c := &costs[i]; c.tier < top && !c.Excluded {
			c.Excluded, c.Why = true, "another of higher priority has room"
		}
	}
}
