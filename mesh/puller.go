package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

const (
	// pullLeast and pullMost: a random peer is pulled from in this rhythm, even if
	// nothing seems to be missing.
	pullLeast, pullMost = 10 * time.Second, 30 * time.Second
	// pullRetry: after a failed pull at connect.
	pullRetry = time.Second
)

// puller decides when to pull from whom. One pull per peer runs at a time.
type puller struct {
	m *Mesh
	// pulled is one above the generation in which a pull ended well; 0 for none.
	pulled atomic.Uint64

	mu     sync.Mutex
	wanted map[peer.ID]bool
	busy   map[peer.ID]bool
	turns  map[peer.ID]chan struct{} // held by the pull that runs
	any    bool
	wake   chan struct{}
}

func newPuller(m *Mesh) *puller {
	return &puller{m: m, wanted: map[peer.ID]bool{}, busy: map[peer.ID]bool{}, turns: map[peer.ID]chan struct{}{}, wake: make(chan struct{}, 1)}
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
	err := u.m.pull(ctx, p)
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

// turn waits until no other pull from p runs: one that began beside it would fetch
// the same rows again. Where that one ended the next begins. done ends the turn.
func (u *puller) turn(ctx context.Context, p peer.ID) (done func(), err error) {
	u.mu.Lock()
	held := u.turns[p]
	if held == nil {
		held = make(chan struct{}, 1)
		u.turns[p] = held
	}
	u.mu.Unlock()
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another pull from %s: %w", p, ctx.Err())
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
