package mesh

import "time"

const (
	// heartbeatEach: a heartbeat is under 64 bytes.
	heartbeatEach = time.Second
	// suspectAfter of silence a direct probe decides.
	suspectAfter = 3 * time.Second
	// deadAfter of silence the connection is closed and dialled anew.
	deadAfter = 10 * time.Second
	// probeWait bounds a probe; probes repeat while the silence lasts.
	probeWait = time.Second
	// lateTick: our own clock tick came this late, so we were the ones who slept.
	lateTick = 500 * time.Millisecond
)

// State is how alive a node is, as this box sees it.
type State string

// States of a node. Self is this box.
const (
	StateSelf    State = "self"
	StateLive    State = "live"
	StateSuspect State = "suspect" // silent, and a probe failed: not to be routed to
	StateDead    State = "dead"    // silent for 10 s, or not heard since this daemon started
	StateLeft    State = "left"
)

// liveness judges one peer. It is pure: the time is passed in, and what to do is
// handed back. Its zero value is a peer that was never heard.
type liveness struct {
	heardAt   time.Time
	ever      bool
	state     State
	probing   bool
	lastProbe time.Time
}

// todo is what a tick asks for.
type todo struct {
	probe      bool // ask the peer directly, then call probed
	disconnect bool // the peer just died: close its connections
	changed    bool
}

func (l *liveness) current() State {
	if l.state == "" {
		return StateDead
	}
	return l.state
}

// heard notes a sign of life; it tells whether the state changed.
func (l *liveness) heard(now time.Time) bool {
	changed := l.current() != StateLive
	l.heardAt, l.ever, l.state = now, true, StateLive
	return changed
}

// tick judges the silence so far.
func (l *liveness) tick(now time.Time) todo {
	if l.current() == StateDead {
		return todo{}
	}
	silent := now.Sub(l.heardAt)
	switch {
	case silent < suspectAfter:
		return todo{}
	case l.state == StateSuspect && silent >= deadAfter:
		l.state = StateDead
		return todo{disconnect: true, changed: true}
	case l.probing || now.Sub(l.lastProbe) < probeWait:
		return todo{}
	}
	l.probing, l.lastProbe = true, now
	return todo{probe: true}
}

// probed takes a probe's result; it tells whether the state changed.
func (l *liveness) probed(now time.Time, answered bool) bool {
	l.probing = false
	if answered {
		return l.heard(now)
	}
	if l.state == StateLive && now.Sub(l.heardAt) >= suspectAfter {
		l.state = StateSuspect
		return true
	}
	return false
}

// slept takes out of the reckoning a time in which this box itself did not run.
func (l *liveness) slept(d time.Duration) {
	if l.ever {
		l.heardAt = l.heardAt.Add(d)
	}
}
