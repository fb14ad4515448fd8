package discovery

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

const testPeer = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"

func TestAnnouncementRoundTrip(t *testing.T) {
	cases := map[string]string{
		"box-1":                    "box-1",
		"Küche":                    "Küche",
		`quote" back\slash`:        "quote_ back_slash",
		"tab\tand\x00nul":          "tab_and_nul",
		"":                         "",
		strings.Repeat("é", 60):    strings.Repeat("é", 31),
		"name=with;signs, and = !": "name=with;signs, and = !",
	}
	for name, want := range cases {
		self := Self{Peer: testPeer, Name: name, Port: 8771, Boot: 42, Settled: true, Hint: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}}
		for _, rec := range self.txt() {
			if len(rec) > maxTXT || !utf8.ValidString(rec) {
				t.Errorf("record %q", rec)
			}
		}
		got, port, err := parseTXT(self.txt())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Group{Source: "mdns", Peer: testPeer, Name: want, Boot: 42, Hint: self.Hint, Settled: true}, got); diff != "" || port != 8771 {
			t.Errorf("%q: port %d\n%s", name, port, diff)
		}
	}
}

func TestAnnouncementHoldsNoSecretAndNoAddress(t *testing.T) {
	self := Self{Peer: testPeer, Name: "box", Port: 8771, Boot: 1, Hint: [8]byte{9}}
	var size int
	for _, rec := range self.txt() {
		key, _, _ := strings.Cut(rec, "=")
		if !strings.Contains("v id p b n h s", key) {
			t.Errorf("unexpected record %q", rec)
		}
		size += len(rec) + 1
	}
	if size > 400 {
		t.Errorf("TXT of %d bytes", size)
	}
}

func TestBrokenAnnouncements(t *testing.T) {
	good := Self{Peer: testPeer, Port: 1, Boot: 1}.txt()
	change := func(key, value string) []string {
		var out []string
		for _, rec := range good {
			if !strings.HasPrefix(rec, key+"=") {
				out = append(out, rec)
			} else if value != "" {
				out = append(out, key+"="+value)
			}
		}
		return out
	}
	for name, in := range map[string][]string{
		"nothing":             nil,
		"no version":          change("v", ""),
		"another version":     change("v", "2"),
		"no peer":             change("id", ""),
		"peer with a slash":   change("id", "12D3/x"),
		"endless peer":        change("id", strings.Repeat("a", maxPeer+1)),
		"no port":             change("p", ""),
		"port zero":           change("p", "0"),
		"port out of range":   change("p", "65536"),
		"port in words":       change("p", "http"),
		"not key and value":   {"v", "id", "p"},
		"record over the cap": change("id", strings.Repeat("a", maxTXT)),
	} {
		if g, _, err := parseTXT(in); err == nil {
			t.Errorf("%s: %+v", name, g)
		}
	}
	// What is only of use for display may be missing.
	for _, key := range []string{"b", "n", "h"} {
		if _, _, err := parseTXT(change(key, "")); err != nil {
			t.Errorf("without %s: %v", key, err)
		}
	}
	if g, _, err := parseTXT(change("h", "abc")); err != nil || g.Hint != [8]byte{} {
		t.Errorf("a broken hint: %+v %v", g, err)
	}
	// The first of two stands, as RFC 6763 says.
	if g, _, err := parseTXT(append(good, "id=other")); err != nil || g.Peer != testPeer {
		t.Errorf("twice: %+v %v", g, err)
	}
}

func FuzzParseTXT(f *testing.F) {
	f.Add(strings.Join(Self{Peer: testPeer, Name: "n", Port: 8771, Boot: 7, Hint: [8]byte{1}}.txt(), "\n"))
	f.Fuzz(func(t *testing.T, in string) {
		g, port, err := parseTXT(strings.Split(in, "\n"))
		if err != nil {
			return
		}
		if g.Peer == "" || port < 1 || port > 65535 || len(g.Name) > maxName {
			t.Fatalf("%+v port %d", g, port)
		}
		again, _, err := parseTXT(Self{Peer: g.Peer, Name: g.Name, Port: port, Boot: g.Boot, Hint: g.Hint, Settled: g.Settled}.txt())
		if err != nil || !cmp.Equal(again, g) {
			t.Fatalf("%+v becomes %+v (%v)", g, again, err)
		}
	})
}

func TestRankAddrs(t *testing.T) {
	ips := func(texts ...string) []netip.Addr {
		var out []netip.Addr
		for _, s := range texts {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	attached := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/64")}
	got := rankAddrs(ips("192.0.2.1", "10.1.2.3", "fd00:2::1", "fd00:1::1", "127.0.0.1", "169.254.1.1", "fe80::1", "224.0.0.1", "0.0.0.0", "10.1.2.3", "::ffff:10.1.2.3"), 8771, attached)
	want := []string{"10.1.2.3:8771", "[fd00:1::1]:8771", "192.0.2.1:8771", "[fd00:2::1]:8771"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var many []netip.Addr
	for i := range 100 {
		many = append(many, netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}))
	}
	if got := rankAddrs(many, 1, nil); len(got) != maxAddrs {
		t.Errorf("%d addresses of one announcement", len(got))
	}
}

func TestUsableInterfaces(t *testing.T) {
	const up = net.FlagUp | net.FlagMulticast
	cases := map[string]struct {
		iface net.Interface
		want  bool
	}{
		"ethernet":       {net.Interface{Name: "eth0", Flags: up}, true},
		"bridge of ours": {net.Interface{Name: "bridge0", Flags: up}, true},
		"down":           {net.Interface{Name: "eth0", Flags: net.FlagMulticast}, false},
		"no multicast":   {net.Interface{Name: "eth0", Flags: net.FlagUp}, false},
		"loopback":       {net.Interface{Name: "lo", Flags: up | net.FlagLoopback}, false},
		"point to point": {net.Interface{Name: "ppp0", Flags: up | net.FlagPointToPoint}, false},
		"docker":         {net.Interface{Name: "docker0", Flags: up}, false},
		"its networks":   {net.Interface{Name: "br-0123456789ab", Flags: up}, false},
		"container end":  {net.Interface{Name: "veth12ab", Flags: up}, false},
		"wireguard":      {net.Interface{Name: "wg0", Flags: up}, false},
		"tailscale":      {net.Interface{Name: "tailscale0", Flags: up}, false},
	}
	for name, c := range cases {
		if got := usable(c.iface); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestStaticSendsTheFullSetAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Static{Addrs: []string{"192.0.2.1:8771", "nonsense", "box.example:1"}, Peers: map[string]string{"box.example:1": testPeer}}
		ctx, cancel := context.WithCancel(context.Background())
		out := make(chan []Group)
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx, out) }()
		want := []Group{
			{Source: "static", Addrs: []string{"192.0.2.1:8771"}},
			{Source: "static", Peer: testPeer, Addrs: []string{"box.example:1"}},
		}
		if diff := cmp.Diff(want, <-out); diff != "" {
			t.Error(diff)
		}
		cancel()
		<-done
		select {
		case _, open := <-out:
			if !open {
				t.Error("the channel was closed")
			}
		default:
		}
	})
}

func TestStaticEndsWhenNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); Static{}.Run(ctx, make(chan []Group)) }()
		synctest.Wait()
		cancel()
		<-done
	})
}

func TestForgottenAfterAWhile(t *testing.T) {
	now := time.Unix(1000, 0)
	b := &browser{d: &MDNS{Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}, groups: map[string]Group{
		"old": {Peer: "old", Seen: now.Add(-forget - time.Second)}, "new": {Peer: "new", Seen: now},
	}}
	b.prune()
	if len(b.groups) != 1 || b.groups["new"].Peer != "new" {
		t.Errorf("groups %+v", b.groups)
	}
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
	start := func(peer string, port int) chan []Group {
		out := make(chan []Group)
		d := &MDNS{
			Self: func() Self { return Self{Peer: peer, Name: "box", Port: port, Boot: 3, Hint: [8]byte{7}} },
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
				found = found || g.Peer == other && len(g.Addrs) > 0 && g.Hint == [8]byte{7} && g.Boot == 3
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

func TestChangedLinksEndAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := links{addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
		var now atomic.Pointer[links]
		now.Store(&on)
		choose := func() (links, error) { return *now.Load(), nil }
		done := make(chan struct{})
		go func() { defer close(done); untilChanged(t.Context(), choose, on) }()
		time.Sleep(5 * pollLinks)
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("it ended without a change")
		default:
		}
		now.Store(&links{addrs: append(slices.Clone(on.addrs), netip.MustParseAddr("198.51.100.1"))})
		time.Sleep(pollLinks)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Fatal("an interface that came was not noticed")
		}
	})
}
