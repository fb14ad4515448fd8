package mesh

import (
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

func withDHT(c *Config) { c.DHT = true }

// TestDHTFindsBoxesThatMoved: a and c both moved, and b passes no rows on, so that
// nothing but the table can tell them of each other.
func TestDHTFindsBoxesThatMoved(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a", withDHT), newBox(t, "b", withDHT), newBox(t, "c", withDHT)
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	killAll(a, c)
	b.mesh.handle(protocolSync, members, func(s *stream) { s.Reset() })
	for _, x := range []*box{c, a} {
		x.cfg.Listen = freePort(t)
		x.cfg.DHTBootstrap = []string{b.addr()}
		x.start()
	}
	allLive(t, a, c)
	if len(a.mesh.Sightings()) != 0 {
		t.Errorf("members are listed as strangers: %+v", a.mesh.Sightings())
	}
}

func TestDHTIsOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	b := newBox(t, "b")
	id := protocol.ID(b.mesh.view.Load().mesh.dhtPrefix() + "/kad/1.0.0")
	speaks := func() bool {
		for _, p := range b.mesh.host.Mux().Protocols() {
			if p == id {
				return true
			}
		}
		return false
	}
	b.mesh.SetDHT(true)
	eventually(t, "it takes part", speaks)
	b.mesh.SetDHT(false)
	eventually(t, "it takes no part any more", func() bool { return !speaks() })
}

// ping asks b's table for a sign of life from from's host.
func ping(t *testing.T, from host.Host, b *box, id protocol.ID) error {
	t.Helper()
	s, err := from.NewStream(network.WithNoDial(t.Context(), "connected"), b.peer(), id)
	if err != nil {
		return err
	}
	defer s.Reset()
	if err := s.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	// A ping of the protocol: its length, then field 1 with the value 5.
	if _, err := s.Write([]byte{2, 8, 5}); err != nil {
		return err
	}
	_, err = s.Read(make([]byte, 1))
	return err
}

// A stranger that knows the name of the protocol gets no answer on it.
func TestDHTAnswersMembersAlone(t *testing.T) {
	t.Parallel()
	b, c, stranger := newBox(t, "b", withDHT), newBox(t, "c"), newBox(t, "stranger")
	c.join(b)
	allLive(t, b, c)
	id := protocol.ID(b.mesh.view.Load().mesh.dhtPrefix() + "/kad/1.0.0")
	var err error
	eventually(t, "a member is answered", func() bool { err = ping(t, c.mesh.host, b, id); return err == nil })
	done := stranger.mesh.gater.allow(b.peer())
	defer done()
	if err := stranger.mesh.host.Connect(t.Context(), peer.AddrInfo{ID: b.peer(), Addrs: dialAddrs([]string{b.addr()})}); err != nil {
		t.Fatal(err)
	}
	if err := ping(t, stranger.mesh.host, b, id); err == nil {
		t.Error("a stranger was answered")
	}
}
