package affinity

import "time"

// Ticket is one request at the replica that was chosen for it. Each of its
// methods counts once, in whatever order and however often they are called.
type Ticket struct {
	Index int  // of the candidate
	Cost  Cost // as it was chosen

	p     *Picker
	r     *replica
	q     Query
	began time.Time
	depth int // blocks warm before
	work  int // tokens to be computed up to its first token

	first, done, told bool
}

// First notes the first byte of the answer: the prompt is computed.
func (t *Ticket) First(now time.Time) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	if t.first || t.done {
		return
	}
	t.computed()
	// What waited before it was partly computed already, nobody knows how far:
	// only a prompt that met an idle replica tells of the rate.
	if t.q.Whole || t.Cost.Pending > t.Cost.New/4 {
		return
	}
	t.r.measure(t.work, now.Sub(t.began)-t.Cost.Hop-t.Cost.Wait, now)
}

func (t *Ticket) computed() {
	t.first = true
	t.r.pending -= t.Cost.New
	t.p.out.moved()
}

// Done ends the request. One that had no first byte has computed nothing.
func (t *Ticket) Done(now time.Time) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	if t.done {
		return
	}
	if t.first {
		t.r.served(now.Sub(t.began))
	} else {
		t.computed()
		t.r.index.forget(t.q.Chain, t.depth)
	}
	t.done = true
	t.r.inFlight--
	t.p.out.moved()
}

// Cached notes what the engine says of the prompt: its tokens, and how many of
// them it had.
func (t *Ticket) Cached(prompt, cached int) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	if t.told || prompt <= 0 || cached < 0 || cached > prompt {
		return
	}
	t.told = true
	s := &t.p.stats
	s.Answers++
	s.Prompt += uint64(prompt)
	s.Cached += uint64(cached)
	believed := int(float64(t.Cost.Warm) * t.r.perToken)
	s.Believed += uint64(believed)
	t.r.correct(believed, cached)
	if t.q.Tokens >= measurable {
		t.r.counted(t.q.Tokens, prompt)
	}
}
