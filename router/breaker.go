package router

import (
	"sync"
	"time"
)

const (
	// breakAfter failures of a replica in a row open its breaker: one may be
	// the request's own fault.
	breakAfter = 3
	// firstBreak is how long a breaker stays open at first; each further
	// failure doubles it up to lastBreak.
	firstBreak, lastBreak = time.Second, 30 * time.Second
	// forgetBreak ends what is remembered of a replica that is not asked.
	forgetBreak = 10 * time.Minute
)

// breakers keep requests from replicas that failed several times in a row.
// What counts are connections that do not come about, silence, and answers of
// 5xx; what a client did wrong never does. After its time one request is let
// through, and decides.
type breakers struct {
	mu   sync.Mutex
	open map[replicaKey]*breaker // those with a failure
}

type breaker struct {
	failures int
	until    time.Time
	trial    time.Time // when a request was let through; zero: none is out
	last     time.Time
}

// admits leaves of replicas those whose breaker is closed or due for a trial;
// all of them when none is.
func (b *breakers) admits(replicas []Replica, now time.Time) []Replica {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) == 0 {
		return replicas
	}
	out := make([]Replica, 0, len(replicas))
	for _, c := range replicas {
		if s := b.open[c.key()]; s == nil || !s.blocks(now) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return replicas
	}
	return out
}

func (s *breaker) blocks(now time.Time) bool {
	if s.failures < breakAfter {
		return false
	}
	return now.Before(s.until) || !s.trial.IsZero() && now.Sub(s.trial) < lastBreak
}

// asks notes that a request is sent to a replica.
func (b *breakers) asks(key replicaKey, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.open[key]; s != nil && s.failures >= breakAfter {
		s.trial = now
	}
}

// ends notes how that went. A request that says nothing of the replica ends as
// neither.
func (b *breakers) ends(key replicaKey, verdict verdict, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.open[key]
	switch {
	case verdict == worked:
		delete(b.open, key)
	case verdict == failed:
		if s == nil {
			s = &breaker{}
			b.keep(key, s, now)
		}
		s.failures++
		s.last, s.trial = now, time.Time{}
		if over := s.failures - breakAfter; over >= 0 {
			s.until = now.Add(min(firstBreak<<min(over, 10), lastBreak))
		}
	case s != nil:
		s.trial = time.Time{}
	}
}

// keep remembers one more, and drops those that nobody asks any longer.
func (b *breakers) keep(key replicaKey, s *breaker, now time.Time) {
	if b.open == nil {
		b.open = make(map[replicaKey]*breaker)
	}
	for other, o := range b.open {
		if now.Sub(o.last) > forgetBreak {
			delete(b.open, other)
		}
	}
	b.open[key] = s
}

// verdict is what an attempt says of its replica.
type verdict int

const (
	undecided verdict = iota // refused in order, or the client left
	worked
	failed
)

// count is how many replicas are kept from requests now.
func (b *breakers) count(now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.open {
		if s.blocks(now) {
			n++
		}
	}
	return n
}
