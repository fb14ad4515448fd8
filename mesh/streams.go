package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// Protocols between boxes. There is no mesh ID in them: who may use one is
// decided for each stream.
const (
	ProtocolInfer = "/llmgw/infer/1"
	ProtocolRPC   = "/llmgw/rpc/1"
	ProtocolAdmin = "/llmgw/admin/1"

	protocolJoin      = "/llmgw/join/1"
	protocolSync      = "/llmgw/sync/1"
	protocolHeartbeat = "/llmgw/hb/1"
	protocolVerdict   = "/llmgw/verdict/1"
	protocolDoctor    = "/llmgw/doctor/1"
	protocolEscrow    = "/llmgw/escrow/1"
)

// openWait bounds an Open whose context has no deadline: dial, negotiation and
// the first write.
const openWait = 10 * time.Second

var (
	// ErrNotMember: the peer is no member of this mesh.
	ErrNotMember = errors.New("peer is not a member of this mesh")
	// ErrSelf: a host cannot open a stream to itself.
	ErrSelf = errors.New("this is the box itself")
)

// Stream is a byte stream to a member.
//
// CloseWrite ends our side: the peer reads to the end. Close frees a stream on which
// both sides are done; it tells a peer that still writes nothing. Reset aborts
// both sides at once and is right in every other case. One of the two MUST be
// called, or the stream's place stays taken.
type Stream interface {
	io.Reader
	io.Writer
	CloseWrite() error
	Close() error
	Reset() error
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	Peer() string
}

var _ Stream = (*stream)(nil)

// Open opens a stream to a member. Our hello is on its way when Open returns; the
// peer's is awaited by the first Read, so no round trip is spent here. That the
// peer does not speak the protocol also shows at the first Read. A relay
// (ProtocolInfer) that has not had a byte when its peer becomes suspect is reset.
func (m *Mesh) Open(ctx context.Context, peerText, proto string) (Stream, error) {
	p, err := peer.Decode(peerText)
	if err != nil {
		return nil, fmt.Errorf("open %s: decode peer ID: %w", proto, err)
	}
	s, err := m.open(ctx, p, proto)
	if err != nil {
		return nil, err
	}
	if proto == ProtocolInfer {
		s.unread = &m.unread
		m.unread.add(s)
	}
	return s, nil
}

func (m *Mesh) open(ctx context.Context, p peer.ID, proto string) (*stream, error) {
	switch {
	case p == m.self:
		return nil, fmt.Errorf("open %s: %w", proto, ErrSelf)
	case !m.view.Load().roster.active(p):
		return nil, fmt.Errorf("open %s to %s: %w", proto, p, ErrNotMember)
	}
	return m.openAny(ctx, p, proto)
}

// openAny opens a stream to a peer that may be a stranger: for joins.
func (m *Mesh) openAny(ctx context.Context, p peer.ID, proto string) (*stream, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openWait)
		defer cancel()
	}
	raw, err := m.host.NewStream(ctx, p, protocol.ID(proto))
	if err != nil {
		return nil, fmt.Errorf("open %s to %s: %w", proto, p, err)
	}
	s := &stream{Stream: raw, m: m}
	if err := m.begin(ctx, s, proto); err != nil {
		raw.Reset()
		return nil, fmt.Errorf("open %s to %s: %w", proto, p, err)
	}
	return s, nil
}

// begin accounts the stream and says hello within the context's deadline.
func (m *Mesh) begin(ctx context.Context, s *stream, proto string) error {
	if proto == ProtocolInfer {
		if err := s.Scope().SetService(serviceRelay); err != nil {
			return fmt.Errorf("account relay: %w", err)
		}
	}
	// The stream's deadline is on the system clock, whatever clock the mesh has.
	deadline, _ := ctx.Deadline()
	if err := s.SetWriteDeadline(deadline); err != nil {
		return fmt.Errorf("bound hello: %w", err)
	}
	if err := s.sendHello(); err != nil {
		return err
	}
	return s.SetWriteDeadline(time.Time{})
}

// Handle registers the handler of a protocol, in a goroutine for each stream. Only
// streams of members reach it, and their hello has been checked. The handler
// MUST Close or Reset the stream.
func (m *Mesh) Handle(proto string, h func(Stream)) {
	m.handle(proto, members, func(s *stream) {
		if err := m.Serving(); err != nil {
			m.refuse(s, proto, err)
			return
		}
		h(s)
	})
}

// Who may use a protocol.
func members(r *roster, p peer.ID) bool { return r.active(p) }

func anybody(*roster, peer.ID) bool { return true }

// everMembers are those who are or once were members: of two boxes that banned each
// other each must hear the other's ruling.
func everMembers(r *roster, p peer.ID) bool { return r.newest[p] != nil }

func (m *Mesh) handle(proto string, may func(*roster, peer.ID) bool, h func(*stream)) {
	m.host.SetStreamHandler(protocol.ID(proto), func(raw network.Stream) {
		if !m.handlers.enter() {
			raw.Reset()
			return
		}
		defer m.handlers.leave()
		s := &stream{Stream: raw, m: m}
		done, err := m.warden.stream(s.peer(), proto)
		if err != nil {
			m.refuse(s, proto, err)
			return
		}
		defer done()
		if err := m.accept(s, proto, may); err != nil {
			m.refuse(s, proto, err)
			return
		}
		h(s)
	})
}

// accept checks who is there before it says a word, then exchanges hellos.
func (m *Mesh) accept(s *stream, proto string, may func(*roster, peer.ID) bool) error {
	if !may(m.view.Load().roster, s.peer()) {
		return ErrNotMember
	}
	ctx, cancel := context.WithTimeout(m.life, helloWait)
	defer cancel()
	if err := m.begin(ctx, s, proto); err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	if err := s.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("bound hello: %w", err)
	}
	if _, err := s.greet(); err != nil {
		return err
	}
	return s.SetReadDeadline(time.Time{})
}

// refuse ends a stream. The other side sees a reset alone, so who and why is
// told here. A box of another version is to read our hello first, and so it says why there, too.
func (m *Mesh) refuse(s *stream, proto string, why error) {
	if !errors.Is(why, ErrVersion) || s.Close() != nil {
		s.Reset()
	}
	m.warden.blame(s.peer(), why)
	level := m.log.Info
	if !m.refusals.first(s.peer(), m.now()) {
		level = m.log.Debug // the same peer again
	}
	if errors.Is(why, io.EOF) || errors.Is(why, network.ErrReset) {
		level = m.log.Debug // the peer gave up; nobody was refused
	} else {
		m.counts.refused("stream")
	}
	level("stream refused", "peer", s.Peer(), "protocol", proto, "err", why)
}

// refusalGap is how often refusals of one peer are worth a line in the log: one
// that does not know that it was removed tries each second.
const refusalGap = 30 * time.Second

// refusalLog remembers whose refusal was logged when. Its zero value is ready.
type refusalLog struct {
	mu   sync.Mutex
	last map[peer.ID]time.Time
}

func (l *refusalLog) first(p peer.ID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.last[p]; ok && now.Sub(at) < refusalGap {
		return false
	}
	if l.last == nil || len(l.last) > 4*maxGuests {
		l.last = map[peer.ID]time.Time{} // strangers must not fill memory
	}
	l.last[p] = now
	return true
}

// handleProtocols registers what the mesh itself speaks.
func (m *Mesh) handleProtocols() {
	m.handle(protocolJoin, anybody, m.serveJoin)
	m.handle(protocolSync, members, m.serveSync)
	m.handle(protocolHeartbeat, members, m.serveHeartbeat)
	m.handle(protocolDoctor, members, m.serveDoctor)
	m.handle(protocolVerdict, everMembers, m.serveVerdict)
	m.handle(protocolEscrow, members, m.serveEscrow)
}
