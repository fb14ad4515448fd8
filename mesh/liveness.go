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
	// askEvery spaces the questions to others about a suspect, and vouchedFor is how
	// long the word of one that reaches it is good for.
	askEvery   = 2 * time.Second
	vouchedFor = 5 * time.Second
	// lateTick: our own clock tick came this late, so we were the ones who slept.
	lateTick = 500 * time.Millisecond
	// doubtFor is how long this box then gives the others twice the time: what kept
	// it from running may come again.
	doubtFor = 10 * time.Second
	// clockJump: the wall clock moved by this much more or less than the time that
	// passed. After a suspend the monotonic clock shows nothing.
	clockJump = 5 * time.Second
)

// State is how alive a node is, as this box sees it.
type State string

// States of a node. Self is this box.
const (
	StateSelf    State = "self"
	StateLive    State = "live"
	StateSuspect State = "suspect" // silent, and a probe failed: not to be routed to
	StateDead    State = "dead"    // silent for 10 s and reached by nobody, or not heard since this daemon started
	StateLeft    State = "left"
)

// liveness judges one peer. It is pure: the time is passed in, and what to do is
// handed back. Its zero value is a peer that was never heard.
type liveness struct {
	heardAt    time.Time
	ever       bool
	state      State
	probing    bool
	lastProbe  time.Time
	asking     bool
	lastAsk    time.Time
	vouchedAt  time.Time // when another last reached it
	hungUp     time.Time // when its connection was last closed for silence
	doubtUntil time.Time // until then this box mistrusts itself
}

// todo is what a tick asks for.
type todo struct {
	probe      bool // ask the peer directly, then call probed
	ask        bool // have others probe it, then call vouched
	disconnect bool // the silence is too long: close its connections
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
	l.vouchedAt, l.hungUp = time.Time{}, time.Time{}
	return changed
}

// patient is a limit of silence, wider while this box mistrusts itself.
func (l *liveness) patient(d time.Duration, now time.Time) time.Duration {
	if now.Before(l.doubtUntil) {
		return 2 * d
	}
	return d
}

// tick judges the silence so far.
func (l *liveness) tick(now time.Time) todo {
	if l.current() == StateDead {
		return todo{}
	}
	silent := now.Sub(l.heardAt)
	if silent < l.patient(suspectAfter, now) {
		return todo{}
	}
	var do todo
	if l.state == StateSuspect && silent >= l.patient(deadAfter, now) {
		if now.Sub(l.vouchedAt) > vouchedFor {
			l.state = StateDead
			return todo{disconnect: l.hungUp.IsZero(), changed: true}
		}
		// Another reaches it, so it is not dead; a new connection may help.
		if now.Sub(l.hungUp) >= deadAfter {
			l.hungUp, do.disconnect = now, true
		}
	}
	if l.state == StateSuspect && !l.asking && now.Sub(l.lastAsk) >= askEvery {
		l.asking, l.lastAsk, do.ask = true, now, true
	}
	if !l.probing && now.Sub(l.lastProbe) >= probeWait {
		l.probing, l.lastProbe, do.probe = true, now, true
	}
	return do
}

// probed takes a probe's result; it tells whether the state changed.
func (l *liveness) probed(now time.Time, answered bool) bool {
	l.probing = false
	if answered {
		return l.heard(now)
	}
	if l.state == StateLive && now.Sub(l.heardAt) >= l.patient(suspectAfter, now) {
		l.state = StateSuspect
		return true
	}
	return false
}

// vouched takes what others found.
func (l *liveness) vouched(now time.Time, reached bool) {
	l.asking = false
	if reached {
		l.vouchedAt = now
	}
}

// slept takes out of the reckoning a time in which this box itself did not run, and
// makes it more patient for a while. What was heard since it runs again is not moved
// into the future: the silence after that would not count.
func (l *liveness) slept(now time.Time, d time.Duration) {
	l.doubtUntil = now.Add(doubtFor)
	if l.ever && l.heardAt.Before(now) {
		l.heardAt = l.heardAt.Add(min(d, now.Sub(l.heardAt)))
	}
}

// recheck has the peer probed now: this box may have been away for long without a
// clock that shows it, and all connections may be gone.
func (l *liveness) recheck(now time.Time) {
	if due := now.Add(-l.patient(suspectAfter, now)); l.state == StateLive && l.heardAt.After(due) {
		l.heardAt = due
	}
}

// lapse compares two looks at a clock that should be linkTick apart: late is how
// much later the second came by the monotonic clock, jumped that the wall clock
// tells another story.
func lapse(wall, monotonic time.Duration) (late time.Duration, jumped bool) {
	return monotonic - linkTick, (wall - monotonic).Abs() >= clockJump
}
