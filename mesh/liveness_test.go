package mesh

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// step is one thing that happens to a liveness, at a time after its start.
type step struct {
	at     time.Duration
	do     string // heard, tick, probe fails, probe answers, slept (for 20 s)
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
			{at: 4100 * time.Millisecond, do: "tick", probe: true, state: StateSuspect},
			{at: 5 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 10 * time.Second, do: "tick", hangUp: true, state: StateDead},
			{at: 11 * time.Second, do: "tick", state: StateDead},
			{at: 12 * time.Second, do: "heard", state: StateLive},
		},
		"a suspect that answers is live": {
			{at: 0, do: "heard", state: StateLive},
			{at: 3 * time.Second, do: "tick", probe: true, state: StateLive},
			{at: 4 * time.Second, do: "probe fails", state: StateSuspect},
			{at: 5 * time.Second, do: "tick", probe: true, state: StateSuspect},
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
			{at: 23 * time.Second, do: "tick", probe: true, state: StateLive},
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
					l.slept(20 * time.Second)
				default:
					t.Fatalf("unknown step %q", s.do)
				}
				if did.probe != s.probe || did.disconnect != s.hangUp || l.current() != s.state {
					t.Fatalf("step %d (%s at %s): %+v and %s, want probe %v, hang up %v, %s",
						i, s.do, s.at, did, l.current(), s.probe, s.hangUp, s.state)
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
			if l.tick(now).probe {
				l.probed(now, false)
			}
		}
		if l.current() != StateDead {
			rt.Fatalf("silent for 12 s and %s", l.current())
		}
	})
}
