package mesh

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

const (
	// pageBytes bounds the rows of one frame; the reader sets the pace.
	pageBytes = 200 << 10
	// syncWait bounds one frame either way.
	syncWait = 30 * time.Second
	// pullLeast and pullMost: a random peer is pulled from in this rhythm, even if
	// nothing seems to be missing.
	pullLeast, pullMost = 10 * time.Second, 30 * time.Second
	// maxParts bounds the frames that carry no cursor on: parts of one row, and the
	// membership rows of a large mesh.
	maxParts = 256
	// pullRetry: after a failed pull at connect.
	pullRetry = time.Second
)

// Kinds of requests on a sync stream.
const (
	askPull  = 1 // send me what I lack
	askOffer = 2 // pull from me, on this stream, and tell when it is done
	// The rest is answered by a digestAnswer.
	askDigest  = 3 // your digest
	askBuckets = 4 // the rows of these buckets
	askRows    = 5 // these rows
)

// syncAsk is the first frame of the side that opened the stream, and of the side
// that answers an offer.
type syncAsk struct {
	Kind    uint8    `cbor:"1,keyasint"`
	Mesh    []byte   `cbor:"2,keyasint"`
	Index   uint64   `cbor:"3,keyasint,omitempty"` // of the log that Seq counts in
	Seq     uint64   `cbor:"4,keyasint,omitempty"`
	Roster  []byte   `cbor:"5,keyasint,omitempty"` // digest of the membership rows
	Buckets []int    `cbor:"6,keyasint,omitempty"`
	Rows    [][]byte `cbor:"7,keyasint,omitempty"` // keys
}

// syncPage is one answer to a pull. Membership rows come first and whole, so that
// every chain in them can be checked at once.
type syncPage struct {
	Index uint64 `cbor:"1,keyasint"`
	Next  uint64 `cbor:"2,keyasint"`
	More  bool   `cbor:"3,keyasint,omitempty"`
	Items []byte `cbor:"4,keyasint,omitempty"` // crdt.EncodeItems
	// Members says that these are membership rows outside of the log.
	Members bool `cbor:"5,keyasint,omitempty"`
}

// syncAck ends an offer.
type syncAck struct {
	Seq uint64 `cbor:"1,keyasint"` // of the offering side's log, on the other's disk
}

// serveSync answers one pull or takes one offer.
func (m *Mesh) serveSync(s *stream) {
	if err := m.answerSync(s); err != nil {
		m.refuse(s, protocolSync, err)
		return
	}
	s.Close()
}

func (m *Mesh) answerSync(s *stream) error {
	var ask syncAsk
	if err := m.readSync(s, &ask); err != nil {
		return err
	}
	switch ask.Kind {
	case askPull:
		return m.sendPages(s, ask)
	case askOffer:
		return m.takeOffer(s, ask)
	case askDigest, askBuckets, askRows:
		return m.answerDigest(s, ask)
	}
	return fmt.Errorf("sync request of kind %d: %w", ask.Kind, errFrame)
}

func (m *Mesh) readSync(s *stream, v any) error {
	if err := s.SetReadDeadline(time.Now().Add(syncWait)); err != nil {
		return fmt.Errorf("bound sync: %w", err)
	}
	return readFrame(s, maxSync+frameHead, v)
}

func (m *Mesh) writeSync(s *stream, v any) error {
	if err := s.SetWriteDeadline(time.Now().Add(syncWait)); err != nil {
		return fmt.Errorf("bound sync: %w", err)
	}
	return writeFrame(s, v)
}

// sendPages gives the other side what it lacks, as far as the log knows.
func (m *Mesh) sendPages(s *stream, ask syncAsk) error {
	v := m.view.Load()
	if string(ask.Mesh) != string(v.mesh[:]) {
		return errMeshReplaced
	}
	index := m.store.IndexID()
	if err := m.sendMembers(s, ask, index); err != nil {
		return err
	}
	seq := ask.Seq
	if ask.Index != index {
		seq = 0 // it knew another life of this store
	}
	for more := true; more; {
		page, err := m.store.Since(seq, pageBytes)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if page.IndexID != index {
			return errMeshReplaced
		}
		seq, more = page.Next, page.More
		if err := m.sendPage(s, page); err != nil {
			return err
		}
		if m.view.Load().generation != v.generation || !m.view.Load().roster.active(s.peer()) {
			return ErrNotMember
		}
	}
	return nil
}

// sendPage sends a page of the log. A row that is too large for a frame goes in
// parts; the last one carries the cursor on.
func (m *Mesh) sendPage(s *stream, page store.Page) error {
	parts := crdt.Pack(page.Items, maxSync/2)
	if len(parts) == 0 {
		parts = [][]crdt.Item{nil}
	}
	for i, part := range parts {
		raw, err := crdt.EncodeItems(part)
		if err != nil {
			return fmt.Errorf("encode page: %w", err)
		}
		frame := syncPage{Index: page.IndexID, Items: raw, More: true}
		if i == len(parts)-1 {
			frame.Next, frame.More = page.Next, page.More
		}
		if err := m.writeSync(s, frame); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mesh) sendMembers(s *stream, ask syncAsk, index uint64) error {
	rows, err := m.store.List(nsMembers)
	if err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	digest, err := digestRows(rows)
	if err != nil || string(digest) == string(ask.Roster) {
		return err
	}
	parts := crdt.Pack(rows, maxSync/2)
	for _, part := range parts {
		raw, err := crdt.EncodeItems(part)
		if err != nil {
			return fmt.Errorf("encode members: %w", err)
		}
		if err := m.writeSync(s, syncPage{Index: index, Items: raw, More: true, Members: true}); err != nil {
			return err
		}
	}
	return nil
}

func digestRows(rows []crdt.Item) ([]byte, error) {
	raw, err := crdt.EncodeItems(rows)
	if err != nil {
		return nil, fmt.Errorf("encode members: %w", err)
	}
	sum := sha256.Sum256(raw)
	return sum[:], nil
}

// pull asks a peer for what this box lacks and merges it. Where it breaks off it
// goes on the next time.
func (m *Mesh) pull(ctx context.Context, p peer.ID) error {
	s, err := m.open(ctx, p, protocolSync)
	if err != nil {
		return err
	}
	// A read does not look at the context.
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	if err := m.pullOver(s); err != nil {
		s.Reset()
		m.warden.blame(p, err)
		return fmt.Errorf("pull from %s: %w", p, err)
	}
	s.Close()
	return nil
}

// pullOver runs the asking side of a pull on an open stream.
func (m *Mesh) pullOver(s *stream) error {
	v := m.view.Load()
	from := s.Peer()
	cursor, err := m.store.Cursor(from)
	if err != nil {
		return fmt.Errorf("read cursor: %w", err)
	}
	rows, err := m.store.List(nsMembers)
	if err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	digest, err := digestRows(rows)
	if err != nil {
		return err
	}
	ask := syncAsk{Kind: askPull, Mesh: v.mesh[:], Index: cursor.IndexID, Seq: cursor.Seq, Roster: digest}
	if err := m.writeSync(s, ask); err != nil {
		return err
	}
	idle, last := 0, uint64(0)
	for {
		var page syncPage
		if err := m.readSync(s, &page); err != nil {
			return err
		}
		// A row that is too large for a frame comes in parts; nothing else does.
		if idle++; page.Next > last {
			idle, last = 0, page.Next
		}
		if idle > maxParts {
			return fmt.Errorf("%d frames without an end: %w", idle, errFrame)
		}
		if err := m.takePage(v.generation, from, page); err != nil {
			return err
		}
		if !page.More {
			m.puller.pulled.Store(v.generation + 1)
			return nil
		}
	}
}

// takePage merges one page and then, not before, moves the cursor.
func (m *Mesh) takePage(generation uint64, from string, page syncPage) error {
	if len(page.Items) > 0 {
		items, err := crdt.DecodeItems(page.Items)
		if err != nil {
			return fmt.Errorf("decode page: %w: %w", errFrame, err)
		}
		refused, err := m.merge(generation, items)
		if err != nil {
			return err
		}
		if refused > 0 {
			m.counts.rejected.Add(float64(refused))
			m.log.Debug("membership rows refused: their signer may not write them", "peer", from, "count", refused)
			if p, err := peer.Decode(from); err == nil {
				m.warden.offence(p, offenceRows)
			}
		}
	}
	if page.Members || page.Next == 0 {
		return nil
	}
	m.swap.RLock()
	defer m.swap.RUnlock()
	if m.view.Load().generation != generation {
		return errMeshReplaced
	}
	if err := m.store.SetCursor(from, store.Cursor{IndexID: page.Index, Seq: page.Next}); err != nil {
		return fmt.Errorf("keep cursor: %w", err)
	}
	return nil
}

// puller decides when to pull from whom. One pull per peer runs at a time.
type puller struct {
	m *Mesh
	// pulled is one above the generation in which a pull ended well; 0 for none.
	pulled atomic.Uint64

	mu     sync.Mutex
	wanted map[peer.ID]bool
	busy   map[peer.ID]bool
	any    bool
	wake   chan struct{}
}

func newPuller(m *Mesh) *puller {
	return &puller{m: m, wanted: map[peer.ID]bool{}, busy: map[peer.ID]bool{}, wake: make(chan struct{}, 1)}
}

// request asks for a pull from p soon. It never blocks.
func (u *puller) request(p peer.ID) {
	u.mu.Lock()
	u.wanted[p] = true
	u.mu.Unlock()
	wake(u.wake)
}

// requestAny asks for a pull from some live peer: a message was lost.
func (u *puller) requestAny() {
	u.mu.Lock()
	u.any = true
	u.mu.Unlock()
	wake(u.wake)
}

// requestAll asks for a pull from every live peer.
func (u *puller) requestAll() {
	for _, p := range u.m.links.live() {
		u.request(p)
	}
}

func (u *puller) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	rhythm := time.NewTimer(pullPause())
	defer rhythm.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.wake:
		case <-rhythm.C:
			u.pickAny()
			u.m.Provisional() // notices what made the mesh worth keeping, for good
			rhythm.Reset(pullPause())
		}
		for _, p := range u.take() {
			work.Go(func() { u.pull(ctx, p) })
		}
	}
}

// pullPause spreads the boxes of a mesh; its randomness needs no secrecy.
func pullPause() time.Duration { return pullLeast + rand.N(pullMost-pullLeast) }

func (u *puller) pickAny() {
	if live := u.m.links.live(); len(live) > 0 {
		u.request(live[rand.N(len(live))])
	}
}

// take hands out whom to pull from now and marks them busy.
func (u *puller) take() []peer.ID {
	u.mu.Lock()
	any := u.any
	u.any = false
	u.mu.Unlock()
	if any {
		u.pickAny()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []peer.ID
	for p := range u.wanted {
		if !u.busy[p] {
			delete(u.wanted, p)
			u.busy[p] = true
			out = append(out, p)
		}
	}
	return out
}

func (u *puller) pull(ctx context.Context, p peer.ID) {
	wait, cancel := context.WithTimeout(ctx, 2*syncWait)
	err := u.m.pull(wait, p)
	cancel()
	u.count(p, err)
	if err != nil && ctx.Err() == nil && u.m.view.Load().roster.active(p) {
		select {
		case <-ctx.Done():
		case <-time.After(pullRetry):
		}
		if l, ok := u.m.links.get(p); ok && l.live() {
			u.request(p)
		}
	}
	u.mu.Lock()
	delete(u.busy, p)
	again := u.wanted[p]
	u.mu.Unlock()
	if again {
		wake(u.wake)
	}
}

func (u *puller) count(p peer.ID, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
		if !errors.Is(err, context.Canceled) {
			u.m.log.Debug("pull failed", "peer", p.String(), "err", err)
		}
	}
	u.m.counts.pulls.WithLabelValues(result).Inc()
}

func (l *link) live() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.health.current() == StateLive
}
