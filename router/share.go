package router

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"sync"
	"time"

	"llmgw/mesh"
	"llmgw/router/affinity"
)

// ProtocolWarm is the stream by which a head asks another for all that it
// believes warm: it closes its side, and gets a snapshot.
const ProtocolWarm = "/llmgw/warm/1"

const (
	// snapshotEvery is the least time between two snapshots that are asked for.
	snapshotEvery = 10 * time.Second
	// snapshotTime bounds one.
	snapshotTime = 20 * time.Second
	// keepEvery is how often what is not warm any more is dropped.
	keepEvery = 5 * time.Second
)

// Sharer gives a message to the other heads, TakeShared or TakeCooled being called
// there. It may lose, repeat and reorder messages, and must not block. A message has
// at most affinity.MaxMessage bytes; a busy head publishes some twenty a second.
type Sharer interface {
	Publish(msg []byte)
	// Cooled tells that a provider's key is left alone.
	Cooled(msg []byte)
}

// sharing tells the other heads what this one decides.
type sharing struct {
	r      *Router
	mu     sync.Mutex
	timer  *time.Timer
	due    time.Time // of the next flush; zero: none
	closed bool
	asked  time.Time // when a snapshot was asked for
	kept   time.Time // when old beliefs were dropped
}

// headBoot tells this head's messages from those of an earlier life.
func headBoot(entropy io.Reader) uint64 {
	var b [8]byte
	// Without entropy the messages of two lives look alike: old ones are
	// dropped for a while, which costs a colder cache.
	_, _ = io.ReadFull(entropy, b[:])
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// soon has a change told after the time that others may join it in.
func (s *sharing) soon(now time.Time) {
	s.keep(now)
	if s.r.cfg.Share != nil {
		s.arm(affinity.FlushAfter)
	}
}

// arm flushes after d, unless an earlier flush is due.
func (s *sharing) arm(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now().Add(d)
	if s.closed || !s.due.IsZero() && !at.Before(s.due) {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.due = at
	s.timer = time.AfterFunc(d, s.flush)
}

func (s *sharing) flush() {
	s.mu.Lock()
	s.due = time.Time{}
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return
	}
	msg, again := s.r.picker.Flush(s.r.now())
	if msg != nil {
		s.r.cfg.Share.Publish(msg)
	}
	if again > 0 {
		s.arm(again)
	}
}

func (s *sharing) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// keep drops what is believed of replicas that are gone.
func (s *sharing) keep(now time.Time) {
	s.mu.Lock()
	due := now.Sub(s.kept) >= keepEvery
	if due {
		s.kept = now
	}
	s.mu.Unlock()
	if !due {
		return
	}
	var listed []affinity.Replica
	for _, v := range s.r.cfg.Catalog.List() {
		for _, c := range v.Replicas {
			listed = append(listed, c.id())
		}
	}
	s.r.picker.Keep(listed, now)
}

// TakeShared takes in what another head published. Messages that cannot be
// read are dropped: a head of a later version may send them.
func (r *Router) TakeShared(from string, msg []byte) {
	now := r.now()
	gap, err := r.picker.Take(from, msg, now)
	if err != nil {
		if r.quiet.allow(now) {
			r.cfg.Log.Warn("shared message dropped", slog.String("peer", from), slog.Any("error", err))
		}
		return
	}
	r.share.keep(now)
	if gap && r.share.mayAsk(now) {
		go r.askSnapshot(from)
	}
}

func (s *sharing) mayAsk(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.asked.IsZero() && now.Sub(s.asked) < snapshotEvery {
		return false
	}
	s.asked = now
	return true
}

// askSnapshot fills in what was missed. It is a hint: without an answer the
// next messages tell as well.
func (r *Router) askSnapshot(peer string) {
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTime)
	defer cancel()
	if err := r.takeSnapshot(ctx, peer); err != nil {
		r.cfg.Log.Debug("no snapshot of warm prefixes", slog.String("peer", peer), slog.Any("error", err))
	}
}

func (r *Router) takeSnapshot(ctx context.Context, peer string) error {
	s, err := r.cfg.Mesh.Open(ctx, peer, ProtocolWarm)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = s.SetDeadline(deadline) // a stream that takes none fails in Read
	}
	err = s.CloseWrite()
	if err == nil {
		err = r.picker.TakeSnapshot(s, r.now())
	}
	if err != nil {
		_ = s.Reset()
		return err
	}
	return s.Close()
}

// ServeWarm answers one stream of ProtocolWarm; s is closed or reset.
func (r *Router) ServeWarm(s mesh.Stream) {
	_ = s.SetDeadline(time.Now().Add(snapshotTime))
	if err := r.picker.Snapshot(s, r.now()); err != nil {
		_ = s.Reset()
		return
	}
	// The asker may be gone: it is its loss.
	_ = s.Close()
}

// ForgetHead drops what a head told of its load: it is dead or left.
func (r *Router) ForgetHead(peer string) { r.picker.Lost(peer) }
