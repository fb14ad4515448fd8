package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// protoMin and protoMax are the versions of the mesh's wire forms that this
// llmgw speaks.
const protoMin, protoMax = 1, 1

// helloWait bounds how long an accepted stream may take to say hello.
const helloWait = 10 * time.Second

// ErrVersion: the other box speaks no version that this one does.
var ErrVersion = errors.New("no common protocol version")

// hello is the first frame of every llmgw stream, in both directions. Each side
// sends it without waiting for the other's.
type hello struct {
	Min      uint16   `cbor:"1,keyasint"`
	Max      uint16   `cbor:"2,keyasint"`
	Features []string `cbor:"3,keyasint,omitempty"`
	Store    uint64   `cbor:"4,keyasint"` // writer of this box's cells
	Index    uint64   `cbor:"5,keyasint"` // of its local log
	Wall     int64    `cbor:"6,keyasint"` // unix milliseconds; for display and for joins, never for liveness
	Boot     uint64   `cbor:"7,keyasint"`
}

func (m *Mesh) hello() hello {
	return hello{
		Min: protoMin, Max: protoMax, Store: uint64(m.store.ID()), Index: m.store.IndexID(),
		Wall: m.now().UnixMilli(), Boot: m.boot,
	}
}

func (h hello) check() error {
	if h.Min > protoMax || h.Max < protoMin {
		return fmt.Errorf("peer speaks versions %d to %d, this box %d to %d: %w", h.Min, h.Max, protoMin, protoMax, ErrVersion)
	}
	return nil
}

// skew is how far the sender's clock is ahead of ours.
func (h hello) skew(now time.Time) time.Duration {
	return time.UnixMilli(h.Wall).Sub(now.Round(0))
}

// greeter takes the peer's hello off the front of a stream. A read that times out
// in the middle may be tried again.
type greeter struct {
	mu   sync.Mutex
	buf  []byte
	done bool
	from hello
	err  error
}

func (g *greeter) greet(r io.Reader) (hello, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.done && g.err == nil {
		need, err := g.missing()
		if err != nil {
			g.err = err
			break
		}
		if need == 0 {
			g.finish()
			break
		}
		piece := make([]byte, need)
		n, err := r.Read(piece)
		g.buf = append(g.buf, piece[:n]...)
		if err != nil && n < need {
			return hello{}, fmt.Errorf("read hello: %w", err)
		}
	}
	return g.from, g.err
}

// missing is how many bytes of the frame are still to come.
func (g *greeter) missing() (int, error) {
	if len(g.buf) < frameHead {
		return frameHead - len(g.buf), nil
	}
	size := binary.BigEndian.Uint32(g.buf)
	if size > maxHello {
		return 0, fmt.Errorf("hello of %d bytes: %w", size, errFrame)
	}
	return frameHead + int(size) - len(g.buf), nil
}

func (g *greeter) finish() {
	if err := unmarshal(g.buf[frameHead:], &g.from); err != nil {
		g.err = fmt.Errorf("decode hello: %w: %w", errFrame, err)
		return
	}
	g.err = g.from.check()
	g.done = g.err == nil
	g.buf = nil
}

// authorMap remembers which store a peer writes with, as its hello told. Its zero
// value is ready.
type authorMap struct {
	mu     sync.Mutex
	stores map[peer.ID]crdt.ReplicaID
}

func (a *authorMap) learn(p peer.ID, id crdt.ReplicaID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stores == nil {
		a.stores = map[peer.ID]crdt.ReplicaID{}
	}
	a.stores[p] = id
}

func (a *authorMap) forget(p peer.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.stores, p)
}

func (a *authorMap) store(p peer.ID) (crdt.ReplicaID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, ok := a.stores[p]
	return id, ok
}

// stream is a libp2p stream whose hello is sent by us and taken off on the first
// read.
type stream struct {
	network.Stream
	m       *Mesh
	greeter greeter
	boot    uint64         // of a heartbeat stream: the peer's, guarded by its link
	unread  *unreadStreams // of a relay without a byte from the peer yet, else nil; its place there is guarded by it
}

// sendHello writes our own hello. The deadline is the caller's.
func (s *stream) sendHello() error {
	if err := writeFrame(s.Stream, s.m.hello()); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	return nil
}

// greet waits for the peer's hello and checks it.
func (s *stream) greet() (hello, error) {
	h, err := s.greeter.greet(s.Stream)
	if err == nil && s.m.view.Load().roster.active(s.peer()) {
		s.m.authors.learn(s.peer(), crdt.ReplicaID(h.Store))
	}
	return h, err
}

func (s *stream) Read(b []byte) (int, error) {
	if _, err := s.greet(); err != nil {
		return 0, err
	}
	n, err := s.Stream.Read(b)
	if n > 0 {
		s.unread.remove(s)
	}
	return n, err
}

// Close frees a finished stream.
func (s *stream) Close() error {
	s.unread.remove(s)
	return s.Stream.Close()
}

// Reset aborts both sides.
func (s *stream) Reset() error {
	s.unread.remove(s)
	return s.Stream.Reset()
}

// unreadStreams are relays that this box opened and that have not had a byte yet. Its
// zero value is ready; a nil one is empty.
type unreadStreams struct {
	mu sync.Mutex
	of map[peer.ID]map[*stream]bool
}

func (u *unreadStreams) add(s *stream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[peer.ID]map[*stream]bool{}
	}
	if u.of[s.peer()] == nil {
		u.of[s.peer()] = map[*stream]bool{}
	}
	u.of[s.peer()][s] = true
}

func (u *unreadStreams) remove(s *stream) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of[s.peer()], s)
	if len(u.of[s.peer()]) == 0 {
		delete(u.of, s.peer())
	}
}

// reset aborts those to p and says how many there were.
func (u *unreadStreams) reset(p peer.ID) int {
	u.mu.Lock()
	streams := u.of[p]
	delete(u.of, p)
	u.mu.Unlock()
	for s := range streams {
		s.Stream.Reset()
	}
	return len(streams)
}

func (s *stream) peer() peer.ID { return s.Conn().RemotePeer() }

// Peer is the ID of the other side, as proved by the connection.
func (s *stream) Peer() string { return s.peer().String() }
