package mesh

import (
	"testing"
	"time"
)

func TestTripsKeepTheLeastOfTheLast(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var way trips
	if way.least() != 0 || !way.due(now) {
		t.Fatal("nothing is measured, and nothing due")
	}
	for i, took := range []time.Duration{40, 9, 30, 20, 25} {
		way.took(took*time.Millisecond, true, now)
		soon := i < tripsKept-1
		if way.due(now.Add(tripSoon-1)) || way.due(now.Add(tripSoon)) != soon {
			t.Errorf("after %d: due at %v", i+1, way.next.Sub(now))
		}
		now = now.Add(tripEach)
	}
	if got := way.least(); got != 9*time.Millisecond {
		t.Errorf("least %v", got)
	}
	// What is old counts no more; what failed does not count.
	for _, took := range []time.Duration{50, 60, 1, 70, 80, 55} {
		way.took(took*time.Millisecond, took != 1, now)
	}
	if got := way.least(); got != 50*time.Millisecond || len(way.last) != tripsKept {
		t.Errorf("least %v of %v", got, way.last)
	}
	way.busy = true
	if way.due(now.Add(time.Hour)) {
		t.Error("due while one is under way")
	}
	way.busy = false
	if !way.due(now.Add(-24 * time.Hour)) {
		t.Error("a clock that was set back ends the measuring for a day")
	}
}

func TestTheWayToAPeerIsMeasured(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	trip := func() time.Duration {
		for _, n := range a.mesh.Nodes() {
			if n.ID == b.id() {
				return n.RoundTrip
			}
		}
		return -1
	}
	eventually(t, "it is measured", func() bool { return trip() > 0 })
	// On this machine it is far below what a probe may take.
	if d := trip(); d >= probeWait {
		t.Errorf("it takes %v", d)
	}
	// A new connection may go another way: what was measured on the old one is forgotten.
	l, _ := a.mesh.links.get(b.peer())
	l.mu.Lock()
	l.trips.last = []time.Duration{1}
	l.mu.Unlock()
	a.mesh.links.connected(b.peer())
	eventually(t, "it is measured anew", func() bool { return trip() > 1 })
}
