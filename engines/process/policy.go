package process

import "time"

// Policy decides what follows the end of an engine. It is pure: the caller
// keeps the history and passes the time.
type Policy struct {
	Base   time.Duration // delay after the first crash; doubles with each further one
	Max    time.Duration // longest delay
	Window time.Duration // crashes older than this are forgotten
	Limit  int           // crashes within Window that end in quarantine
	// EarlyLimit is Limit for a replica that was never ready: what cannot load
	// once will rarely load the fourth time, and each try costs a load.
	EarlyLimit int
}

// DefaultPolicy brings an engine back half a second after a single crash.
func DefaultPolicy() Policy {
	return Policy{Base: 500 * time.Millisecond, Max: 30 * time.Second, Window: 10 * time.Minute, Limit: 5, EarlyLimit: 3}
}

// History is what a replica remembers of its crashes.
type History struct {
	Crashes []time.Time // oldest first
	Ready   bool        // it was ready at least once since the history began
}

// Decision is what to do after a crash.
type Decision struct {
	Quarantine bool
	Delay      time.Duration
	Count      int // crashes within the window, this one included
}

// Crashed adds a crash at now and decides.
func (p Policy) Crashed(h History, now time.Time) (History, Decision) {
	next := History{Ready: h.Ready}
	for _, t := range h.Crashes {
		if now.Sub(t) < p.Window {
			next.Crashes = append(next.Crashes, t)
		}
	}
	next.Crashes = append(next.Crashes, now)
	n := len(next.Crashes)
	limit := p.Limit
	if !h.Ready {
		limit = p.EarlyLimit
	}
	if n >= limit {
		return next, Decision{Quarantine: true, Count: n}
	}
	return next, Decision{Delay: p.delay(n), Count: n}
}

// delay doubles from Base; the loop ends at Max, so it cannot overflow.
func (p Policy) delay(n int) time.Duration {
	d := p.Base
	for i := 1; i < n && d < p.Max; i++ {
		d *= 2
	}
	return min(d, p.Max)
}
