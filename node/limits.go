package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"llmgw/crdt"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router/limits"
)

// Protocols of limits between heads. The side that asks closes its half first.
const (
	// protocolRates asks for all rate counts that a head knows.
	protocolRates = "/llmgw/rates/1"
	// protocolOwner asks the owner of a limit to decide.
	protocolOwner = "/llmgw/owner/1"
)

const (
	limitsTick = 100 * time.Millisecond
	// headFor is how long a head that is not heard keeps its part of limits.
	headFor = 10 * time.Minute
	// headSilent: heartbeats come each second.
	headSilent = 2500 * time.Millisecond
	// ratesTime bounds a snapshot of rate counts, decideTime an answer of an owner.
	ratesTime  = 10 * time.Second
	decideTime = 5 * time.Second
	// maxDecision bounds a question to an owner and its answer, in bytes.
	maxDecision = 64 << 10
)

// meshClock is the time by which the minutes of limits and the days of budgets begin.
type meshClock struct {
	wall func() time.Time
	mu   sync.Mutex
	time crdt.MeshTime
}

func (c *meshClock) now() time.Time {
	wall := c.wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time.Now(wall)
}

func (c *meshClock) observe(nodes []mesh.Node) {
	var ahead []time.Duration
	for _, n := range nodes {
		if n.State == mesh.StateLive {
			ahead = append(ahead, n.Skew)
		}
	}
	wall := c.wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time.Observe(wall, ahead)
}

func (n *Node) openLimits() error {
	n.setPolicy(n.cfg.LimitPolicy)
	n.setProxies(n.cfg.TrustedProxies)
	n.meshTime = &meshClock{wall: n.now}
	n.book = limits.NewBook(n.catalog, n.log)
	n.onClose(func() error { n.book.Close(); return nil })
	n.limits = limits.New(limits.Config{
		Self: crdt.Incarnation{Replica: n.store.ID(), Boot: n.mesh.Boot()}, Peer: n.mesh.Self(), Now: n.meshTime.now,
		Heads: n.heads, Publish: rates{n}.publish, Book: n.book, Ledger: n.store, Policy: n.limitPolicy, Asker: rates{n},
		Rights: rights{n.mesh.Escrow(), n.log}, Log: n.log,
	})
	n.onClose(func() error { n.limits.Close(); return nil })
	n.registry.MustRegister(limitMetrics{n.limits})
	n.mesh.OnSignal(mesh.SignalRates, n.limits.TakeSignal)
	n.mesh.Handle(protocolRates, n.serveRates)
	n.mesh.Handle(protocolOwner, n.serveOwner)
	n.mesh.Handle(protocolUsage, n.serveUsage)
	return nil
}

// limitPolicy is how heads agree on limits now.
func (n *Node) limitPolicy() limits.Policy { return *n.policy.Load() }

func (n *Node) setPolicy(text string) {
	p := cmp.Or(limits.Policy(text), limits.Share)
	n.policy.Store(&p)
}

// trustedProxies are the networks whose forwarded headers count.
func (n *Node) trustedProxies() []netip.Prefix { return *n.proxies.Load() }

func (n *Node) setProxies(networks []string) {
	var list []netip.Prefix
	for _, text := range networks {
		if p, err := catalog.ParseNetwork(text); err == nil { // both sources were checked
			list = append(list, p)
		}
	}
	n.proxies.Store(&list)
}

// heads lists those who admit requests.
func (n *Node) heads() []limits.Head {
	var list []limits.Head
	for _, m := range n.mesh.Nodes() {
		switch {
		case m.State == mesh.StateSelf:
			list = append(list, limits.Head{Peer: m.ID})
		case m.State == mesh.StateLeft || m.Presence.Stopping || !m.Heard || m.LastHeard > headFor:
		default:
			list = append(list, limits.Head{Peer: m.ID, Silent: m.State != mesh.StateLive || m.LastHeard > headSilent})
		}
	}
	return list
}

// keepLimits tells the other heads what this one counts, until ctx ends.
func (n *Node) keepLimits(ctx context.Context) error {
	tick := time.NewTicker(limitsTick)
	defer tick.Stop()
	asked := map[string]bool{} // for a snapshot
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if round%10 == 0 {
			n.followHeads(ctx, asked)
		}
		n.limits.Tick(n.meshTime.now())
	}
}

// followHeads sets the clock by the live members, drops what the dead ones hold, and
// asks the first one that comes for the counts of this minute.
func (n *Node) followHeads(ctx context.Context, asked map[string]bool) {
	nodes := n.mesh.Nodes()
	n.meshTime.observe(nodes)
	for _, m := range nodes {
		switch m.State {
		case mesh.StateDead, mesh.StateLeft:
			n.limits.Forget(m.ID)
		case mesh.StateLive:
			if len(asked) < snapshotsAsked && !asked[m.ID] {
				asked[m.ID] = true
				go rates{n}.askSnapshot(ctx, m.ID)
			}
		}
	}
}

// snapshotsAsked heads are asked at a start: one may have started just now as well.
const snapshotsAsked = 2

// rates carries rate counts between heads.
type rates struct{ *Node }

func (r rates) publish(msg []byte) {
	if err := r.mesh.Signal(mesh.SignalRates, msg); err != nil {
		r.log.Debug("other heads were not told of rate counts", "error", err)
	}
}

// askSnapshot fills in what was counted before this head came. Without an answer the
// others tell it in full within ten seconds.
func (r rates) askSnapshot(ctx context.Context, peer string) {
	ctx, cancel := context.WithTimeout(ctx, ratesTime)
	defer cancel()
	err := r.exchange(ctx, peer, protocolRates, nil, r.limits.TakeSnapshot)
	if err != nil && ctx.Err() == nil {
		r.log.Debug("no snapshot of rate counts", "peer", peer, "error", err)
	}
}

// Ask has the owner of a limit decide.
func (r rates) Ask(ctx context.Context, peer string, question []byte) (answer []byte, err error) {
	err = r.exchange(ctx, peer, protocolOwner, question, func(s io.Reader) (err error) {
		answer, err = readBounded(s, maxDecision)
		return err
	})
	return answer, err
}

// exchange sends a message over a stream of its own and has the answer read.
func (r rates) exchange(ctx context.Context, peer, protocol string, msg []byte, read func(io.Reader) error) error {
	s, err := r.mesh.Open(ctx, peer, protocol)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = s.SetDeadline(deadline) // a stream that takes none fails below
	}
	if _, err = s.Write(msg); err == nil || len(msg) == 0 {
		err = s.CloseWrite()
	}
	if err == nil {
		err = read(s)
	}
	if err != nil {
		_ = s.Reset()
		return fmt.Errorf("%s: %w", protocol, err)
	}
	return s.Close()
}

var errTooLong = errors.New("message too long")

func readBounded(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = errTooLong
	}
	return data, err
}

// serveRates answers one stream of protocolRates.
func (n *Node) serveRates(s mesh.Stream) {
	_ = s.SetDeadline(time.Now().Add(ratesTime))
	if err := n.limits.Snapshot(s); err != nil {
		_ = s.Reset()
		return
	}
	_ = s.Close() // the asker may be gone: it is its loss
}

// serveOwner answers one stream of protocolOwner.
func (n *Node) serveOwner(s mesh.Stream) {
	_ = s.SetDeadline(time.Now().Add(decideTime))
	question, err := readBounded(s, maxDecision)
	var answer []byte
	if err == nil {
		answer, err = n.limits.Answer(s.Peer(), question)
	}
	if err == nil {
		_, err = s.Write(answer)
	}
	if err != nil {
		n.log.Debug("a question about a limit was not answered", "peer", s.Peer(), "error", err)
		_ = s.Reset()
		return
	}
	_ = s.Close()
}
