package process

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"llmgw/engines"
)

var epoch = time.Unix(1_700_000_000, 0)

func TestPolicy(t *testing.T) {
	p := Policy{Base: time.Second, Max: 3 * time.Second, Window: time.Minute, Limit: 5, EarlyLimit: 3}
	for _, tc := range []struct {
		name  string
		ready bool
		at    []time.Duration
		want  []Decision
	}{
		{"delay doubles to the limit", true, []time.Duration{0, 1, 2, 3, 4},
			[]Decision{{Delay: time.Second, Count: 1}, {Delay: 2 * time.Second, Count: 2}, {Delay: 3 * time.Second, Count: 3},
				{Delay: 3 * time.Second, Count: 4}, {Quarantine: true, Count: 5}}},
		{"never ready is given up earlier", false, []time.Duration{0, 1, 2},
			[]Decision{{Delay: time.Second, Count: 1}, {Delay: 2 * time.Second, Count: 2}, {Quarantine: true, Count: 3}}},
		{"old crashes are forgotten", true, []time.Duration{0, 30 * time.Second, 70 * time.Second, 200 * time.Second},
			[]Decision{{Delay: time.Second, Count: 1}, {Delay: 2 * time.Second, Count: 2}, {Delay: 2 * time.Second, Count: 2},
				{Delay: time.Second, Count: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := History{Ready: tc.ready}
			var got []Decision
			for _, at := range tc.at {
				var d Decision
				h, d = p.Crashed(h, epoch.Add(at))
				got = append(got, d)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPolicyLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Base: time.Duration(rapid.Int64Range(1, 1e9).Draw(t, "base")), Max: time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "max")),
			Window: time.Minute, Limit: rapid.IntRange(1, 100).Draw(t, "limit"), EarlyLimit: rapid.IntRange(1, 100).Draw(t, "early"),
		}
		h := History{Ready: rapid.Bool().Draw(t, "ready")}
		now, last := epoch, time.Duration(0)
		for range 120 {
			var d Decision
			before := len(h.Crashes)
			h, d = p.Crashed(h, now)
			if d.Delay < 0 || d.Delay > p.Max || len(h.Crashes) != before+1 {
				t.Fatalf("decision %+v with %d crashes", d, len(h.Crashes))
			}
			if d.Quarantine {
				return
			}
			if d.Delay < last {
				t.Fatalf("delay fell from %s to %s", last, d.Delay)
			}
			last, now = d.Delay, now.Add(time.Millisecond)
		}
		t.Fatal("a crash loop was never given up")
	})
}

func TestProgressCountsWhatMoves(t *testing.T) {
	base := sight{logBytes: 10, rssBytes: 50 << 20, answers: true, health: engines.HealthLoading}
	for name, tc := range map[string]struct {
		next  sight
		moved bool
	}{
		"nothing":         {base, false},
		"log line":        {sight{11, base.rssBytes, true, base.health}, true},
		"memory":          {sight{10, 51 << 20, true, base.health}, true},
		"a few pages":     {sight{10, 50<<20 + 4096, true, base.health}, false},
		"memory shrinks":  {sight{10, 20 << 20, true, base.health}, false},
		"health":          {sight{10, base.rssBytes, true, engines.HealthOK}, true},
		"no answer":       {sight{10, base.rssBytes, false, base.health}, true},
		"memory is given": {sight{10, 0, true, base.health}, false},
	} {
		p := newProgress(epoch)
		p.see(base, epoch)
		later := epoch.Add(time.Minute)
		if moved := p.see(tc.next, later); moved != tc.moved {
			t.Errorf("%s: moved %v", name, moved)
		}
		if idle := p.idle(later); (idle == 0) != tc.moved {
			t.Errorf("%s: idle for %s", name, idle)
		}
	}
	p := newProgress(epoch)
	for i := range 10 {
		p.see(sight{rssBytes: 100<<20 + int64(i%2)*(64<<20)}, epoch.Add(time.Duration(i)*time.Second))
	}
	if idle := p.idle(epoch.Add(9 * time.Second)); idle != 8*time.Second {
		t.Errorf("memory that goes up and down counts as progress: idle %s", idle)
	}
}

func TestPortsAreLeasedOnce(t *testing.T) {
	p, err := newPorts([2]int{100, 103}, func(port int) bool { return port != 102 })
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for range 3 {
		port, err := p.lease(epoch)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, port)
	}
	if diff := cmp.Diff([]int{100, 101, 103}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := p.lease(epoch); !errors.Is(err, errNoPort) {
		t.Errorf("a fourth port: %v", err)
	}
	p.release(100, epoch)
	p.release(100, epoch) // twice is once
	if port, err := p.lease(epoch); err != nil || port != 100 {
		t.Errorf("only the port in quarantine is left, got %d, %v", port, err)
	}
	p.release(101, epoch)
	p.release(103, epoch.Add(-time.Hour))
	if port, err := p.lease(epoch); err != nil || port != 103 {
		t.Errorf("a port in quarantine went before a rested one: %d, %v", port, err)
	}
	p.hold(101)
	if _, err := p.lease(epoch); err == nil {
		t.Error("a held port was leased")
	}
}

func TestPortLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := newPorts([2]int{1000, 1000 + rapid.IntRange(0, 8).Draw(t, "size")}, func(int) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		held := map[int]bool{}
		now := epoch
		for range 60 {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "wait")) * time.Second)
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				for port := range held {
					p.release(port, now)
					delete(held, port)
					break
				}
				continue
			}
			port, err := p.lease(now)
			if full := len(held) == p.last-p.first+1; full != (err != nil) {
				t.Fatalf("%d held, lease says %v", len(held), err)
			}
			if err == nil && (held[port] || port < p.first || port > p.last) {
				t.Fatalf("port %d was given twice or is outside", port)
			}
			if err == nil {
				held[port] = true
			}
		}
	})
}
