package mesh

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// stream is a libp2p stream whose hello is sent by us and taken off on the first
// read.
//
// A read deadline that strikes while libp2p negotiates the protocol fails its stream
// for good: what the peer says then can be read no more. So until the peer's hello is
// here deadlines bound the reader alone, and the read goes on beneath it.
type stream struct {
	network.Stream
	m      *Mesh
	boot   uint64         // of a heartbeat stream: the peer's, guarded by its link
	unread *unreadStreams // of a relay without a byte from the peer yet, else nil; its place there is guarded by it

	mu       sync.Mutex
	greeting chan struct{} // closed when the greeting has come to an end; nil before the first read
	greeted  bool          // deadlines go to the stream beneath
	deadline time.Time     // for reads, until greeted
	moved    chan struct{} // closed when deadline changes; nil: nobody waits
	met      hello         // with failed: what the greeting came to
	failed   error
}

// sendHello writes our own hello. The deadline is the caller's.
func (s *stream) sendHello() error {
	if err := writeFrame(s.Stream, s.m.hello()); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	return nil
}

// greet waits for the peer's hello and checks it, until the read deadline.
func (s *stream) greet() (hello, error) {
	for {
		s.mu.Lock()
		if s.greeted {
			defer s.mu.Unlock()
			return s.met, s.failed
		}
		if s.greeting == nil {
			s.greeting = make(chan struct{})
			go s.meet()
		}
		if s.moved == nil {
			s.moved = make(chan struct{})
		}
		done, moved, deadline := s.greeting, s.moved, s.deadline
		s.mu.Unlock()
		if err := await(done, moved, deadline); err != nil {
			return hello{}, fmt.Errorf("read hello: %w", err)
		}
	}
}

// await returns once either channel is closed, or with an error at the deadline.
func await(done, moved <-chan struct{}, deadline time.Time) error {
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-done:
	case <-moved:
	case <-expired:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// meet reads the peer's hello, however long it takes: whoever gives the stream up
// resets it. What it tells counts when it comes: a lasting stream must not tell of its
// beginning for ever.
func (s *stream) meet() {
	h, err := readHello(s.Stream, s.m.cfg.speaks)
	s.m.others.met(s.peer(), h, err, s.m.now())
	if err == nil && s.m.view.Load().roster.active(s.peer()) {
		if crdt.ReplicaID(h.Store) != s.m.store.ID() { // else see absence.copied
			s.m.authors.learn(s.peer(), crdt.ReplicaID(h.Store))
		}
		s.m.absence.heard(s.peer(), h)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met, s.failed, s.greeted = h, err, true
	if err == nil {
		s.failed = s.Stream.SetReadDeadline(s.deadline)
	}
	close(s.greeting)
}

// Read reads what comes after the peer's hello.
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

// SetReadDeadline bounds reads that wait and those to come; a read that timed out may
// be tried again.
func (s *stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	if s.greeted {
		return s.Stream.SetReadDeadline(t)
	}
	if s.moved != nil {
		close(s.moved)
		s.moved = nil
	}
	return nil
}

// SetDeadline bounds both directions.
func (s *stream) SetDeadline(t time.Time) error {
	if err := s.SetReadDeadline(t); err != nil {
		return err
	}
	return s.Stream.SetWriteDeadline(t)
}

// Close frees a finished stream. libp2p first reads the peer's consent to the
// protocol, which may never come.
func (s *stream) Close() error {
	s.unread.remove(s)
	s.mu.Lock()
	greeted := s.greeted
	s.mu.Unlock()
	if !greeted {
		if err := s.Stream.SetReadDeadline(time.Now().Add(helloWait)); err != nil {
			s.Stream.Reset()
			return fmt.Errorf("close: %w", err)
		}
	}
	return s.Stream.Close()
}

// Reset aborts both sides.
func (s *stream) Reset() error {
	s.unread.remove(s)
	return s.Stream.Reset()
}

func (s *stream) peer() peer.ID { return s.Conn().RemotePeer() }

// Peer is the ID of the other side, as proved by the connection.
func (s *stream) Peer() string { return s.peer().String() }

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
