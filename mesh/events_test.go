package mesh

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"

	"llmgw/crdt"
	"llmgw/mesh/discovery"
)

func TestEventsAreShownForAWhile(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	var e events
	if got := e.list(start); got != nil {
		t.Errorf("of nothing: %v", got)
	}
	a := Alarm{Kind: AlarmDigest, Text: "differs", Fix: "look"}
	for _, s := range []struct {
		at    time.Duration
		note  bool
		fresh bool
		text  string // listed then; empty: nothing
	}{
		{0, true, true, "differs"},
		{time.Minute, true, false, "differs (2 times)"},
		{alarmFor, true, false, "differs (3 times)"}, // each time it is shown for 10 min more
		{2 * alarmFor, false, false, "differs (3 times)"},
		{2*alarmFor + 1, false, false, ""},
		{3 * alarmFor, true, true, "differs"}, // counted from the beginning
	} {
		if s.note {
			if fresh := e.note(at(s.at), "of", a); fresh != s.fresh {
				t.Errorf("at %s: fresh %v", s.at, fresh)
			}
		}
		got := e.list(at(s.at))
		if len(got) > 1 || (len(got) == 0) != (s.text == "") || len(got) == 1 && (got[0].Text != s.text || got[0].Fix != a.Fix) {
			t.Errorf("at %s: %+v, want %q", s.at, got, s.text)
		}
	}
	// What is of somebody else, or another kind, is another event.
	other := a
	other.Kind = AlarmToken
	if !e.note(at(3*alarmFor), "another", a) || !e.note(at(3*alarmFor), "of", other) || len(e.list(at(3*alarmFor))) != 3 {
		t.Errorf("%+v", e.list(at(3*alarmFor)))
	}
}

// TestEventsTakeBoundedMemory, whatever others do.
func TestEventsTakeBoundedMemory(t *testing.T) {
	var e events
	now := time.Unix(1000, 0)
	for i := range 10 * maxEvents {
		if !e.note(now, fmt.Sprint(i), Alarm{Kind: AlarmMisbehaving, Text: "x"}) {
			t.Fatalf("event %d is not new", i)
		}
		if len(e.last) > maxEvents {
			t.Fatalf("%d events are kept", len(e.last))
		}
	}
	if e.note(now, fmt.Sprint(10*maxEvents-1), Alarm{Kind: AlarmMisbehaving, Text: "x"}) {
		t.Error("the newest is forgotten")
	}
}

// TestAlarmsAreInOrder: the same on each look, by kind and text.
func TestAlarmsAreInOrder(t *testing.T) {
	m := bareMesh(t, "a")
	for i, kind := range []AlarmKind{AlarmToken, AlarmAway, AlarmDigest, AlarmClone, AlarmAway, AlarmGossipLoss} {
		m.events.note(m.now(), fmt.Sprint(i), Alarm{Kind: kind, Text: fmt.Sprint("text ", 9-i)})
	}
	first := m.Alarms()
	if len(first) != 6 || !slices.IsSortedFunc(first, func(a, b Alarm) int { return strings.Compare(string(a.Kind)+a.Text, string(b.Kind)+b.Text) }) {
		t.Errorf("%+v", first)
	}
	for range 10 {
		if !slices.Equal(m.Alarms(), first) {
			t.Fatal("another order")
		}
	}
}

func TestClockAlarms(t *testing.T) {
	m := bareMesh(t, "a")
	p := m.adds(t, 1, RoleMember)
	l := m.speaksTo(p, 1)
	for skew, want := range map[time.Duration]string{
		0: "", maxJoinSkew: "", -maxJoinSkew: "",
		maxJoinSkew + time.Second:  "the clock of " + p.String() + " is 5m1s ahead of this box's",
		-maxJoinSkew - time.Minute: "the clock of " + p.String() + " is 6m0s behind this box's",
	} {
		l.skew = skew
		got := m.alarmsOf(AlarmClock)
		if len(got) > 1 || len(got) == 1 && got[0] != want || len(got) == 0 && want != "" {
			t.Errorf("%s: %q, want %q", skew, got, want)
		}
	}
}

// TestOtherMeshesAreNamed: only boxes that have something to lose, and only to one that has.
func TestOtherMeshesAreNamed(t *testing.T) {
	m := bareMesh(t, "a")
	settled := func(g discovery.Group) discovery.Group { g.Settled = true; return g }
	stranger, mine, friend := peerOf(t, 1), m.adds(t, 2, RoleMember), peerOf(t, 3)
	m.sights.sources["mdns"] = []discovery.Group{
		settled(discovery.Group{Source: "mdns", Peer: stranger.String(), Name: "rack\x1b 9"}),
		settled(discovery.Group{Source: "mdns", Peer: mine.String()}),                                              // a member
		settled(discovery.Group{Source: "mdns", Peer: friend.String(), Hint: m.view.Load().mesh.hint(friend)}),     // of this mesh
		settled(discovery.Group{Source: "mdns", Peer: m.Self()}), settled(discovery.Group{Peer: "no peer at all"}), // itself, nobody
		{Source: "mdns", Peer: peerOf(t, 4).String()}, // provisional: it gives way
	}
	got := m.alarmsOf(AlarmTwoMeshes)
	if len(got) != 1 || got[0] != "box rack 9 on this link is of another mesh" {
		t.Errorf("%q", got)
	}
	alone := bareMesh(t, "alone")
	alone.sights.sources["mdns"] = m.sights.sources["mdns"]
	if got := alone.alarmsOf(AlarmTwoMeshes); len(got) != 0 {
		t.Errorf("a provisional mesh complains: %q", got)
	}
}

// TestRowsAsideAreShown.
func TestRowsAsideAreShown(t *testing.T) {
	m := bareMesh(t, "a")
	if got := m.asideAlarms(); got != nil {
		t.Fatalf("%+v", got)
	}
	ahead := crdt.StampOf(m.now().Add(48 * time.Hour))
	row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{"v": {At: ahead, By: 7, Value: []byte("x")}}}
	if _, err := m.merge(m.view.Load().generation, []crdt.Item{{Key: crdt.NewKey("things", "t"), Row: row}}); err != nil {
		t.Fatal(err)
	}
	if got := m.alarmsOf(AlarmRowsAside); len(got) != 1 || !strings.HasPrefix(got[0], "1 changes were stamped more than a day ahead") {
		t.Errorf("%q", got)
	}
}

func TestRefusalsAreLoggedOnceInAWhile(t *testing.T) {
	var l refusalLog
	now := time.Unix(1000, 0)
	p := peer.ID("p")
	if !l.first(p, now) || l.first(p, now) || l.first(p, now.Add(refusalGap-1)) || !l.first(p, now.Add(refusalGap)) {
		t.Error("want one line each 30 s")
	}
	if !l.first(peer.ID("q"), now) {
		t.Error("another peer's line is left out")
	}
	for i := range 100 * maxGuests {
		l.first(peer.ID(fmt.Sprint(i)), now)
		if len(l.last) > 4*maxGuests+1 {
			t.Fatalf("%d strangers are remembered", len(l.last))
		}
	}
}

// TestTrackerLetsNobodyIn: once it is closed, and close waits for all who were in.
func TestTrackerLetsNobodyIn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var tr tracker
		inside := rapid.IntRange(0, 5).Draw(rt, "inside")
		for range inside {
			if !tr.enter() {
				rt.Fatal("shut before it was closed")
			}
		}
		closed := make(chan bool, 1)
		go func() { closed <- tr.close() }()
		for tr.enter() { // until close has begun
			tr.leave()
		}
		for range inside {
			select {
			case <-closed:
				rt.Fatal("closed with somebody inside")
			default:
			}
			tr.leave()
		}
		if !<-closed {
			rt.Fatal("close gave up on handlers that had ended")
		}
		if tr.enter() {
			rt.Fatal("open again")
		}
	})
}

// TestWatchesOfManyAreWoken: each once, however often, and none after its end.
func TestWatchesOfManyAreWoken(t *testing.T) {
	var n notifier
	n.notify() // nobody is there
	var all []*Watch
	for range 5 {
		all = append(all, n.watch())
	}
	var work sync.WaitGroup
	for range 10 {
		work.Go(n.notify)
	}
	work.Wait()
	all[0].Close()
	all[0].Close()
	for i, w := range all {
		if len(w.C) != 1 {
			t.Errorf("watch %d has %d notices", i, len(w.C))
		}
		<-w.C
	}
	n.notify()
	for i, w := range all {
		if want := min(i, 1); len(w.C) != want {
			t.Errorf("watch %d has %d notices after the first was closed", i, len(w.C))
		}
	}
}

// TestToggleTurnsOnce: setting what is set already is no news.
func TestToggleTurnsOnce(t *testing.T) {
	var x toggle
	w := x.turned.watch()
	defer w.Close()
	for _, s := range []struct{ on, news bool }{{false, false}, {true, true}, {true, false}, {false, true}, {false, false}} {
		x.set(s.on)
		if got := len(w.C) == 1; got != s.news || x.on.Load() != s.on {
			t.Errorf("set %v: news %v", s.on, got)
		}
		if s.news {
			<-w.C
		}
	}
	m := bareMesh(t, "a")
	m.SetLAN(true)
	m.SetDHT(true)
	if !m.lan.on.Load() || !m.dht.on.Load() || !m.autoJoin.Load() {
		t.Error("a setting is not what was set, or joining by itself is off from the start")
	}
	m.SetAutoJoin(false)
	if m.autoJoin.Load() {
		t.Error("it joins by itself though switched off")
	}
}
