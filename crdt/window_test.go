package crdt_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"llmgw/crdt"
)

var (
	meter = crdt.Meter{Limit: "rpm", Subject: "key", Metric: "requests"}
	alive = func(crdt.Incarnation) bool { return true }
)

func inc(replica, boot uint64) crdt.Incarnation {
	return crdt.Incarnation{Replica: crdt.ReplicaID(replica), Boot: boot}
}

func ok(t interface {
	Helper()
	Fatalf(string, ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// A restart counts on under another incarnation, and what was counted before still counts, without any disk.
func TestRestartForgetsNoCount(t *testing.T) {
	peer := crdt.NewWindowSet(inc(9, 1))
	first := crdt.NewWindowSet(inc(1, 1))
	ok(t, first.Add(meter, 100, 5))
	peer.Merge(first.Own(100), 100)
	second := crdt.NewWindowSet(inc(1, 2))
	ok(t, second.Add(meter, 100, 3))
	peer.Merge(second.Own(100), 100)
	peer.Merge(first.Own(100), 100)
	if got := peer.Used(meter, 100); got != 8 {
		t.Errorf("used %d", got)
	}
	second.Merge(peer.All(), 100)
	if got := second.Used(meter, 100); got != 8 {
		t.Errorf("the restarted node sees %d", got)
	}
}

func TestWindowsOutOfTimeAreIgnored(t *testing.T) {
	for _, tc := range []struct {
		name   string
		window int64
		taken  int
	}{{"six back", 94, 0}, {"five back", 95, 1}, {"one ahead", 101, 1}, {"two ahead", 102, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			w := crdt.NewWindowSet(inc(1, 1))
			got := w.Merge([]crdt.WindowEntry{{Meter: meter, Window: tc.window, By: inc(2, 1), Count: crdt.WindowCount{Used: 1}}}, 100)
			if got != tc.taken {
				t.Errorf("took %d", got)
			}
		})
	}
	w := crdt.NewWindowSet(inc(1, 1))
	ok(t, w.Add(meter, 94, 1))
	ok(t, w.Add(meter, 95, 1))
	w.Expire(100)
	if got := w.All(); len(got) != 1 || got[0].Window != 95 {
		t.Errorf("kept %+v", got)
	}
}

func TestEstimateSlides(t *testing.T) {
	w := crdt.NewWindowSet(inc(1, 1))
	ok(t, w.Add(meter, 99, 100))
	ok(t, w.Add(meter, 100, 10))
	begin := time.Unix(100*60, 0)
	for _, tc := range []struct {
		after time.Duration
		want  float64
	}{{0, 110}, {15 * time.Second, 85}, {30 * time.Second, 60}, {59 * time.Second, 10 + 100.0/60}} {
		if got := w.Estimate(meter, begin.Add(tc.after)); got < tc.want-0.01 || got > tc.want+0.01 {
			t.Errorf("%s into the minute: %f, want %f", tc.after, got, tc.want)
		}
	}
}

func TestWindowOf(t *testing.T) {
	for at, want := range map[time.Duration]int64{0: 0, 59999 * time.Millisecond: 0, time.Minute: 1, -1: -1, -time.Minute: -1, -time.Minute - 1: -2} {
		if got := crdt.WindowOf(time.Unix(0, int64(at))); got != want {
			t.Errorf("%s is in window %d, want %d", at, got, want)
		}
	}
}

func TestReservations(t *testing.T) {
	w := crdt.NewWindowSet(inc(1, 1))
	hold, err := w.Reserve(meter, 100, 50)
	ok(t, err)
	dropped, err := w.Reserve(meter, 100, 7)
	ok(t, err)
	if got := w.Held(meter, alive); got != 57 {
		t.Errorf("held %d", got)
	}
	ok(t, w.Release(dropped))
	ok(t, w.Commit(hold, 101, 20))
	if held, used := w.Held(meter, alive), w.Used(meter, 101); held != 0 || used != 20 {
		t.Errorf("held %d, used %d", held, used)
	}
	// The window of a hold may be gone by the time its request ends: what was used counts all the same.
	late, err := w.Reserve(meter, 101, 5)
	ok(t, err)
	w.Expire(200)
	ok(t, w.Commit(late, 200, 4))
	if used, all := w.Used(meter, 200), w.All(); used != 4 || len(all) != 1 {
		t.Errorf("used %d, counts %+v", used, all)
	}
}

func TestDeadIncarnationsHoldNothing(t *testing.T) {
	w := crdt.NewWindowSet(inc(1, 1))
	w.Merge([]crdt.WindowEntry{
		{Meter: meter, Window: 100, By: inc(2, 1), Count: crdt.WindowCount{Used: 3, Up: 40}},
		{Meter: meter, Window: 100, By: inc(2, 2), Count: crdt.WindowCount{Up: 2}},
	}, 100)
	got := w.Held(meter, func(i crdt.Incarnation) bool { return i.Boot == 2 })
	if got != 2 || w.Used(meter, 100) != 3 {
		t.Errorf("held %d, used %d", got, w.Used(meter, 100))
	}
}

func TestCountsEnd(t *testing.T) {
	w := crdt.NewWindowSet(inc(1, 1))
	ok(t, w.Add(meter, 100, crdt.MaxAmount))
	if err := w.Add(meter, 100, 1); !errors.Is(err, crdt.ErrExhausted) {
		t.Errorf("beyond the end: %v", err)
	}
	if _, err := w.Reserve(meter, 100, crdt.MaxAmount+1); !errors.Is(err, crdt.ErrExhausted) {
		t.Errorf("reserved beyond the end: %v", err)
	}
	if w.Used(meter, 100) != crdt.MaxAmount || w.Held(meter, alive) != 0 {
		t.Error("a refused count was counted")
	}
}

// However counts travel, everybody comes to the true sum.
func TestWindowsCountEverythingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := []*crdt.WindowSet{crdt.NewWindowSet(inc(1, 1)), crdt.NewWindowSet(inc(2, 1)), crdt.NewWindowSet(inc(3, 1))}
		node := rapid.IntRange(0, 2)
		truth := uint64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "count") {
				n := rapid.Uint64Range(0, 5).Draw(t, "n")
				ok(t, nodes[node.Draw(t, "node")].Add(meter, 100, n))
				truth += n
				continue
			}
			nodes[node.Draw(t, "to")].Merge(nodes[node.Draw(t, "from")].All(), 100)
		}
		for range 2 {
			for _, a := range nodes {
				for _, b := range nodes {
					a.Merge(b.Own(0), 100)
				}
			}
		}
		for i, n := range nodes {
			if got := n.Used(meter, 100); got != truth {
				t.Fatalf("node %d sees %d of %d", i, got, truth)
			}
		}
	})
}

func TestMeshTimeMeetsHalfWay(t *testing.T) {
	var a, b crdt.MeshTime
	wall := time.Unix(1000, 0)
	a.Observe(wall, []time.Duration{time.Second})
	b.Observe(wall.Add(time.Second), []time.Duration{-time.Second})
	if got := b.Now(wall.Add(time.Second)).Sub(a.Now(wall)); got != 0 {
		t.Errorf("they differ by %s", got)
	}
}

func TestMeshTimeSlews(t *testing.T) {
	var m crdt.MeshTime
	wall := time.Unix(1000, 0)
	m.Observe(wall, []time.Duration{0, 0})
	for range 10 {
		wall = wall.Add(time.Second)
		m.Observe(wall, []time.Duration{time.Second, time.Second})
	}
	if got := m.Now(wall).Sub(wall); got != 5*time.Millisecond {
		t.Errorf("after 10 s it moved by %s, want 500 millionths", got)
	}
	// The wall clock was set back: no time has passed.
	m.Observe(wall.Add(-time.Hour), []time.Duration{time.Second, time.Second})
	if got := m.Now(wall).Sub(wall); got != 5*time.Millisecond {
		t.Errorf("a clock step moved it to %s", got)
	}
	wall = wall.Add(10 * time.Hour)
	m.Observe(wall, []time.Duration{time.Second, time.Second})
	if got := m.Now(wall).Sub(wall); got != time.Second {
		t.Errorf("it went beyond the median to %s", got)
	}
}

func TestMeshTimeGivesUpOnAClockThatIsFarOff(t *testing.T) {
	var m crdt.MeshTime
	wall := time.Unix(1000, 0)
	m.Observe(wall, []time.Duration{3 * time.Second, 3 * time.Second})
	if !m.Skewed() || !m.Now(wall).Equal(wall) {
		t.Errorf("skewed %v, time %s off", m.Skewed(), m.Now(wall).Sub(wall))
	}
	m.Observe(wall, []time.Duration{2 * time.Second, 2 * time.Second})
	if m.Skewed() {
		t.Error("still skewed at the bound")
	}
	// One bad clock among three moves nobody.
	var one crdt.MeshTime
	one.Observe(wall, []time.Duration{0, time.Hour})
	if one.Skewed() || !one.Now(wall).Equal(wall) {
		t.Error("one bad clock moved the mesh")
	}
}

func TestMeshTimeNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m crdt.MeshTime
		wall := time.Unix(1000, 0)
		m.Observe(wall, nil)
		last := m.Now(wall)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			wall = wall.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			offset := time.Duration(rapid.IntRange(-2000, 2000).Draw(t, "offset")) * time.Millisecond
			m.Observe(wall, []time.Duration{offset, offset})
			if now := m.Now(wall); now.Before(last) {
				t.Fatalf("%s after %s", now, last)
			} else {
				last = now
			}
		}
	})
}
