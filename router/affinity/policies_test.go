package affinity

import (
	"fmt"
	"time"
)

// ours is this package, a picker for each head.
type ours struct {
	pickers []*Picker
	due     []time.Time // of each head's flush; zero: none
	mute    bool        // nothing is shared
}

func newOurs(heads int, mute bool) *ours {
	o := &ours{due: make([]time.Time, heads), mute: mute}
	for i := range heads {
		o.pickers = append(o.pickers, NewPicker(uint64(i+1)))
	}
	return o
}

func simCandidates(s *simulation) []Candidate {
	cs := make([]Candidate, simReplicas)
	for i := range cs {
		cs[i] = Candidate{Replica: Replica(traceHash(int64(i)+1<<40)) << 8, Remote: true, InFlight: s.told[i], KVTokens: simKV}
	}
	return cs
}

func (o *ours) pick(s *simulation, head int, r *traced) (int, func(), func()) {
	q := Query{Chain: r.chain, Tokens: r.input, Root: uint64(r.chain[min(1, len(r.chain)-1)].Hash)}
	t := o.pickers[head].Pick(q, simCandidates(s), s.now)
	o.arm(s, head, FlushAfter)
	return t.Index, func() { t.First(s.now); o.arm(s, head, FlushAfter) }, func() { t.Done(s.now); o.arm(s, head, FlushAfter) }
}

// arm flushes a head's news after a while, or earlier if that was agreed, and
// as long as it has any.
func (o *ours) arm(s *simulation, head int, d time.Duration) {
	at := s.now.Add(d)
	if o.mute || s.heads == 1 || !o.due[head].IsZero() && !at.Before(o.due[head]) {
		return
	}
	o.due[head] = at
	s.after(d, func() {
		if !o.due[head].Equal(at) {
			return // an earlier flush took its place
		}
		o.due[head] = time.Time{}
		msg, again := o.pickers[head].Flush(s.now)
		if msg != nil {
			o.send(s, head, msg)
		}
		if again > 0 {
			o.arm(s, head, again)
		}
	})
}

func (o *ours) send(s *simulation, from int, msg []byte) {
	for to := range o.pickers {
		if to == from || s.rng.Float64() < s.loss {
			continue
		}
		s.after(simWire, func() {
			if _, err := o.pickers[to].Take(fmt.Sprint("head", from), msg, s.now); err != nil {
				panic(err)
			}
		})
	}
}

// counting is the state that other systems' heads have: what they sent where,
// and the prefixes of that. With several heads each has its own.
type counting struct {
	heads  []*countingHead
	choose func(h *countingHead, r *traced) int
}

type countingHead struct {
	inFlight [simReplicas]int // own, or as holders told, whichever is more
	own      [simReplicas]int
	matches  [simReplicas]*cache
	turn     int
}

func newCounting(heads int, choose func(*countingHead, *traced) int) *counting {
	c := &counting{choose: choose}
	for range heads {
		h := &countingHead{}
		for i := range h.matches {
			h.matches[i] = newCache(simKV)
		}
		c.heads = append(c.heads, h)
	}
	return c
}

func (c *counting) pick(s *simulation, head int, r *traced) (int, func(), func()) {
	h := c.heads[head]
	for i := range h.inFlight {
		h.inFlight[i] = h.own[i]
		if s.heads > 1 {
			h.inFlight[i] = max(h.own[i], s.told[i])
		}
	}
	i := c.choose(h, r)
	h.own[i]++
	h.matches[i].use(r.chain)
	return i, func() {}, func() { h.own[i]-- }
}

func roundRobin(h *countingHead, _ *traced) int {
	h.turn++
	return h.turn % simReplicas
}

func leastLoad(h *countingHead, _ *traced) int {
	best := 0
	for i, n := range h.inFlight {
		if n < h.inFlight[best] {
			best = i
		}
	}
	return best
}

// sglang is SGLang's cache_aware with its defaults: match 0.3, imbalance 64
// and 1.5.
func sglang(h *countingHead, r *traced) int {
	least := leastLoad(h, r)
	low, high := h.inFlight[least], h.inFlight[least]
	for _, n := range h.inFlight {
		high = max(high, n)
	}
	if high-low > 64 && float64(high) > 1.5*float64(low) {
		return least
	}
	best, depth := longest(h, r)
	if float64(depth) > 0.3*float64(len(r.chain)) {
		return best
	}
	return least
}

// longest match, the least loaded among equal ones.
func longest(h *countingHead, r *traced) (best, depth int) {
	depth = -1
	for i := range h.matches {
		d := h.matches[i].depth(r.chain)
		if d > depth || d == depth && h.inFlight[i] < h.inFlight[best] {
			best, depth = i, d
		}
	}
	return best, depth
}

// hitCount goes where most hits are, whatever waits there.
func hitCount(h *countingHead, r *traced) int {
	best, _ := longest(h, r)
	return best
}
