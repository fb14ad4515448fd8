package discovery

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// tableBox is a host with a table, and what that has found.
type tableBox struct {
	host host.Host

	mu      sync.Mutex
	missing []peer.ID
	last    []Group
}

// tableKey makes an identity.
func tableKey(t *testing.T) crypto.PrivKey {
	t.Helper()
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newTableBox(t *testing.T, key crypto.PrivKey, prefix string, boot Static) *tableBox {
	t.Helper()
	h, err := libp2p.New(libp2p.Identity(key), libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"), libp2p.DisableRelay(), libp2p.DisableMetrics())
	if err != nil {
		t.Fatal(err)
	}
	b := &tableBox{host: h}
	d := &DHT{
		Host: h, Prefix: func() string { return prefix }, Member: func(peer.ID) bool { return true }, Bootstrap: boot,
		Missing: func() []peer.ID { b.mu.Lock(); defer b.mu.Unlock(); return slices.Clone(b.missing) },
		Now:     time.Now, Log: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, ended := make(chan []Group), make(chan struct{})
	go func() { defer close(ended); d.Run(ctx, out) }()
	go func() {
		for {
			select {
			case groups := <-out:
				b.mu.Lock()
				b.last = groups
				b.mu.Unlock()
			case <-ended:
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended; h.Close() })
	return b
}

func (b *tableBox) at() string {
	return hostPorts(b.host.Addrs())[0]
}

func (b *tableBox) lacks(peers ...peer.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missing = peers
}

// knows are the addresses of p in the last set.
func (b *tableBox) knows(p peer.ID) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.last {
		if g.Peer == p.String() && g.Source == "dht" {
			return g.Addrs
		}
	}
	return nil
}

func (b *tableBox) connect(t *testing.T, to *tableBox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.host.Connect(ctx, peer.AddrInfo{ID: to.host.ID(), Addrs: to.host.Addrs()}); err != nil {
		t.Fatal(err)
	}
}

func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

func TestTableFindsThoseWhoMoved(t *testing.T) {
	t.Parallel()
	const prefix = "/llmgw/dht/test"
	hub := newTableBox(t, tableKey(t), prefix, Static{})
	seeker := newTableBox(t, tableKey(t), prefix, Static{Addrs: []string{hub.at(), "no address"}})
	if groups := func() []Group { seeker.mu.Lock(); defer seeker.mu.Unlock(); return seeker.last }(); len(groups) > 1 {
		t.Errorf("boxes to begin with: %+v", groups)
	}
	key := tableKey(t)
	moved := newTableBox(t, key, prefix, Static{})
	moved.connect(t, hub)
	old := moved.at()
	moved.host.Close()
	moved = newTableBox(t, key, prefix, Static{})
	stays := newTableBox(t, tableKey(t), prefix, Static{})
	stranger := newTableBox(t, tableKey(t), "/llmgw/dht/other", Static{})
	for _, b := range []*tableBox{moved, stays, seeker, stranger} {
		b.connect(t, hub)
	}
	seeker.lacks(moved.host.ID(), stays.host.ID())
	stranger.lacks(moved.host.ID())
	soon(t, "both are found at their present addresses", func() bool {
		return slices.Contains(seeker.knows(moved.host.ID()), moved.at()) && slices.Contains(seeker.knows(stays.host.ID()), stays.at())
	})
	t.Logf("moved from %s: %v", old, seeker.knows(moved.host.ID()))
	if got := stranger.knows(moved.host.ID()); got != nil {
		t.Errorf("under another prefix it finds %v", got)
	}
	// Who is connected again is no news any more.
	seeker.lacks()
	soon(t, "nobody is listed", func() bool {
		return seeker.knows(moved.host.ID()) == nil && seeker.knows(stays.host.ID()) == nil
	})
	if seeker.host.Network().Connectedness(hub.host.ID()) != network.Connected {
		t.Error("the table closed a connection")
	}
}

func TestHostPorts(t *testing.T) {
	var addrs []ma.Multiaddr
	for _, text := range []string{
		"/ip4/127.0.0.1/tcp/1", "/ip4/192.0.2.1/tcp/8771", "/ip6/2001:db8::1/tcp/8771", "/ip4/192.0.2.1/tcp/8771",
		"/ip4/0.0.0.0/tcp/2", "/ip4/192.0.2.1/udp/4/quic-v1", "/dns4/box.example/tcp/3", "/ip4/192.0.2.9/tcp/0",
		"/ip6/::/tcp/5", "/ip6/fe80::1/tcp/6", "/ip6zone/eth0/ip6/fe80::2/tcp/6", "/ip4/169.254.1.1/tcp/7", "/ip4/224.0.0.1/tcp/8",
		"/ip4/192.0.2.8/tcp/80/ws", "/ip4/192.0.2.8/tcp/1/p2p/" + testPeer + "/p2p-circuit", "/ip6/::ffff:192.0.2.1/tcp/8771",
	} {
		addrs = append(addrs, ma.StringCast(text))
	}
	want := "192.0.2.1:8771 [2001:db8::1]:8771 127.0.0.1:1"
	if got := strings.Join(hostPorts(addrs), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHostPortsAreBounded(t *testing.T) {
	var addrs []ma.Multiaddr
	for i := range 3 * maxAddrs {
		addrs = append(addrs, ma.StringCast(fmt.Sprintf("/ip4/127.0.0.%d/tcp/1", i+1)), ma.StringCast(fmt.Sprintf("/ip4/192.0.2.%d/tcp/1", i+1)))
	}
	got := hostPorts(addrs)
	if len(got) != maxAddrs || got[0] != "192.0.2.1:1" || strings.Contains(strings.Join(got, " "), "127.") {
		t.Errorf("got %v", got)
	}
	slices.Reverse(addrs)
	if again := hostPorts(addrs); !slices.Equal(got, again) {
		t.Errorf("in another order: %v", again)
	}
	if got := hostPorts(nil); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}
