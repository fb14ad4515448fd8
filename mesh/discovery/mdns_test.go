package discovery

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/grandcat/zeroconf"
	"pgregory.net/rapid"
)

// heard is a browser whose clock stands where the test puts it.
type heard struct {
	*browser
	now time.Time
	log bytes.Buffer
}

func newHeard() *heard {
	h := &heard{now: time.Unix(1000, 0)}
	log := slog.New(slog.NewTextHandler(&h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.browser = &browser{d: &MDNS{Now: func() time.Time { return h.now }, Log: log}, groups: map[string]Group{}}
	return h
}

// entry is an announcement as zeroconf gives it.
func entry(self Self, ips ...string) *zeroconf.ServiceEntry {
	e := zeroconf.NewServiceEntry(instance(self.Peer), service, domain)
	for _, rec := range self.txt() {
		e.Text = append(e.Text, zoneForm(rec))
	}
	for _, text := range ips {
		if ip := net.ParseIP(text); ip.To4() != nil {
			e.AddrIPv4 = append(e.AddrIPv4, ip)
		} else {
			e.AddrIPv6 = append(e.AddrIPv6, ip)
		}
	}
	return e
}

// attachedTo are links in one subnet of each family.
func attachedTo(prefixes ...string) links {
	var l links
	for _, p := range prefixes {
		l.prefixes = append(l.prefixes, netip.MustParsePrefix(p))
	}
	return l
}

// told is the set that a browser passes on.
func (h *heard) told(t *testing.T) []Group {
	t.Helper()
	out := make(chan []Group, 1)
	if !h.send(t.Context(), out) {
		t.Fatal("nothing was sent")
	}
	return <-out
}

func TestASightingIsAWholeGroup(t *testing.T) {
	h := newHeard()
	self := Self{Peer: testPeer, Name: "Küche", Port: 4001, Boot: 9, Hint: [8]byte{7}, Settled: true}
	if !h.take(entry(self, "203.0.113.9", "192.0.2.9", "169.254.0.9", "2001:db8::9", "fe80::9"), attachedTo("192.0.2.0/24")) {
		t.Fatal("not worth passing on")
	}
	want := []Group{{
		Source: "mdns", Peer: testPeer, Name: "Küche", Boot: 9, Hint: [8]byte{7}, Settled: true, Seen: h.now,
		Addrs: []string{"192.0.2.9:4001", "203.0.113.9:4001", "[2001:db8::9]:4001"},
	}}
	if diff := cmp.Diff(want, h.told(t)); diff != "" {
		t.Error(diff)
	}
}

// TestASightingReplacesWhatWasKnown: nothing of the former announcement stays, neither
// an address nor the name.
func TestASightingReplacesWhatWasKnown(t *testing.T) {
	h := newHeard()
	h.take(entry(Self{Peer: testPeer, Name: "old", Port: 1, Boot: 1, Hint: [8]byte{1}, Settled: true}, "192.0.2.1", "192.0.2.2"), links{})
	h.now = h.now.Add(time.Minute)
	h.take(entry(Self{Peer: testPeer, Port: 2, Boot: 2}, "192.0.2.3"), links{})
	want := []Group{{Source: "mdns", Peer: testPeer, Boot: 2, Addrs: []string{"192.0.2.3:2"}, Seen: h.now}}
	if diff := cmp.Diff(want, h.told(t)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNoSighting(t *testing.T) {
	good := Self{Peer: testPeer, Name: "box", Port: 4001, Boot: 9}
	foreign := zeroconf.NewServiceEntry("Printer", service, domain)
	foreign.Text, foreign.AddrIPv4 = []string{"txtvers=1", "path=/"}, []net.IP{net.ParseIP("192.0.2.1")}
	broken := entry(good, "192.0.2.1")
	broken.AddrIPv4 = []net.IP{{192, 0, 2}}
	for name, c := range map[string]struct {
		e    *zeroconf.ServiceEntry
		says string
	}{
		"another program's":    {foreign, "mDNS announcement not understood"},
		"an empty one":         {zeroconf.NewServiceEntry("x", service, domain), "mDNS announcement not understood"},
		"one without address":  {entry(good), ""},
		"one of a link alone":  {entry(good, "169.254.7.7", "fe80::1"), ""},
		"one of loopback":      {entry(good, "127.0.0.1", "::1"), ""},
		"an address cut short": {broken, ""},
	} {
		h := newHeard()
		if h.take(c.e, links{}) || len(h.told(t)) != 0 {
			t.Errorf("%s is told: %v", name, h.told(t))
		}
		if got := h.log.String(); !strings.Contains(got, c.says) || c.says == "" && got != "" {
			t.Errorf("%s: the log says %s", name, got)
		}
	}
}

// TestABoxThatIsHeardWithoutAddressStays as it was known: zeroconf gives some entries
// before their addresses came.
func TestABoxThatIsHeardWithoutAddressStays(t *testing.T) {
	h := newHeard()
	h.take(entry(Self{Peer: testPeer, Name: "box", Port: 1, Boot: 1}, "192.0.2.1"), links{})
	before := h.told(t)
	h.now = h.now.Add(time.Minute)
	if h.take(entry(Self{Peer: testPeer, Name: "other", Port: 2, Boot: 2}), links{}) {
		t.Error("passed on")
	}
	if diff := cmp.Diff(before, h.told(t)); diff != "" {
		t.Error(diff)
	}
}

// TestOwnAnnouncementsAreTold: a copy of this box is found by them.
func TestOwnAnnouncementsAreTold(t *testing.T) {
	h := newHeard()
	own := Self{Peer: testPeer, Name: "me", Port: 4001, Boot: 9}
	h.d.Self = func() Self { return own }
	if !h.take(entry(own, "192.0.2.1"), links{}) || h.told(t)[0].Boot != 9 {
		t.Errorf("got %v", h.told(t))
	}
}

func TestANoisyLinkFillsNoMemory(t *testing.T) {
	h := newHeard()
	for i := range maxGroups + 50 {
		id := strings.ReplaceAll(fmt.Sprintf("peer%dx", i+1), "0", "z") // no ID has a zero
		h.take(entry(Self{Peer: id, Port: 1}, "192.0.2.1"), links{})
	}
	if got := len(h.told(t)); got != maxGroups {
		t.Errorf("%d groups", got)
	}
	// One that is known is still heard, and there is room again once others are forgotten.
	h.now = h.now.Add(forget)
	if !h.take(entry(Self{Peer: "peer1x", Port: 2}, "192.0.2.2"), links{}) {
		t.Error("a known box is not heard any more")
	}
	h.now = h.now.Add(time.Second)
	h.prune()
	if diff := cmp.Diff([]string{"peer1x"}, slices.Sorted(maps.Keys(h.groups))); diff != "" {
		t.Error(diff)
	}
	if !h.take(entry(Self{Peer: testPeer, Port: 1}, "192.0.2.1"), links{}) {
		t.Error("a new box is not heard")
	}
}

func TestForgottenAfterAWhile(t *testing.T) {
	h := newHeard()
	for name, ago := range map[string]time.Duration{"now": 0, "then": forget, "long": forget + 1} {
		h.groups[name] = Group{Peer: name, Seen: h.now.Add(-ago)}
	}
	h.prune()
	if diff := cmp.Diff([]string{"now", "then"}, slices.Sorted(maps.Keys(h.groups))); diff != "" {
		t.Error(diff)
	}
}

// TestTheSetIsTheSameInAnyOrder: whoever reads it compares sets.
func TestTheSetIsTheSameInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		peers := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{3}`), 0, 20, rapid.ID[string]).Draw(rt, "peers")
		var sets [2][]Group
		for i := range sets {
			h := newHeard()
			for _, p := range rapid.Permutation(peers).Draw(rt, "order") {
				h.take(entry(Self{Peer: p, Port: 1}, "192.0.2.1"), links{})
			}
			sets[i] = h.told(t)
		}
		if diff := cmp.Diff(sets[0], sets[1]); diff != "" || len(sets[0]) != len(peers) {
			rt.Errorf("%d of %d\n%s", len(sets[0]), len(peers), diff)
		}
	})
}

func TestNobodyWhoListens(t *testing.T) {
	h := newHeard()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h.send(ctx, make(chan []Group)) {
		t.Error("it was sent to nobody")
	}
}

func TestInstanceNames(t *testing.T) {
	for _, peer := range []string{testPeer, "short", "", strings.Repeat("Q", maxPeer)} {
		name, host := instance(peer), hostName(peer)
		if len(name) > 63 || !strings.HasSuffix(host, ".local.") || len(strings.Split(host, ".")[0]) > 63 {
			t.Errorf("%q: %s, %s", peer, name, host)
		}
	}
	if instance(testPeer) == instance(testPeer[:len(testPeer)-1]+"x") {
		t.Error("two boxes have one name")
	}
}

func TestNothingToAnnounce(t *testing.T) {
	h := newHeard()
	for name, c := range map[string]struct {
		l    links
		self Self
	}{
		"no interface": {links{}, Self{Peer: testPeer, Port: 1}},
		"no port yet":  {links{ifaces: []net.Interface{{Index: 1, Name: "eth0"}}}, Self{Peer: testPeer}},
	} {
		if server := h.d.register(c.l, c.self); server != nil {
			server.Shutdown()
			t.Errorf("%s: announced", name)
		}
	}
	if got := strings.Count(h.log.String(), "no interface to announce on"); got != 2 {
		t.Errorf("the log says %s", &h.log)
	}
}

func TestAnnouncementThatCannotBeMade(t *testing.T) {
	h := newHeard()
	nowhere := links{ifaces: []net.Interface{{Index: 1 << 20, Name: "gone0", Flags: net.FlagUp | net.FlagMulticast}}, addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	if server := h.d.register(nowhere, Self{Peer: testPeer, Port: 1}); server != nil {
		server.Shutdown()
		t.Fatal("announced on an interface that is not there")
	}
	if got := h.log.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "other boxes can still be joined by address") {
		t.Errorf("the log says %s", got)
	}
	if r, err := newResolver(nowhere); err == nil || !strings.HasPrefix(err.Error(), "open multicast sockets: ") {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestPauseEndsWithItsContextOrItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		pause(t.Context(), time.Hour)
		if got := time.Since(start); got != time.Hour {
			t.Errorf("it took %v", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		pause(ctx, time.Hour)
		if got := time.Since(start); got != time.Hour+time.Minute {
			t.Errorf("with a context it took %v", got)
		}
	})
}

// TestTwoBoxesOnOneLink uses real multicast on this machine's own interfaces. The
// lab does the same between boxes.
func TestTwoBoxesOnOneLink(t *testing.T) {
	l, err := chooseLinks()
	if err != nil {
		t.Fatal(err)
	}
	if len(l.ifaces) == 0 {
		t.Skip("no interface with multicast here; the lab has some")
	}
	ctx, cancel := context.WithCancel(context.Background())
	ends := make(chan struct{}, 2)
	const name = "Küche 📦 №1"
	start := func(peer string, port int) chan []Group {
		out := make(chan []Group)
		d := &MDNS{
			Self: func() Self { return Self{Peer: peer, Name: name, Port: port, Boot: 3, Hint: [8]byte{7}} },
			Now:  time.Now, Log: slog.New(slog.DiscardHandler),
		}
		go func() { defer func() { ends <- struct{}{} }(); d.Run(ctx, out) }()
		return out
	}
	other := testPeer[:len(testPeer)-4] + "abcd"
	a, b := start(testPeer, 4001), start(other, 4002)
	if first := <-a; len(first) != 0 {
		t.Errorf("the first set is %+v", first)
	}
	deadline := time.After(20 * time.Second)
	for found := false; !found; {
		select {
		case groups := <-a:
			for _, g := range groups {
				found = found || g.Peer == other && len(g.Addrs) > 0 && g.Name == name && g.Hint == [8]byte{7} && g.Boot == 3
			}
		case <-b:
		case <-deadline:
			cancel()
			t.Skip("multicast does not come back on this machine; the lab covers it")
		}
	}
	cancel()
	for range 2 {
		select {
		case <-ends:
		case <-time.After(20 * time.Second):
			t.Fatal("Run does not end with its context")
		}
	}
}
