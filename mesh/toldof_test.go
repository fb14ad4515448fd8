package mesh

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"llmgw/mesh/catalog"
)

// hosted is a box whose addresses can be asked for, as presence does.
func hosted(t *testing.T) *Mesh {
	t.Helper()
	return newBox(t, "a").mesh
}

// TestAnnouncedAgainIsNotAnnouncedBack: touching the presence while another one is set
// never brings the older one back.
func TestAnnouncedAgainIsNotAnnouncedBack(t *testing.T) {
	t.Parallel()
	m := hosted(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				m.presence.touch()
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for i := range 60 {
		want := fmt.Sprint("sha256:", i)
		m.SetPresence(catalog.Presence{Weights: []string{want}})
		set, _ := m.presence.current()
		for p := set; p.Sequence < set.Sequence+3; p, _ = m.presence.current() { // it was touched meanwhile
			if p.Weights[0] != want {
				t.Fatalf("%s was set, and %s is told", want, p.Weights[0])
			}
			runtime.Gosched()
		}
	}
}

// TestSequencesGrow: of the presences that one run sets each replaces those before, set by
// whomever; and what others could claim is filled in here.
func TestSequencesGrow(t *testing.T) {
	t.Parallel()
	m := hosted(t)
	seen := make(chan catalog.Presence, 1000)
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for i := range 50 {
				m.SetPresence(catalog.Presence{Peer: "liar", Boot: 7, Sequence: 1 << 60, Name: "liar", Version: "99", Weights: []string{fmt.Sprint(i)}})
				p, _ := m.presence.current()
				seen <- p
			}
		})
	}
	work.Wait()
	close(seen)
	last, _ := m.presence.current()
	for p := range seen {
		if p.Peer != m.Self() || p.Boot != m.boot || p.Name != "a" || p.Version != "test" || len(p.Addresses) == 0 {
			t.Fatalf("told as %+v", p)
		}
		if p.Sequence > last.Sequence || newer(last, p) {
			t.Fatalf("sequence %d after %d", last.Sequence, p.Sequence)
		}
	}
}

// TestNewsByWhatMoved: a presence is news when anything moved but for noise.
func TestNewsByWhatMoved(t *testing.T) {
	t.Parallel()
	m := hosted(t)
	gib := int64(1 << 30)
	base := func() catalog.Presence {
		return catalog.Presence{
			Inventory: catalog.Inventory{RAMTotal: ptr(64 * gib), RAMFree: ptr(32 * gib), Devices: []catalog.Device{{MemoryTotal: ptr(16 * gib), MemoryFree: ptr(8 * gib), BusyPercent: ptr(50.0), Celsius: ptr(60.0)}}},
			DiskFree:  ptr(100 * gib),
		}
	}
	for name, c := range map[string]struct {
		change func(*catalog.Presence)
		news   bool
	}{
		"nothing":                {func(*catalog.Presence) {}, false},
		"RAM within a sixteenth": {func(p *catalog.Presence) { *p.Inventory.RAMFree += 3 * gib }, false},
		"RAM by more":            {func(p *catalog.Presence) { *p.Inventory.RAMFree += 5 * gib }, true},
		"memory of a device":     {func(p *catalog.Presence) { *p.Inventory.Devices[0].MemoryFree -= 2 * gib }, true},
		"a little of it":         {func(p *catalog.Presence) { *p.Inventory.Devices[0].MemoryFree += gib / 2 }, false},
		"warmer by a degree":     {func(p *catalog.Presence) { *p.Inventory.Devices[0].Celsius++ }, false},
		"warmer by ten":          {func(p *catalog.Presence) { *p.Inventory.Devices[0].Celsius += 10 }, true},
		"a sensor that is gone":  {func(p *catalog.Presence) { p.Inventory.Devices[0].Celsius = nil }, true},
		"disk by megabytes":      {func(p *catalog.Presence) { *p.DiskFree += 5 << 20 }, false},
		"disk by gigabytes":      {func(p *catalog.Presence) { *p.DiskFree -= 2 * gib }, true},
		"a disk that is unknown": {func(p *catalog.Presence) { p.DiskFree = nil }, true},
		"stopping":               {func(p *catalog.Presence) { p.Stopping = true }, true},
		"a device more":          {func(p *catalog.Presence) { p.Inventory.Devices = append(p.Inventory.Devices, catalog.Device{}) }, true},
	} {
		m.SetPresence(base())
		_, before := m.presence.current()
		next := base()
		c.change(&next)
		m.SetPresence(next)
		if _, after := m.presence.current(); (after != before) != c.news || after > before+1 {
			t.Errorf("%s: version %d after %d, want news %v", name, after, before, c.news)
		}
		if p, _ := m.presence.current(); p.Sequence == 0 || len(p.Inventory.Devices) != len(next.Inventory.Devices) || *p.Inventory.RAMFree != *next.Inventory.RAMFree {
			t.Errorf("%s: what is told is not what was set: %+v", name, p)
		}
	}
	// One that is too large to be told stays away, and the last one goes on to be told.
	m.SetPresence(base())
	before, version := m.presence.current()
	huge := base()
	for range 200 {
		huge.Weights = append(huge.Weights, string(make([]byte, 4096)))
	}
	m.SetPresence(huge)
	if after, v := m.presence.current(); v != version || after.Sequence != before.Sequence || len(after.Weights) != 0 {
		t.Errorf("%d weights are told", len(after.Weights))
	}
}

// TestCoarseLaws: rounding is the same twice, never up, and off by less than a step.
func TestCoarseLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		whole := rapid.Int64Range(-5, 1<<50).Draw(rt, "whole")
		v := rapid.Int64Range(0, 1<<50).Draw(rt, "v")
		got := coarseOf(&v, &whole)
		if whole < coarseParts {
			if *got != v {
				rt.Fatalf("%d of %d became %d", v, whole, *got)
			}
			return
		}
		step := whole / coarseParts
		if *got > v || v-*got >= step || *coarseOf(got, &whole) != *got {
			rt.Fatalf("%d of %d became %d", v, whole, *got)
		}
	})
	if v := int64(5); coarseOf(nil, &v) != nil || coarseOf(&v, nil) != &v || coarseFloat(nil, 4) != nil {
		t.Error("unknown became known")
	}
	p := catalog.Presence{Sequence: 7, Inventory: catalog.Inventory{Devices: []catalog.Device{{Celsius: ptr(61.5)}}}}
	if c := coarsePresence(p); c.Sequence != 0 || *c.Inventory.Devices[0].Celsius != 60 || *p.Inventory.Devices[0].Celsius != 61.5 {
		t.Errorf("%+v from %+v", c, p)
	}
}

// TestPresencesArePickedByTheirSender: boot and sequence, a total order but for equals.
func TestPresencesArePickedByTheirSender(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(l string) catalog.Presence {
			return catalog.Presence{Boot: rapid.Uint64Range(0, 3).Draw(rt, l+" boot"), Sequence: rapid.Uint64Range(0, 3).Draw(rt, l+" sequence")}
		}
		a, b, c := draw("a"), draw("b"), draw("c")
		if newer(a, a) || newer(a, b) && newer(b, a) || newer(a, b) && newer(b, c) && !newer(a, c) {
			rt.Fatalf("%+v %+v %+v", a, b, c)
		}
		if (a.Boot != b.Boot || a.Sequence != b.Sequence) && !newer(a, b) && !newer(b, a) {
			rt.Fatal("of two that differ none is the newer")
		}
	})
}

// TestFramesOfALink: what one frame of a peer changes, and what it cannot.
func TestFramesOfALink(t *testing.T) {
	clock := &fixedClock{}
	m := bareMesh(t, "a", withFixedClock(clock))
	p := m.adds(t, 1, RoleMember)
	l := m.speaksTo(p, 1)
	s := &stream{m: m}
	presence := func(boot, sequence uint64, name string) beat {
		raw, err := marshal(catalog.Presence{Peer: "somebody else", Boot: boot, Sequence: sequence, Name: name, Addresses: []string{"/ip4/192.0.2.1/tcp/1"}})
		if err != nil {
			t.Fatal(err)
		}
		return beat{Kind: beatPresence, Boot: boot, Sequence: sequence, Presence: raw}
	}
	l.take(s, presence(5, 9, "rack\x00 1"))
	if !l.known || l.presence.Peer != p.String() || l.presence.Name != "rack 1" {
		t.Errorf("presence %+v", l.presence)
	}
	for name, b := range map[string]beat{
		"an older one":     presence(5, 8, "old"),
		"the same once":    presence(5, 9, "again"),
		"of an older run":  presence(4, 100, "older"),
		"no presence":      {Kind: beatPresence, Boot: 5, Presence: []byte{0xff}},
		"an empty one":     {Kind: beatPresence, Boot: 5},
		"of another kind":  {Kind: 200, Boot: 5, Presence: presence(6, 1, "hidden").Presence},
		"a pulse with one": {Kind: beatPulse, Boot: 5, Presence: presence(6, 1, "hidden").Presence},
	} {
		l.take(s, b)
		if l.presence.Name != "rack 1" {
			t.Errorf("%s: now %q", name, l.presence.Name)
		}
	}
	l.take(s, presence(6, 1, "rack 2"))
	if l.presence.Name != "rack 2" {
		t.Error("a new run is not heard")
	}
	// Any frame is a sign of life, whatever it says of the time.
	clock.at = clock.at.Add(5 * time.Second)
	l.take(s, beat{Kind: beatPulse, Wall: clock.at.Add(-time.Hour).UnixMilli()})
	if l.health.heardAt != clock.at || l.skew != -time.Hour || l.health.current() != StateLive {
		t.Errorf("heard at %s, skew %s", l.health.heardAt, l.skew)
	}
	l.take(s, beat{Kind: beatPulse})
	if l.skew != -time.Hour {
		t.Error("a frame without a time changes the skew")
	}
	var n Node
	l.describe(&n, clock.at.Add(time.Second))
	if n.Name != "rack 2" || n.State != StateLive || !n.Heard || n.LastHeard != time.Second || n.Skew != -time.Hour {
		t.Errorf("%+v", n)
	}
	// The peer hears this identity twice: it says so, and one of two alone stops nobody.
	m.speaksTo(m.adds(t, 2, RoleMember), 2)
	l.take(s, beat{Kind: beatPulse, Twin: m.boot - 1})
	if len(m.alarmsOf(AlarmClone)) != 1 || m.clones.stopped() {
		t.Errorf("alarms %v, stopped %v", m.Alarms(), m.clones.stopped())
	}
}

// TestLinksAtRest: a link that has nothing to do is left alone.
func TestLinksAtRest(t *testing.T) {
	clock := &fixedClock{}
	m := bareMesh(t, "a", withFixedClock(clock))
	l := m.speaksTo(m.adds(t, 1, RoleMember), 1)
	if !l.restless(clock.at) {
		t.Error("without a stream there is something to do")
	}
	if l.beats = (&stream{m: m}); !l.restless(clock.at) {
		t.Error("the way to it is not measured")
	}
	l.trips.took(time.Millisecond, true, clock.at)
	for after, want := range map[time.Duration]bool{0: false, suspectAfter - 1: false, suspectAfter: true, time.Hour: true} {
		if got := l.restless(clock.at.Add(after)); got != want {
			t.Errorf("after %s: %v", after, got)
		}
	}
	l.health.state = StateSuspect
	if !l.restless(clock.at) {
		t.Error("a suspect is left alone")
	}
	m.links.tick(clock.at, true)
	if len(l.pulse) != 1 || len(l.kicked) != 1 || m.links.state.Load()&1 != 1 {
		t.Error("a tick of the heart reaches no link, or sums up nothing")
	}
	before := m.links.state.Load()
	if err := m.merges("x"); err != nil {
		t.Fatal(err)
	}
	m.links.tick(clock.at, false)
	if m.links.state.Load() != before {
		t.Error("summed up between two heartbeats")
	}
	m.links.tick(clock.at, true)
	if m.links.state.Load() == before {
		t.Error("another row, and the same sum")
	}
	m.links.slept(time.Minute)
	m.links.recheck()
	if l.health.doubtUntil != clock.at.Add(doubtFor) {
		t.Error("a sleep of this box is not told to its links")
	}
}
