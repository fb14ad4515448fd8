package relay

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"llmgw/router/openai"
)

// paced reads a stream whose events are every apart, and tells how many of its
// reads waited and for how long at most.
func paced(running int64, every time.Duration, reads int) (waits int, longest time.Duration) {
	var streams atomic.Int64
	streams.Store(running)
	g := &gather{streams: &streams, held: new(held)}
	next := time.Now()
	for range reads {
		g.before(true)
		if g.slept > 0 {
			waits++
			longest = max(longest, g.slept)
		}
		time.Sleep(time.Until(next)) // nothing where it is past
		for !next.After(time.Now()) {
			next = next.Add(every)
		}
		g.after()
	}
	return waits, longest
}

func TestOnlyFastStreamsAmongManyAreGathered(t *testing.T) {
	for name, c := range map[string]struct {
		streams int64
		every   time.Duration
		want    bool
	}{
		"fast, many":      {gatherFrom, 5 * time.Millisecond, true},
		"very fast, many": {500, 200 * time.Microsecond, true},
		"fast, few":       {gatherFrom - 1, 5 * time.Millisecond, false},
		"slow, many":      {500, 20 * time.Millisecond, false},
		"at the bound":    {500, gatherTime, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const reads = 100
				waits, longest := paced(c.streams, c.every, reads)
				if got := waits > 0; got != c.want {
					t.Errorf("%d of %d reads waited", waits, reads)
				}
				if waits > reads-gatherAfter || longest > gatherTime {
					t.Errorf("%d of %d reads waited, one for %v", waits, reads, longest)
				}
			})
		})
	}
}

func TestGatheringStopsWhenAStreamSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var streams atomic.Int64
		streams.Store(gatherFrom)
		g := &gather{streams: &streams, held: new(held)}
		waited := func(blocked time.Duration, idle bool) bool {
			g.before(idle)
			time.Sleep(blocked)
			g.after()
			return g.slept > 0
		}
		for range gatherAfter {
			waited(5*time.Millisecond, true)
		}
		if !waited(0, true) || waited(0, false) || !waited(time.Second, true) || waited(0, true) {
			t.Error("a stream waited at the wrong time")
		}
	})
}

// TestBytesInHandAreNotKeptWaiting: a stream waits only where all that came has
// gone out.
func TestBytesInHandAreNotKeptWaiting(t *testing.T) {
	x := &Exchange{br: newReader(strings.NewReader("more"))}
	p := pump{x: x, o: pumpOptions()}
	for name, c := range map[string]struct {
		n    int
		do   func()
		want bool
	}{
		"nothing":               {100, func() {}, true},
		"a full read":           {fullRead, func() {}, false},
		"the start of an event": {100, func() { p.held = true }, false},
		"bytes in the buffer":   {100, func() { _, _ = x.br.Peek(1) }, false},
		"the end":               {100, func() { p.track.Feed([]byte(doneFrame)) }, false},
	} {
		x.br.Reset(strings.NewReader("more"))
		p.held, p.track = false, openai.Tracker{}
		c.do()
		if got := p.idle(c.n); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// burst is an engine whose streams have n events, pause apart.
func burst(n int, pause time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range n {
			fmt.Fprintf(w, "data: {\"i\":%d}\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
		say(w, doneFrame)
	}
}

func burstText(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "data: {\"i\":%d}\n\n", i)
	}
	return b.String() + doneFrame
}

// TestGatheredStreamsArriveWhole: in fewer writes than events, on a connection
// that is then used again.
func TestGatheredStreamsArriveWhole(t *testing.T) {
	const events = 200
	s, conns := counted(t, burst(events, time.Millisecond))
	e := NewEngines(quick())
	defer e.Close()
	e.streams.Store(gatherFrom)
	for range 3 {
		x, err := e.Start(t.Context(), Target{URL: s.URL, KeepAlive: true}, call("{}"), nil)
		if err != nil {
			t.Fatal(err)
		}
		out := &sink{}
		answer := Pump(x, out, pumpOptions())
		x.Close()
		if answer.Err != nil || !answer.Sound || out.text() != burstText(events) {
			t.Fatalf("%v, got %q", answer.Err, out.text())
		}
		if len(out.writes) > events*2/3 {
			t.Errorf("%d writes for %d events", len(out.writes), events)
		}
		for _, w := range out.writes {
			if !strings.HasSuffix(w, "\n\n") {
				t.Errorf("write %q is not of whole events", w)
			}
		}
	}
	if got := conns.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
	if got := e.streams.Load(); got != gatherFrom {
		t.Errorf("%d streams are left", got-gatherFrom)
	}
}

// leaver is a client that takes so many writes.
type leaver struct {
	sink
	takes int
}

func (l *leaver) Write(p []byte) error {
	if len(l.writes) == l.takes {
		l.fail = io.ErrClosedPipe
	}
	return l.sink.Write(p)
}

// TestClientThatLeavesAGatheredStreamEndsTheEngine: a stream that waits for
// events to collect is not deaf.
func TestClientThatLeavesAGatheredStreamEndsTheEngine(t *testing.T) {
	ended := make(chan struct{})
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		burst(1<<30, time.Millisecond)(w, r)
	})
	e := NewEngines(quick())
	e.streams.Store(gatherFrom)
	x, err := e.Start(t.Context(), Target{URL: s.URL}, call("{}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer := Pump(x, &leaver{takes: 20}, pumpOptions())
	x.Close()
	if !errors.Is(answer.Err, ErrClientGone) {
		t.Errorf("the stream ended with %v", answer.Err)
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the engine goes on")
	}
}
