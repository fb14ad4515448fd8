package mesh

import (
	"context"
	"slices"
	"time"
)

const (
	// tripEach is how often the way to a live peer and back is measured, tripSoon how often
	// until tripsKept of the last are there.
	tripEach, tripSoon = time.Minute, 5 * time.Second
	tripsKept          = 5
)

// trips are the last measured ways to a peer and back. Its zero value knows none.
type trips struct {
	last []time.Duration
	next time.Time // when the next one is due
	busy bool      // one is under way
}

// due says whether to measure now.
func (t *trips) due(now time.Time) bool {
	return !t.busy && (!now.Before(t.next) || t.next.Sub(now) > tripEach) // or the clock was set
}

// took takes a measurement; ok is false for one that failed.
func (t *trips) took(d time.Duration, ok bool, now time.Time) {
	t.busy = false
	if ok {
		t.last = append(t.last, d)
		t.last = t.last[max(len(t.last)-tripsKept, 0):]
	}
	t.next = now.Add(tripEach)
	if len(t.last) < tripsKept {
		t.next = now.Add(tripSoon)
	}
}

// least is the shortest of the last: what others took longer is the work of busy boxes, not
// the way. 0: none was measured.
func (t *trips) least() time.Duration {
	if len(t.last) == 0 {
		return 0
	}
	return slices.Min(t.last)
}

// measure times a probe of the peer. trips.busy is set.
func (l *link) measure(ctx context.Context) {
	began := time.Now()
	err := l.m.probe(ctx, l.peer)
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trips.took(took, err == nil, l.m.now())
}
