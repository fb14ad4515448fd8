package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/mesh/catalog"
)

// Kinds of frames on a heartbeat stream.
const (
	beatPulse     = 1 // boot, sequence, wall
	beatPresence  = 2
	beatProbe     = 3 // the first and only frame of a stream that asks for a sign of life
	beatAnswer    = 4
	beatAsk       = 5 // like beatProbe: does the receiver reach another member?
	beatUnreached = 6
)

// beat is one frame of a heartbeat stream.
type beat struct {
	Kind     uint8           `cbor:"1,keyasint"`
	Boot     uint64          `cbor:"2,keyasint,omitempty"`
	Sequence uint64          `cbor:"3,keyasint,omitempty"`
	Wall     int64           `cbor:"4,keyasint,omitempty"` // unix milliseconds
	Presence cbor.RawMessage `cbor:"5,keyasint,omitempty"`
	// Twin is another boot number that the sender hears under the receiver's ID.
	Twin  uint64 `cbor:"6,keyasint,omitempty"`
	About string `cbor:"7,keyasint,omitempty"` // of beatAsk: peer ID
	// State sums up the sender's rows; the same rows give the same number.
	State uint64 `cbor:"8,keyasint,omitempty"`
}

// errUnreached: the one who was asked does not reach the peer either.
var errUnreached = errors.New("it does not reach it")

// writeWait bounds one write of a heartbeat stream: a peer that takes nothing for
// this long is stuck.
const writeWait = 5 * time.Second

// serveHeartbeat answers a probe, or takes the stream as the lasting one of its
// pair until it ends.
func (m *Mesh) serveHeartbeat(s *stream) {
	var first beat
	if err := m.readBeat(s, &first); err != nil {
		m.refuse(s, protocolHeartbeat, err)
		return
	}
	switch first.Kind {
	case beatProbe:
		m.answerProbe(s)
		return
	case beatAsk:
		m.answerAsk(s, first.About)
		return
	}
	l, ok := m.links.get(s.peer())
	if !ok {
		s.Reset() // not running yet, or no longer a member; the peer tries again
		return
	}
	l.take(s, first)
	m.puller.request(l.peer)
	l.converse(m.life, s)
}

func (m *Mesh) answerProbe(s *stream) {
	err := s.SetWriteDeadline(time.Now().Add(probeWait))
	if err == nil {
		err = writeFrame(s, beat{Kind: beatAnswer})
	}
	if err != nil {
		s.Reset()
		return
	}
	s.Close()
}

// probe asks a peer for a sign of life over a stream of its own, dialling if need
// be.
func (m *Mesh) probe(ctx context.Context, p peer.ID) error {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	m.clearBackoff(p)
	s, err := m.open(ctx, p, protocolHeartbeat)
	if err != nil {
		return err
	}
	defer s.Reset()
	deadline, _ := ctx.Deadline()
	if err := s.SetDeadline(deadline); err != nil {
		return fmt.Errorf("probe %s: %w", p, err)
	}
	if err := writeFrame(s, beat{Kind: beatProbe}); err != nil {
		return fmt.Errorf("probe %s: %w", p, err)
	}
	var answer beat
	if err := readFrame(s, maxPresence, &answer); err != nil {
		return fmt.Errorf("probe %s: %w", p, err)
	}
	if answer.Kind != beatAnswer {
		return fmt.Errorf("probe %s: %w", p, errFrame)
	}
	return nil
}

// readBeat waits for one frame as long as a peer may stay silent.
func (m *Mesh) readBeat(s *stream, b *beat) error {
	if err := s.SetReadDeadline(time.Now().Add(deadAfter + suspectAfter)); err != nil {
		return fmt.Errorf("read heartbeat: %w", err)
	}
	return readFrame(s, maxPresence, b)
}

// converse runs the lasting stream of a pair until either side ends it. A stream
// that comes later takes its place.
func (l *link) converse(ctx context.Context, s *stream) {
	ctx, cancel := context.WithCancel(ctx)
	l.attach(s, cancel)
	var both sync.WaitGroup
	both.Go(func() {
		defer cancel()
		l.report(l.read(s))
	})
	both.Go(func() {
		defer cancel()
		l.report(l.write(ctx, s))
	})
	<-ctx.Done()
	s.Reset()
	both.Wait()
	l.detach(s)
}

func (l *link) report(err error) {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		l.m.log.Debug("heartbeat stream ended", "peer", l.peer.String(), "err", err)
	}
}

// read takes frames until the stream ends. With the first one both sides know each
// other for members, so that is when to pull what was missed.
func (l *link) read(s *stream) error {
	for first := true; ; first = false {
		var b beat
		if err := l.m.readBeat(s, &b); err != nil {
			l.m.warden.blame(l.peer, err)
			return err
		}
		if err := l.m.warden.beat(l.peer); err != nil {
			return err
		}
		if !l.m.view.Load().roster.active(l.peer) {
			return ErrNotMember
		}
		l.take(s, b)
		if first {
			l.m.puller.request(l.peer)
		}
	}
}

// write sends a pulse when the tick of all links says so and the presence when it is
// due.
func (l *link) write(ctx context.Context, s *stream) error {
	presence := time.NewTimer(0)
	defer presence.Stop()
	var sequence, version uint64
	var sent time.Time
	for {
		b := beat{Kind: beatPulse, Boot: l.m.boot, Sequence: sequence, Wall: l.m.now().UnixMilli()}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.pulse:
			sequence++
			b.State = l.m.links.state.Load()
			// A notice may have gone to a stream that this one replaced.
			if _, now := l.m.presence.current(); now != version {
				wake(l.news)
			}
		case <-l.news:
			_, now := l.m.presence.current()
			presence.Reset(due(sent, version, now).Sub(l.m.now()))
			continue
		case <-presence.C:
			var err error
			if b, version, err = l.m.presenceBeat(); err != nil {
				return err
			}
			sent = l.m.now()
			presence.Reset(presenceFull)
		}
		l.mu.Lock()
		if s.boot != 0 {
			b.Twin = l.boots.twin(s.boot, l.m.now())
		}
		l.mu.Unlock()
		if err := s.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
			return fmt.Errorf("write heartbeat: %w", err)
		}
		if err := writeFrame(s, b); err != nil {
			return err
		}
	}
}

func (m *Mesh) presenceBeat() (beat, uint64, error) {
	p, version := m.presence.current()
	raw, err := marshal(p)
	if err != nil {
		return beat{}, 0, fmt.Errorf("encode presence: %w", err)
	}
	return beat{Kind: beatPresence, Boot: m.boot, Sequence: p.Sequence, Wall: m.now().UnixMilli(), Presence: raw}, version, nil
}

// take uses one frame from the peer: any frame is a sign of life.
func (l *link) take(s *stream, b beat) {
	now := l.m.now()
	if b.Twin != 0 {
		l.m.clones.claimed(l.peer, b.Twin, l.m.nameOf(l.peer.String())+" hears it twice")
	}
	l.mu.Lock()
	if b.Boot != 0 {
		first := s.boot == 0
		s.boot = b.Boot
		l.boots.note(b.Boot, now)
		if first && l.boots.twin(b.Boot, now) != 0 {
			// Its copy will take this stream's place before long.
			wake(l.pulse)
		}
	}
	if b.State != 0 && l.lacks(b.State, now) {
		l.m.puller.request(l.peer)
	}
	changed := l.health.heard(now)
	if b.Wall != 0 {
		l.skew = time.UnixMilli(b.Wall).Sub(now.Round(0))
	}
	if b.Kind == beatPresence {
		changed = l.takePresence(b.Presence) || changed
	}
	l.mu.Unlock()
	if changed {
		l.m.changes.notify()
	}
}

// takePresence is called with the link locked.
func (l *link) takePresence(raw []byte) bool {
	var p catalog.Presence
	if err := unmarshal(raw, &p); err != nil {
		l.m.log.Warn("presence not understood", "peer", l.peer.String(), "err", err)
		return false
	}
	p.Peer = l.peer.String() // its own, whatever it says
	p.Name, p.Addresses = cleanName(p.Name), capAddresses(p.Addresses)
	if l.known && !newer(l.presence, p) {
		return false
	}
	l.presence, l.known = p, true
	return true
}
