package relay

import (
	"sync/atomic"
	"time"
)

const (
	// gatherFrom is how many event streams must run at once before the events of
	// any are gathered: what a few streams cost is no matter.
	gatherFrom = 16
	// gatherTime is the longest that an event waits for others to come.
	gatherTime = 20 * time.Millisecond
	// gatherTick is what waits end at, so that one waking of the process serves
	// several streams. It is a small part of gatherTime: streams that wake at once
	// keep a new request waiting, and those that end at once are followed by requests
	// that come at once. A quarter cost 1 ms more to the first byte and no less CPU
	// than a thirty-second part; without any tick, CPU and the first byte cost more.
	gatherTick = gatherTime / 32
	// gatherGap is how close events must follow each other: further apart, too
	// few would share a read to be worth the wait.
	gatherGap = gatherTime * 3 / 4
	// gatherAfter is how many reads of a stream come before its first wait, so
	// that what a person sees first comes at once.
	gatherAfter = 2
	// fullRead is a read that hardly ends where the engine's bytes do: waiting
	// before the next one would only slow a long answer down.
	fullRead = bufferBytes * 3 / 4
	// atHand is the most that a read takes whose bytes were there.
	atHand = 500 * time.Microsecond
)

// gather lets the events of one stream collect while many streams run: a read
// and a write cost about the same for one event as for ten.
type gather struct {
	streams *atomic.Int64 // that run; nil: this one is never gathered
	held    *held         // its socket
	reads   int
	fast    bool // events follow each other closely
	slept   time.Duration
	began   time.Time // of the read that is on
}

// gather is how the event stream of this exchange is read. What comes from
// another node was gathered there.
func (x *Exchange) gather() *gather {
	c, ok := x.conn.(*engineConn)
	if !ok {
		return new(gather)
	}
	c.engines.streams.Add(1)
	return &gather{streams: &c.engines.streams, held: &c.held}
}

// end gives the place among the running streams back.
func (g *gather) end() {
	if g.streams != nil {
		g.streams.Add(-1)
	}
}

// before comes before a read and returns when that is worth making; idle says
// that no byte is in hand that could go out now.
func (g *gather) before(idle bool) {
	if g.streams == nil {
		return
	}
	now := time.Now()
	if g.slept = 0; idle {
		g.slept = g.pause(now)
	}
	if g.slept > 0 {
		g.held.hold()
		time.Sleep(g.slept)
		now = time.Now()
	}
	g.began = now
}

// pause is how long a read at now waits; 0: not at all.
func (g *gather) pause(now time.Time) time.Duration {
	if !g.fast || g.reads < gatherAfter || g.streams.Load() < gatherFrom {
		return 0
	}
	return gatherTime - time.Duration(now.UnixNano())%gatherTick
}

// after comes after a read and learns how fast events come.
func (g *gather) after() {
	if g.streams == nil {
		return
	}
	g.reads++
	took := time.Since(g.began)
	g.fast = took < atHand || g.slept == 0 && took < gatherGap
}
