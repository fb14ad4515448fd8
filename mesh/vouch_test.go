package mesh

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// mute makes b answer x nothing any more, while all others get their answers: a
// path that is cut one way.
func mute(b, x *box) (heal func()) {
	h := b.mesh.host
	swap := func(proto string, guarded func(*stream)) {
		h.SetStreamHandler(protocol.ID(proto), func(raw network.Stream) {
			if raw.Conn().RemotePeer() == x.peer() {
				return // taken and never answered
			}
			s := &stream{Stream: raw, m: b.mesh}
			if b.mesh.accept(s, proto, members) == nil {
				guarded(s)
			}
		})
	}
	swap(protocolHeartbeat, b.mesh.serveHeartbeat)
	swap(protocolSync, b.mesh.serveSync)
	l, _ := b.mesh.links.get(x.peer())
	done := make(chan struct{})
	go func() { // its own beats do not arrive either
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			l.mu.Lock()
			if l.beats != nil {
				l.end()
			}
			l.opening, l.opened = false, time.Now()
			l.mu.Unlock()
		}
	}()
	return func() { close(done); b.mesh.handleProtocols() }
}

func TestOneWayCutKillsNobody(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	taken := make(chan Stream, 2)
	b.mesh.Handle(ProtocolInfer, func(s Stream) {
		buf := make([]byte, 1)
		s.Read(buf)
		if buf[0] == 'y' {
			s.Write(buf)
		}
		taken <- s
	})
	silent, begun := relay(t, a, b, 'x'), relay(t, a, b, 'y')
	if _, err := begun.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	<-taken
	<-taken
	heal := mute(b, a)
	eventually(t, "a does not route to b", func() bool { return a.sees(b) == StateSuspect })
	// A relay without a byte is given up at once; one that has begun is not touched.
	silent.SetReadDeadline(time.Now().Add(patience))
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, network.ErrReset) {
		t.Errorf("a relay without a byte: %v", err)
	}
	begun.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var timeout interface{ Timeout() bool }
	if _, err := begun.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a relay that has begun: %v", err)
	}
	// Well beyond the 10 s: c reaches b, so it is not dead.
	over := time.Now().Add(deadAfter)
	for time.Now().Before(over) {
		if state := a.sees(b); state == StateDead {
			t.Fatalf("a calls b %s", state)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if c.sees(b) != StateLive {
		t.Error("c lost b")
	}
	heal()
	allLive(t, a, b, c)
}

func relay(t *testing.T, from, to *box, first byte) Stream {
	t.Helper()
	s, err := from.mesh.Open(context.Background(), to.id(), ProtocolInfer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Reset() })
	if _, err := s.Write([]byte{first}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUnreadStreamsAreForgotten(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	b.mesh.Handle(ProtocolInfer, func(s Stream) {
		s.Read(make([]byte, 1))
		s.Write([]byte("x"))
		s.Close()
	})
	for i := range 6 {
		s := relay(t, a, b, 'x')
		switch i % 3 {
		case 0:
			s.Reset()
		case 1:
			s.Read(make([]byte, 1))
			s.Close()
		case 2:
			s.Close()
		}
	}
	a.mesh.unread.mu.Lock()
	defer a.mesh.unread.mu.Unlock()
	if len(a.mesh.unread.of) != 0 {
		t.Errorf("%d peers with unread streams", len(a.mesh.unread.of))
	}
}
