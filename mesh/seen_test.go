package mesh

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"

	"llmgw/mesh/discovery"
)

// TestAttemptsKeepTheirDistance: one at a time at one box, 5 s apart, and of two that see
// each other the second waits for the first.
func TestAttemptsKeepTheirDistance(t *testing.T) {
	start := time.Unix(1000, 0)
	p := peer.ID("p")
	type attempt struct {
		at     time.Duration
		second bool // this box is to let the other go first
		ends   bool // the one before has ended
		want   bool
	}
	for name, attempts := range map[string][]attempt{
		"the first mover": {
			{at: 0, want: true}, {at: time.Second}, {at: joinRetry}, // it is still at it
			{at: joinRetry, ends: true, want: true}, {at: 2*joinRetry - 1, ends: true}, {at: 2 * joinRetry, want: true},
		},
		"the second mover": {
			{at: 0, second: true}, {at: time.Second, second: true}, {at: secondMover - 1, second: true},
			{at: secondMover, second: true, want: true}, {at: secondMover + 1, second: true, ends: true}, {at: secondMover + joinRetry, second: true, want: true},
		},
	} {
		s := newSightings(nil)
		for i, a := range attempts {
			if a.ends {
				s.end(p)
			}
			if got := s.begin(p, start.Add(a.at), a.second); got != a.want {
				t.Errorf("%s, attempt %d at %s: %v", name, i, a.at, got)
			}
		}
		if !s.begin(peer.ID("another"), start, false) {
			t.Errorf("%s: another box has to wait", name)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		s, now := newSightings(nil), start
		var last time.Time
		busy := false
		for range rapid.IntRange(1, 50).Draw(rt, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms")) * time.Millisecond)
			if s.begin(p, now, rapid.Bool().Draw(rt, "second")) {
				if busy || now.Sub(last) < joinRetry && !last.IsZero() {
					rt.Fatalf("again after %s, busy %v", now.Sub(last), busy)
				}
				last, busy = now, true
			}
			if busy && rapid.Bool().Draw(rt, "ends") {
				s.end(p)
				busy = false
			}
		}
	})
}

// TestAnswersAreBelievedForAWhile: nobody there is asked again soon, somebody after a
// minute.
func TestAnswersAreBelievedForAWhile(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newSightings(nil)
	if _, fresh := s.answered("192.0.2.1:1", now); fresh {
		t.Error("an address that was never asked is known")
	}
	s.asked["192.0.2.1:1"], s.asked["192.0.2.2:2"] = answerAt{at: now}, answerAt{id: "p", at: now}
	for _, c := range []struct {
		addr  string
		after time.Duration
		id    peer.ID
		fresh bool
	}{
		{"192.0.2.1:1", askEach - 1, "", true}, {"192.0.2.1:1", askEach, "", false},
		{"192.0.2.2:2", askEach, "p", true}, {"192.0.2.2:2", askedFor - 1, "p", true}, {"192.0.2.2:2", askedFor, "p", false},
	} {
		if id, fresh := s.answered(c.addr, now.Add(c.after)); id != c.id || fresh != c.fresh {
			t.Errorf("%s after %s: %q, fresh %v", c.addr, c.after, id, fresh)
		}
	}
}

// TestReasonsTakeBoundedMemory: a noisy link must not fill it.
func TestReasonsTakeBoundedMemory(t *testing.T) {
	s := newSightings(nil)
	for i := range 5 * maxReasons {
		s.because(fmt.Sprint(i), "why")
		if len(s.reasons) > maxReasons+1 {
			t.Fatalf("%d reasons", len(s.reasons))
		}
		if s.reasons[fmt.Sprint(i)] != "why" {
			t.Fatal("the newest is forgotten")
		}
	}
}

// TestPeersByHand: what a person typed, each address once, with the ID that it came with
// wherever in the list that was.
func TestPeersByHand(t *testing.T) {
	m := bareMesh(t, "a")
	p, q := peerOf(t, 1), peerOf(t, 2)
	got := m.staticPeers([]string{
		"192.0.2.1:8771", "/ip4/192.0.2.1/tcp/8771/p2p/" + p.String(), "192.0.2.1:8771",
		"/ip4/192.0.2.2/tcp/1/p2p/" + q.String(), "192.0.2.2:1", "/ip4/192.0.2.2/tcp/1/p2p/" + p.String(),
		"box.example:1", "/ip4/192.0.2.3/udp/1", "nonsense", "", "/dns4/b.example/tcp/2",
		"[fe80::1%eth0]:8771",
	})
	if want := []string{"192.0.2.1:8771", "192.0.2.2:1", "box.example:1", "b.example:2", "[fe80::1%eth0]:8771"}; !slices.Equal(got.Addrs, want) {
		t.Errorf("addresses %q, want %q", got.Addrs, want)
	}
	if len(got.Peers) != 2 || got.Peers["192.0.2.1:8771"] != p.String() || got.Peers["192.0.2.2:1"] != q.String() {
		t.Errorf("IDs %v", got.Peers)
	}
	if !slices.Equal(m.staticPeers(nil).Addrs, nil) {
		t.Error("peers of no list")
	}
}

// TestWhoWasGivenByHand may join by secret although that is switched off.
func TestWhoWasGivenByHand(t *testing.T) {
	p, q, r := peerOf(t, 1), peerOf(t, 2), peerOf(t, 3)
	m := bareMesh(t, "a", func(c *Config) {
		c.Peers = []string{"/ip4/192.0.2.1/tcp/1/p2p/" + p.String(), "192.0.2.2:1"}
	})
	m.sights.asked["192.0.2.2:1"] = answerAt{id: q, at: m.now()}
	m.sights.asked["192.0.2.3:1"] = answerAt{id: r, at: m.now()} // asked once, and not given any more
	for id, want := range map[peer.ID]bool{p: true, q: true, r: false, m.self: false} {
		if got := m.byHand(id); got != want {
			t.Errorf("%s: %v", id, got)
		}
	}
}

// TestWhoseAnAddressIs goes from what is proved to what is claimed.
func TestWhoseAnAddressIs(t *testing.T) {
	s := newSightings(nil)
	p, q, r := peerOf(t, 1), peerOf(t, 2), peerOf(t, 3)
	s.sources["mdns"] = []discovery.Group{{Source: "mdns", Peer: r.String(), Addrs: []string{"192.0.2.3:1", "192.0.2.2:1"}}}
	s.asked["192.0.2.2:1"], s.asked["192.0.2.4:1"] = answerAt{id: q}, answerAt{}
	connected := map[string]string{"192.0.2.1:1": p.String()}
	for name, c := range map[string]struct {
		g    discovery.Group
		want string
	}{
		"as claimed":                 {discovery.Group{Peer: r.String(), Addrs: []string{"192.0.2.1:1"}}, r.String()},
		"a member is connected":      {discovery.Group{Addrs: []string{"192.0.2.1:1"}}, p.String()},
		"it said so, others do not":  {discovery.Group{Addrs: []string{"192.0.2.2:1"}}, q.String()},
		"mDNS says so":               {discovery.Group{Addrs: []string{"192.0.2.3:1"}}, r.String()},
		"nobody answered":            {discovery.Group{Addrs: []string{"192.0.2.4:1"}}, ""},
		"an address of nobody":       {discovery.Group{Addrs: []string{"192.0.2.9:1"}}, ""},
		"no address, and no ID":      {discovery.Group{}, ""},
		"only the first one counts":  {discovery.Group{Addrs: []string{"192.0.2.9:1", "192.0.2.3:1"}}, ""},
		"a second one of an mDNS ID": {discovery.Group{Addrs: []string{"192.0.2.2:1", "192.0.2.3:1"}}, q.String()},
	} {
		if got := s.whose(c.g, connected); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestOneBoxIsListedOnce, whatever sources know it, with all its addresses and the newest
// reason.
func TestOneBoxIsListedOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t, "a")
	m := b.mesh
	p, member := peerOf(t, 1), m.adds(t, 2, RoleMember)
	m.sights.mu.Lock()
	m.sights.sources["mdns"] = []discovery.Group{
		{Source: "mdns", Peer: p.String(), Name: "rack\x00 1", Addrs: []string{"192.0.2.1:1", "192.0.2.1:2"}},
		{Source: "mdns", Peer: member.String(), Addrs: []string{"192.0.2.2:1"}},
		{Source: "mdns", Peer: m.Self(), Addrs: []string{"192.0.2.3:1"}},
	}
	m.sights.sources["static"] = []discovery.Group{
		{Source: "static", Addrs: []string{"192.0.2.1:1"}}, {Source: "static", Addrs: []string{"192.0.2.7:1"}},
	}
	m.sights.mu.Unlock()
	m.sights.because("192.0.2.7:1", "connection refused")
	seen := m.Sightings()
	if len(seen) != 2 {
		t.Fatalf("%+v", seen)
	}
	if s := seen[0]; s.ID != "" || s.Reason != "connection refused" || !slices.Equal(s.Addrs, []string{"192.0.2.7:1"}) {
		t.Errorf("%+v", s)
	}
	if s := seen[1]; s.ID != p.String() || s.Name != "rack 1" || len(s.Addrs) != 2 || s.Reason == "" {
		t.Errorf("%+v", s)
	}
	m.sights.because(p.String(), "it does not hold the same mesh secret")
	if got := m.Sightings()[1].Reason; got != "it does not hold the same mesh secret" {
		t.Errorf("reason %q", got)
	}
	if g := m.sights.byMDNS(p); g == nil || g.Name != "rack\x00 1" || m.sights.byMDNS(peerOf(t, 9)) != nil {
		t.Errorf("by mDNS %+v", g)
	}
	if missing := m.missing(); len(missing) != 1 || missing[0] != member {
		t.Errorf("missing %v", missing)
	}
	if m.complete() {
		t.Error("complete, and a member is away")
	}
}

// TestSightingsThatAreNoCopies: of this box's own ID, and all is well.
func TestSightingsThatAreNoCopies(t *testing.T) {
	t.Parallel()
	b := newBox(t, "a")
	m := b.mesh
	for name, g := range map[string]discovery.Group{
		"its own announcement":    {Source: "mdns", Boot: m.boot, Addrs: []string{b.addr()}},
		"an announcement of none": {Source: "mdns", Addrs: []string{"192.0.2.1:1"}},
		"given by hand":           {Source: "static", Boot: m.boot + 1, Addrs: []string{b.addr()}},
		"an echo of the last run": {Source: "mdns", Boot: m.boot - 1, Addrs: []string{b.addr()}},
		"nobody is there":         {Source: "mdns", Boot: m.boot + 1, Addrs: []string{"127.0.0.1:1", "nonsense"}},
	} {
		m.sights.mu.Lock()
		clear(m.sights.tried)
		m.sights.mu.Unlock()
		g.Peer = m.Self()
		m.sighted(t.Context(), g)
		if hasAlarm(b, AlarmClone) || m.Serving() != nil {
			t.Errorf("%s: %+v", name, m.Alarms())
		}
	}
}
