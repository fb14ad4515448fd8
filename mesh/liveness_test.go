package mesh

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// step is one thing that happens to a liveness, at a time after its start.
type step struct {
	at     time.Duration
	do     string // heard, tick, probe fails, probe answers, reached, unreached (by others), slept (for 20 s), recheck
	ask    bool   // of a tick: wants others to look
	probe  bool   // of a tick: wants a probe
	hangUp bool   // of a tick: wants to disconnect
	state  State
}

func TestLiveness(t *testing.T) {
	cases := map[string][]step{
		"never heard is dead and never probed": {
			{at: 0, do: "tick", state: StateDead},
			{at: time.Hour, do: "tick", state: StateDead},
		},
		"one heartbeat makes it live": {
			{at: 0, do: "heard", state: StateLive},
			{at: 2900 * time.Millisecond, do: "tick", state: StateLive},
		},
		"silence alone is no suspicion": {
			{at: 0, do: "heard", state: StateLive},
			{at: 3 * time.Second, do: "tick", probe: true, state: StateLive},
			{at: 3500 * time.Millisecond, do: "tick", state: StateLive},
			{at: 4 * time.Second, do: "probe answers", state: StateLive},
			{at: 6 * time.Second, do: "tick", state: StateLive},
			{at: 7 * time.Second, do: "tick", probe: true, state: StateLive},
		},
		"silence and a failed probe, then death": {
			{at: 0, do: "heard", state: StateLive},
			{at: 3 * time.Second, do: "tick", probe: true, state: StateLive},
			{at: 4 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 4100 * time.Millisecond, do: "tick", probe: true, ask: true, state: StateSuspect},
			{at: 5 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 10 * time.Second, do: "tick", hangUp: true, state: StateDead},
			{at: 11 * time.Second, do: "tick", state: StateDead},
			{at: 12 * time.Second, do: "heard", state: StateLive},
		},
		"a suspect that answers is live": {
			{at: 0, do: "heard", state: StateLive},
			{at: 3 * time.Second, do: "tick", probe: true, state: StateLive},
			{at: 4 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 5 * time.Second, do: "tick", probe: true, ask: true, state: StateSuspect},
			{at: 6 * time.Second, do: "probe answers", state: StateLive},
		},
		"heard while the probe was under way": {
			{at: 0, do: "heard", state: StateLive},
			{at: 3 * time.Second, do: "tick", probe: true, state: StateLive},
			{at: 3500 * time.Millisecond, do: "heard", state: StateLive},
			{at: 4 * time.Second, do: "probe fails", state: StateLive},
		},
		"we slept, so nobody is accused": {
			{at: 0, do: "heard", state: StateLive},
			{at: 20 * time.Second, do: "slept", state: StateLive},
			{at: 20 * time.Second, do: "tick", state: StateLive},
			{at: 23 * time.Second, do: "tick", state: StateLive}, // in doubt of itself
			{at: 26 * time.Second, do: "tick", probe: true, state: StateLive},
			{at: 27 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 29 * time.Second, do: "tick", probe: true, ask: true, state: StateSuspect},
			{at: 31 * time.Second, do: "tick", hangUp: true, state: StateDead}, // doubt is over
		},
		"others reach it: unrouted here, not dead": {
			{at: 0, do: "heard", state: StateLive},
			{at: 3 * time.Second, do: "tick", probe: true, state: StateLive},
			{at: 4 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 4 * time.Second, do: "tick", probe: true, ask: true, state: StateSuspect},
			{at: 5 * time.Second, do: "reached", state: StateSuspect},
			{at: 5 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 9 * time.Second, do: "tick", probe: true, ask: true, state: StateSuspect},
			{at: 10 * time.Second, do: "tick", hangUp: true, state: StateSuspect}, // a new connection may help
			{at: 10 * time.Second, do: "reached", state: StateSuspect},
			{at: 10 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 12 * time.Second, do: "tick", probe: true, ask: true, state: StateSuspect},
			{at: 13 * time.Second, do: "unreached", state: StateSuspect},
			{at: 13 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 15 * time.Second, do: "tick", probe: true, ask: true, state: StateSuspect},
			{at: 16 * time.Second, do: "tick", state: StateDead},
			{at: 17 * time.Second, do: "heard", state: StateLive},
		},
		"looked at again after a suspend": {
			{at: 0, do: "heard", state: StateLive},
			{at: time.Second, do: "recheck", state: StateLive},
			{at: time.Second, do: "tick", probe: true, state: StateLive},
			{at: 2 * time.Second, do: "probe fails", state: StateSuspect},
		},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			var l liveness
			for i, s := range steps {
				now := start.Add(s.at)
				var did todo
				switch s.do {
				case "heard":
					l.heard(now)
				case "tick":
					did = l.tick(now)
				case "probe fails":
					l.probed(now, false)
				case "probe answers":
					l.probed(now, true)
				case "slept":
					l.slept(now, 20*time.Second)
				case "reached":
					l.vouched(now, true)
				case "unreached":
					l.vouched(now, false)
				case "recheck":
					l.recheck(now)
				default:
					t.Fatalf("unknown step %q", s.do)
				}
				if did.probe != s.probe || did.ask != s.ask || did.disconnect != s.hangUp || l.current() != s.state {
					t.Fatalf("step %d (%s at %s): %+v and %s, want probe %v, ask %v, hang up %v, %s",
						i, s.do, s.at, did, l.current(), s.probe, s.ask, s.hangUp, s.state)
				}
			}
		})
	}
}

// TestLivenessLaws: whatever happens, a peer that is heard each second is never
// suspect, and one that is silent and answers no probe is dead after 12 s.
func TestLivenessLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1000, 0)
		var l liveness
		l.heard(now)
		for range rapid.IntRange(0, 200).Draw(rt, "seconds") {
			now = now.Add(time.Second)
			l.heard(now)
			if l.tick(now).probe || l.current() != StateLive {
				rt.Fatal("a peer that beats is accused")
			}
			if rapid.Bool().Draw(rt, "late answer") {
				l.probed(now, rapid.Bool().Draw(rt, "answered"))
			}
			if l.current() != StateLive {
				rt.Fatal("a late probe outweighs a heartbeat")
			}
		}
		for range 48 {
			now = now.Add(250 * time.Millisecond)
			do := l.tick(now)
			if do.probe {
				l.probed(now, false)
			}
			if do.ask {
				l.vouched(now, false)
			}
		}
		if l.current() != StateDead {
			rt.Fatalf("silent for 12 s and %s", l.current())
		}
	})
}

func TestLapse(t *testing.T) {
	for name, c := range map[string]struct {
		wall, monotonic time.Duration
		late            time.Duration
		jumped          bool
	}{
		"in time":                 {linkTick, linkTick, 0, false},
		"starved":                 {3 * time.Second, 3 * time.Second, 3*time.Second - linkTick, false},
		"suspended for an hour":   {time.Hour, linkTick, 0, true},
		"clock set back":          {-time.Hour, linkTick, 0, true},
		"clock slewed":            {linkTick + time.Second, linkTick, 0, false},
		"paused, clocks together": {time.Minute, time.Minute, time.Minute - linkTick, false},
	} {
		if late, jumped := lapse(c.wall, c.monotonic); late != c.late || jumped != c.jumped {
			t.Errorf("%s: late %s, jumped %v", name, late, jumped)
		}
	}
}

func TestRowsThatStayDifferentArePulled(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	m := &Mesh{}
	m.links = newLinkSet(m)
	l := &link{m: m}
	if l.lacks(7, at(time.Minute)) {
		t.Error("pulled before the own rows were summed up")
	}
	m.links.state.Store(5)
	if l.lacks(5, at(2*time.Minute)) {
		t.Error("pulled the same rows")
	}
	steps := []struct {
		at         time.Duration
		state, own uint64
		want       bool
	}{
		{0, 7, 5, false},
		{2 * time.Second, 7, 5, false}, // gossip may still be under way
		{3 * time.Second, 7, 5, true},
		{4 * time.Second, 7, 5, false}, // that pull brought nothing: not again
		{60 * time.Second, 7, 5, false},
		{61 * time.Second, 7, 6, true}, // something came, and it still differs
		{62 * time.Second, 8, 6, false},
		{64 * time.Second, 9, 6, false}, // the peer is being written to
		{66 * time.Second, 9, 6, false},
		{67 * time.Second, 9, 6, true},
		{80 * time.Second, 9, 9, false},
	}
	for _, s := range steps {
		m.links.state.Store(s.own)
		if got := l.lacks(s.state, at(time.Hour+s.at)); got != s.want {
			t.Errorf("at %s with %d against %d: %v", s.at, s.state, s.own, got)
		}
	}
}
