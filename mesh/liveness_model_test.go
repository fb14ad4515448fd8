package mesh

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// watched is a liveness with what really happened: when the peer last gave a sign, and
// when this box itself last stood still.
type watched struct {
	rt    *rapid.T
	now   time.Time
	l     liveness
	sign  time.Time // of life
	stood time.Time // when this box last ran again after it had not
}

func (w *watched) pass(d time.Duration) { w.now = w.now.Add(d) }

// act does one thing that can happen, after a while.
func (w *watched) act() {
	w.pass(time.Duration(rapid.IntRange(0, 4000).Draw(w.rt, "ms")) * time.Millisecond)
	before := w.l.current()
	switch rapid.IntRange(0, 8).Draw(w.rt, "what") {
	case 0, 1:
		w.sign = w.now
		if changed := w.l.heard(w.now); changed != (before != StateLive) || w.l.current() != StateLive {
			w.rt.Fatalf("heard while %s: %s, changed %v", before, w.l.current(), changed)
		}
	case 2:
		w.answer(rapid.Bool().Draw(w.rt, "answers"), before)
	case 3:
		w.l.vouched(w.now, rapid.Bool().Draw(w.rt, "reached"))
		w.same(before, "another's word")
	case 4:
		w.stand(before)
	case 5:
		w.l.recheck(w.now)
		w.same(before, "a second look")
	default:
		w.tick(before)
	}
	if w.l.heardAt.After(w.now) {
		w.rt.Fatalf("heard %s from now", w.l.heardAt.Sub(w.now))
	}
}

// answer is the end of a probe.
func (w *watched) answer(ok bool, before State) {
	if ok {
		w.sign = w.now
	}
	w.l.probed(w.now, ok)
	switch after := w.l.current(); {
	case ok && after != StateLive:
		w.rt.Fatalf("it answered and is %s", after)
	case !ok && before != after && (before != StateLive || after != StateSuspect):
		w.rt.Fatalf("a probe without an answer made %s of %s", after, before)
	case !ok && before != after && w.now.Sub(w.sign) < suspectAfter && w.now.Sub(w.stood) > 0 && w.l.heardAt.Equal(w.sign):
		w.rt.Fatalf("suspect after %s of silence", w.now.Sub(w.sign))
	}
}

// stand has this box not run for a while. It may hear the peer before it notices.
func (w *watched) stand(before State) {
	d := time.Duration(rapid.IntRange(1, 7200).Draw(w.rt, "seconds")) * time.Second
	w.pass(d)
	if rapid.Bool().Draw(w.rt, "heard first") {
		w.sign = w.now
		w.l.heard(w.now)
		before = StateLive
	}
	w.l.slept(w.now, d)
	w.stood = w.now
	w.same(before, "a sleep of this box")
}

func (w *watched) tick(before State) {
	do := w.l.tick(w.now)
	after := w.l.current()
	if do.changed != (before != after) {
		w.rt.Fatalf("tick says changed %v, %s to %s", do.changed, before, after)
	}
	if before == after {
		return
	}
	if before != StateSuspect || after != StateDead {
		w.rt.Fatalf("a tick made %s of %s", after, before)
	}
	if silent := w.now.Sub(w.l.heardAt); silent < deadAfter {
		w.rt.Fatalf("dead after %s of silence", silent)
	}
	if w.now.Before(w.l.doubtUntil) && w.now.Sub(w.l.heardAt) < 2*deadAfter {
		w.rt.Fatal("dead by a box that doubts itself")
	}
	if !do.disconnect && w.l.hungUp.IsZero() {
		w.rt.Fatal("dead, and the connection stays")
	}
}

func (w *watched) same(before State, why string) {
	if after := w.l.current(); after != before {
		w.rt.Fatalf("%s made %s of %s", why, after, before)
	}
}

// TestLivenessNeverJumps: whatever happens in whatever order, live becomes dead only by
// way of suspect, and nothing but a sign of life makes a peer live.
func TestLivenessNeverJumps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &watched{rt: rt, now: time.Unix(1000, 0)}
		if rapid.Bool().Draw(rt, "known") {
			w.sign = w.now
			w.l.heard(w.now)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "acts") {
			w.act()
		}
		// From here on it is silent and nobody reaches it: it is dead in the end, however
		// long this box had slept.
		for range int((2*(deadAfter+suspectAfter) + vouchedFor) / linkTick) {
			w.pass(linkTick)
			do := w.l.tick(w.now)
			if do.probe || w.l.probing {
				w.l.probed(w.now, false)
			}
			if do.ask || w.l.asking {
				w.l.vouched(w.now, false)
			}
		}
		if got := w.l.current(); got != StateDead {
			rt.Fatalf("silent for ever and %s: %+v", got, w.l)
		}
	})
}

// TestSleepDoesNotHideASilence: after a sleep of this box the peer that was heard at once
// and then no more is suspected as if there had been no sleep.
func TestSleepDoesNotHideASilence(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		heard, slept time.Duration // heard this long after the sleep of that length
		lastly       time.Duration // when it counts as heard, after the sleep
	}{
		"heard before the sleep was noticed": {0, time.Hour, 0},
		"heard a moment before the sleep":    {-time.Hour - time.Second, time.Hour, -time.Second},
		"heard long before the sleep":        {-time.Hour - time.Minute, time.Hour, -time.Minute},
		"heard in the midst of it":           {-time.Second, time.Minute, 0},
	} {
		var l liveness
		awake := start.Add(2 * time.Hour)
		l.heard(awake.Add(c.heard))
		l.slept(awake, c.slept)
		if got := l.heardAt.Sub(awake); got != c.lastly {
			t.Errorf("%s: counts as heard %s after the sleep, want %s", name, got, c.lastly)
		}
	}
}

// TestNeverHeardIsNotJudged: what happens around a peer that was never heard gives it no
// past.
func TestNeverHeardIsNotJudged(t *testing.T) {
	now := time.Unix(1000, 0)
	var l liveness
	l.slept(now, time.Hour)
	l.recheck(now)
	l.vouched(now, true)
	if l.probed(now, false) || l.ever || l.current() != StateDead {
		t.Errorf("%+v", l)
	}
	if do := l.tick(now.Add(time.Hour)); do != (todo{}) {
		t.Errorf("asks for %+v", do)
	}
	if !l.probed(now, true) || l.current() != StateLive {
		t.Error("a probe that is answered is a sign of life")
	}
}

// TestQuestionsKeepTheirDistance: however often a suspect is looked at, one probe and one
// question run at a time, and not in a tight loop.
func TestQuestionsKeepTheirDistance(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1000, 0)
		var l liveness
		l.heard(now)
		now = now.Add(suspectAfter)
		l.tick(now)
		l.probed(now, false)
		var probed, asked time.Time
		probing, asking := false, false
		for range rapid.IntRange(1, 300).Draw(rt, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(rt, "ms")) * time.Millisecond)
			do := l.tick(now)
			if do.probe {
				if probing || now.Sub(probed) < probeWait {
					rt.Fatalf("probe %s after the last, running %v", now.Sub(probed), probing)
				}
				probed, probing = now, true
			}
			if do.ask {
				if asking || now.Sub(asked) < askEvery {
					rt.Fatalf("question %s after the last, running %v", now.Sub(asked), asking)
				}
				asked, asking = now, true
			}
			if probing && rapid.IntRange(0, 7).Draw(rt, "probe ends") == 0 {
				probing = false
				l.probed(now, false)
			}
			if asking && rapid.IntRange(0, 7).Draw(rt, "question ends") == 0 {
				asking = false
				l.vouched(now, true)
			}
		}
	})
}

// TestReachedByOthersIsHungUpNowAndThen: one that only others reach gets a new connection
// each 10 s, and is dead once nobody reaches it any more.
func TestReachedByOthersIsHungUpNowAndThen(t *testing.T) {
	now := time.Unix(1000, 0)
	var l liveness
	l.heard(now)
	var last time.Time
	hangUps := 0
	step := func(reached bool) {
		now = now.Add(linkTick)
		do := l.tick(now)
		if do.probe {
			l.probed(now, false)
		}
		if do.ask {
			l.vouched(now, reached)
		}
		if do.disconnect && l.current() != StateDead {
			if !last.IsZero() && now.Sub(last) < deadAfter {
				t.Fatalf("hung up %s after the last time", now.Sub(last))
			}
			hangUps, last = hangUps+1, now
		}
	}
	for range int(time.Minute / linkTick) {
		step(true)
		if l.current() == StateDead {
			t.Fatal("dead, and others reach it")
		}
	}
	if hangUps < 4 || hangUps > 6 {
		t.Errorf("hung up %d times in a minute", hangUps)
	}
	for range int(10 * time.Second / linkTick) {
		step(false)
	}
	if l.current() != StateDead {
		t.Errorf("reached by nobody and %s", l.current())
	}
}
