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
	// Uptime is the mesh's time in seconds, as far as the sender knows.
	Uptime int64 `cbor:"8,keyasint,omitempty"`
	// Away is one of the stages of absence.
	Away uint8 `cbor:"9,keyasint,omitempty"`
}

func (m *Mesh) hello() hello {
	return hello{
		Min: protoMin, Max: protoMax, Store: uint64(m.store.ID()), Index: m.store.IndexID(),
		Wall: m.now().UnixMilli(), Boot: m.boot, Uptime: m.absence.seconds(), Away: m.absence.stage(),
	}
}

// maxUptime bounds what a peer can make this box believe: 200 years in seconds.
const maxUptime = 200 * 366 * 24 * 3600

func (h hello) uptime() time.Duration {
	return time.Duration(min(max(h.Uptime, 0), maxUptime)) * time.Second
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

// greet tells with the hello whether this was the call that completed it.
func (g *greeter) greet(r io.Reader) (h hello, first bool, err error) {
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
			first = g.done
			break
		}
		piece := make([]byte, need)
		n, err := r.Read(piece)
		g.buf = append(g.buf, piece[:n]...)
		if err != nil && n < need {
			return hello{}, false, fmt.Errorf("read hello: %w", err)
		}
	}
	return g.from, first, g.err
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
	stores map[peer.ID]author
}

type author struct {
	store crdt.ReplicaID
	// doubted: it published cells of another store. Its store may have a new
	// identity, which its next hello tells.
	doubted bool
}

func (a *authorMap) learn(p peer.ID, id crdt.ReplicaID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stores == nil {
		a.stores = map[peer.ID]author{}
	}
	if a.stores[p].store != id {
		a.stores[p] = author{store: id}
	}
}

func (a *authorMap) forget(p peer.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.stores, p)
}

func (a *authorMap) store(p peer.ID) (crdt.ReplicaID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.stores[p]
	return known.store, ok
}

// doubt notes cells of another store under p's name; it tells whether that happened
// before under the same hello.
func (a *authorMap) doubt(p peer.ID) (again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.stores[p]
	again, known.doubted = known.doubted, true
	a.stores[p] = known
	return again
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

// greet waits for the peer's hello and checks it. What it tells counts when it comes:
// a lasting stream must not tell of its beginning for ever.
func (s *stream) greet() (hello, error) {
	h, first, err := s.greeter.greet(s.Stream)
	if first && s.m.view.Load().roster.active(s.peer()) {
		s.m.authors.learn(s.peer(), crdt.ReplicaID(h.Store))
		s.m.absence.heard(s.peer(), h)
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
