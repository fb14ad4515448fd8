package mesh

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/prometheus/client_golang/prometheus"

	"llmgw/mesh/discovery"
)

// seenBy is what mDNS tells others of b.
func seenBy(b *box) discovery.Group {
	a := b.mesh.announcement()
	return discovery.Group{Source: "mdns", Peer: a.Peer, Name: a.Name, Addrs: []string{b.addr()}, Hint: a.Hint, Boot: a.Boot, Settled: a.Settled}
}

func TestSightingOfTheSameSecretJoins(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{6}, 32)
	a, b := newBox(t, "a", withSecret(secret)), newBox(t, "b", withSecret(secret))
	// Both see each other, at the same time and again and again.
	eventually(t, "they join", func() bool {
		a.mesh.sighted(context.Background(), seenBy(b))
		b.mesh.sighted(context.Background(), seenBy(a))
		return a.sees(b) == StateLive && b.sees(a) == StateLive
	})
}

func TestSightingsThatLeadNowhere(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{6}, 32)
	a, other := newBox(t, "a", withSecret(secret)), newBox(t, "other")
	foreign := seenBy(other)
	liar := seenBy(other)
	liar.Hint = a.mesh.view.Load().mesh.hint(other.peer())
	nobody := discovery.Group{Source: "mdns", Peer: "12D3KooWnobody", Addrs: []string{"127.0.0.1:1"}}
	clone := seenBy(a)
	clone.Boot++
	for range 3 {
		for _, g := range []discovery.Group{foreign, liar, nobody, clone} {
			a.mesh.sighted(context.Background(), g)
		}
	}
	if len(a.mesh.Nodes()) != 1 || other.mesh.MeshID() == a.mesh.MeshID() {
		t.Error("somebody joined")
	}
}

func TestStrangersAreListedWithAReason(t *testing.T) {
	t.Parallel()
	a, other := newBox(t, "a"), newBox(t, "other")
	a.mesh.sights.mu.Lock()
	a.mesh.sights.sources["mdns"] = []discovery.Group{seenBy(other), seenBy(a)}
	a.mesh.sights.mu.Unlock()
	seen := a.mesh.Sightings()
	if len(seen) != 1 || seen[0].ID != other.id() || seen[0].Name != "other" || seen[0].Reason == "" {
		t.Errorf("sightings %+v", seen)
	}
	other.join(a)
	if seen := a.mesh.Sightings(); len(seen) != 0 {
		t.Errorf("a member is listed as a stranger: %+v", seen)
	}
}

func TestSightingBringsANewAddress(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	b.kill()
	b.cfg.Listen = freePort(t) // it comes back elsewhere, and cannot reach a
	a.kill()
	a.cfg.Listen = freePort(t)
	a.start()
	b.start()
	a.mesh.sighted(context.Background(), seenBy(b))
	allLive(t, a, b)
	if a.mesh.host.Network().Connectedness(b.peer()) != network.Connected {
		t.Error("not connected")
	}
}

func TestReadStatic(t *testing.T) {
	t.Parallel()
	id := "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
	cases := map[string]struct {
		addr, id string
		ok       bool
	}{
		"192.0.2.1:8771":                       {"192.0.2.1:8771", "", true},
		"box.example:8771":                     {"box.example:8771", "", true},
		"[fd00::1]:8771":                       {"[fd00::1]:8771", "", true},
		"/ip4/192.0.2.1/tcp/8771":              {"192.0.2.1:8771", "", true},
		"/ip6/fd00::1/tcp/8771/p2p/" + id:      {"[fd00::1]:8771", id, true},
		"/dns4/box.example/tcp/8771/p2p/" + id: {"box.example:8771", id, true},
		"/ip4/192.0.2.1/udp/8771/quic-v1":      {"", "", false},
		"192.0.2.1":                            {"", "", false},
		"":                                     {"", "", false},
	}
	for in, want := range cases {
		addr, got, err := readStatic(in)
		if (err == nil) != want.ok || addr != want.addr || want.id != "" && got.String() != want.id {
			t.Errorf("%q: %q %q %v", in, addr, got, err)
		}
	}
}

func TestMetricsAreThere(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := newBox(t, "a", func(c *Config) { c.Metrics = reg })
	h := newStranger(t)
	connect(t, h, a)
	askAs(t, h, a, protocolSync, nil)
	eventually(t, "the refusal is counted", func() bool {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "llmgw_mesh_refused_total" && len(f.GetMetric()) > 0 {
				return true
			}
		}
		return false
	})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
	}
	for _, want := range []string{"libp2p_rcmgr_connections", "libp2p_swarm_connections_opened_total"} {
		if !names[want] {
			t.Errorf("no %s among %d metrics", want, len(names))
		}
	}
}

func TestPeersByHandAreReadOrRefused(t *testing.T) {
	const id = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
	for text, want := range map[string]string{
		"192.0.2.1:8771": "192.0.2.1:8771 ", "[fd00::1]:8771": "[fd00::1]:8771 ", "box.example:1": "box.example:1 ",
		"/ip4/192.0.2.1/tcp/8771":                      "192.0.2.1:8771 ",
		"/dns4/box.example/tcp/8771/p2p/" + id:         "box.example:8771 " + id,
		"/ip6zone/eth0/ip6/fe80::1/tcp/8771/p2p/" + id: "[fe80::1%eth0]:8771 " + id,
		":8771": "", "box:http": "", "box:0": "", "box:65536": "", "box:-1": "", "box": "", "fd00::1:8771": "", "": "",
		"/ip4/192.0.2.1/udp/8771": "", "/ip4/192.0.2.1": "",
	} {
		addr, peer, err := readStatic(text)
		got := addr + " " + peer.String()
		if want == "" && (err == nil || !strings.Contains(err.Error(), "want")) || want != "" && (err != nil || got != want) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}
