package mesh

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"

	"llmgw/mesh/catalog"
)

const (
	// linkTick is how often a link looks at its peer.
	linkTick = 250 * time.Millisecond
	// redialEach: a member that is away is dialled this often, for ever.
	redialEach = time.Second
	// stateWait is how long a peer's rows may differ before that is no matter of gossip
	// under way.
	stateWait = 3 * time.Second
	// dialWait bounds one attempt over all addresses.
	dialWait = 5 * time.Second
)

// link is this box's tie to one other member: it keeps a connection and the
// heartbeat stream up and judges how alive the peer is.
type link struct {
	m      *Mesh
	peer   peer.ID
	kicked chan struct{} // look now
	news   chan struct{} // the own presence changed
	pulse  chan struct{} // a heartbeat is due

	mu       sync.Mutex
	health   liveness
	presence catalog.Presence
	known    bool
	skew     time.Duration
	boots    bootLog
	beats    *stream            // the lasting stream, nil when there is none
	end      context.CancelFunc // of beats
	opening  bool
	dialing  bool
	dialled  time.Time // when last tried
	opened   time.Time // when the lasting stream was last tried
	idle     time.Time // since when there is a connection without a lasting stream
	state    uint64    // of the peer's rows, and since when it is that
	stateAt  time.Time
	compared [2]uint64 // states of both sides when last pulled for their difference
	trips    trips
}

// linkSet has one link for each active member but this box.
type linkSet struct {
	m *Mesh

	mu    sync.Mutex
	ctx   context.Context // nil until started and after stop
	done  context.CancelFunc
	links map[peer.ID]*link
	ends  map[peer.ID]context.CancelFunc
	work  sync.WaitGroup

	state atomic.Uint64 // of the own rows, as told in pulses
	log   [4]uint64     // the own log, and that of counts, as they were when state was summed up
}

func newLinkSet(m *Mesh) *linkSet {
	return &linkSet{m: m, links: map[peer.ID]*link{}, ends: map[peer.ID]context.CancelFunc{}}
}

func (s *linkSet) start(ctx context.Context) {
	s.mu.Lock()
	s.ctx, s.done = context.WithCancel(ctx)
	s.mu.Unlock()
	s.reconcile(s.m.view.Load().roster)
}

// stop ends all links and waits for them.
func (s *linkSet) stop() {
	s.mu.Lock()
	if s.ctx == nil {
		s.mu.Unlock()
		return
	}
	s.done()
	s.ctx = nil
	s.mu.Unlock()
	s.work.Wait()
}

// reconcile makes the links those of the roster.
func (s *linkSet) reconcile(r *roster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		return
	}
	for p, end := range s.ends {
		if !r.active(p) {
			end()
			delete(s.ends, p)
			delete(s.links, p)
		}
	}
	for p := range r.members {
		if _, ok := s.links[p]; ok || p == s.m.self || !r.active(p) {
			continue
		}
		l := &link{m: s.m, peer: p, kicked: make(chan struct{}, 1), news: make(chan struct{}, 1), pulse: make(chan struct{}, 1)}
		ctx, end := context.WithCancel(s.ctx)
		s.links[p], s.ends[p] = l, end
		s.work.Go(func() { l.run(ctx) })
	}
}

func (s *linkSet) get(p peer.ID) (*link, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.links[p]
	return l, ok && s.ctx != nil
}

func (s *linkSet) all() []*link {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*link, 0, len(s.links))
	for _, l := range s.links {
		out = append(out, l)
	}
	return out
}

// kick makes the link of p look at once: something about its connection changed.
func (s *linkSet) kick(p peer.ID) {
	if l, ok := s.get(p); ok {
		wake(l.kicked)
	}
}

// connected is kick for a new connection: what was tried on the last one says
// nothing about this one.
func (s *linkSet) connected(p peer.ID) {
	if l, ok := s.get(p); ok {
		l.mu.Lock()
		l.opened = time.Time{}
		l.trips = trips{busy: l.trips.busy} // it may go another way
		l.mu.Unlock()
		wake(l.kicked)
	}
}

// announce tells all links that the own presence changed.
func (s *linkSet) announce() {
	for _, l := range s.all() {
		wake(l.news)
	}
}

// live lists the peers that are live, in no order.
func (s *linkSet) live() []peer.ID {
	var out []peer.ID
	for _, l := range s.all() {
		l.mu.Lock()
		if l.health.current() == StateLive {
			out = append(out, l.peer)
		}
		l.mu.Unlock()
	}
	return out
}

// slept tells all links that this box itself did not run for a while.
func (s *linkSet) slept(d time.Duration) {
	for _, l := range s.all() {
		l.mu.Lock()
		l.health.slept(s.m.now(), d)
		l.mu.Unlock()
		wake(l.kicked)
	}
}

// recheck has every live peer probed now.
func (s *linkSet) recheck() {
	for _, l := range s.all() {
		l.mu.Lock()
		l.health.recheck(s.m.now())
		l.mu.Unlock()
		wake(l.kicked)
	}
}

// tick has all links look at their peers, and send their heartbeats when pulse is
// set: one timer for all keeps an idle box asleep for longer.
func (s *linkSet) tick(now time.Time, pulse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pulse {
		s.sumUp()
	}
	for _, l := range s.links {
		if pulse {
			wake(l.pulse)
		}
		if l.restless(now) {
			wake(l.kicked)
		}
	}
}

// sumUp makes one number of all rows and counts. It is called with s locked.
func (s *linkSet) sumUp() {
	sums, money := s.m.store.MoneyState()
	log := [...]uint64{s.m.store.IndexID(), s.m.store.Sequence(), money.Index, money.Seq}
	if log == s.log {
		return
	}
	digest := s.m.store.Digest()
	s.log = log
	s.state.Store(xxhash.Sum64(append(digest.Encode(), sums.Encode()...)) | 1) // never 0, which tells nothing
}

// restless says whether there may be something to do: not while a lasting stream is up
// on which the peer is heard.
func (l *link) restless(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beats == nil || l.health.current() != StateLive || now.Sub(l.health.heardAt) >= suspectAfter || l.trips.due(now)
}

// lacks says whether to pull, because the peer's rows have been others than the own ones
// for a while in which they did not change: gossip was lost, or came by a third box.
// It is called with the link locked.
func (l *link) lacks(state uint64, now time.Time) bool {
	own := l.m.links.state.Load()
	if state != l.state {
		l.state, l.stateAt = state, now
	}
	pair := [2]uint64{state, own}
	if state == own || own == 0 || pair == l.compared || now.Sub(l.stateAt) < stateWait {
		return false
	}
	l.compared = pair
	return true
}

func (l *link) run(ctx context.Context) {
	var work sync.WaitGroup
	for ctx.Err() == nil {
		l.step(ctx, &work)
		select {
		case <-ctx.Done():
		case <-l.kicked:
		}
	}
	l.hangUp()
	work.Wait()
}

// step does what is due. Attempts keep their distance however often the link is
// kicked: a peer that refuses is not asked in a tight loop.
func (l *link) step(ctx context.Context, work *sync.WaitGroup) {
	connected := l.m.host.Network().Connectedness(l.peer) == network.Connected
	clock := l.m.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judge(ctx, clock, work)
	if !connected {
		l.idle = time.Time{}
		if !l.dialing && clock.Sub(l.dialled) >= redialEach {
			l.dialing, l.dialled = true, clock
			work.Go(func() { l.dial(ctx) })
		}
		return
	}
	// One of the two opens the lasting stream, so that there is one. The other helps
	// when that does not come: a copy of this box may have got it.
	if l.beats != nil {
		l.idle = time.Time{}
		if l.health.current() == StateLive && l.trips.due(clock) {
			l.trips.busy = true
			work.Go(func() { l.measure(ctx) })
		}
		return
	}
	if l.idle.IsZero() {
		l.idle = clock
	}
	mine := l.m.self < l.peer || clock.Sub(l.idle) >= suspectAfter
	if mine && !l.opening && clock.Sub(l.opened) >= redialEach {
		l.opening, l.opened = true, clock
		work.Go(func() { l.openBeats(ctx) })
	}
}

// judge acts on the peer's silence. It is called with the link locked.
func (l *link) judge(ctx context.Context, clock time.Time, work *sync.WaitGroup) {
	do := l.health.tick(clock)
	if do.probe {
		work.Go(func() { l.probe(ctx) })
	}
	if do.ask {
		work.Go(func() { l.ask(ctx) })
	}
	if do.disconnect {
		l.m.log.Warn("node is silent for too long; its connection is closed and dialled anew", "peer", l.peer.String(), "state", string(l.health.current()))
		work.Go(func() { l.m.host.Network().ClosePeer(l.peer) })
	}
	if do.changed {
		l.m.changes.notify()
	}
}

func (l *link) probe(ctx context.Context) {
	err := l.m.probe(ctx, l.peer)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	changed := l.health.probed(l.m.now(), err == nil)
	end := l.end
	l.mu.Unlock()
	if err == nil && end != nil {
		end() // the peer lives but its heartbeat stream is stuck
	}
	if changed && err != nil {
		l.m.log.Info("node does not answer", "peer", l.peer.String(), "err", err)
		// Requests that have not had a byte yet can still be served elsewhere.
		if n := l.m.unread.reset(l.peer); n > 0 {
			l.m.log.Info("relays without a byte yet were given up", "peer", l.peer.String(), "count", n)
		}
	}
	if changed {
		l.m.changes.notify()
	}
}

func (l *link) ask(ctx context.Context) {
	reached := l.m.askOthers(ctx, l.peer)
	l.mu.Lock()
	l.health.vouched(l.m.now(), reached)
	l.mu.Unlock()
	if reached && ctx.Err() == nil {
		l.m.log.Info("node is reached by others but not by this box", "peer", l.peer.String())
	}
}

// dial connects to the peer, whatever libp2p's own back-off says: a box that
// comes back must not wait for minutes.
func (l *link) dial(ctx context.Context) {
	defer func() {
		l.mu.Lock()
		l.dialing = false
		l.mu.Unlock()
	}()
	l.m.clearBackoff(l.peer)
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	if err := l.m.host.Connect(ctx, peer.AddrInfo{ID: l.peer, Addrs: l.addrs()}); err != nil {
		l.m.log.Debug("node not reached", "peer", l.peer.String(), "err", err)
		return
	}
	wake(l.kicked)
}

func (m *Mesh) clearBackoff(p peer.ID) {
	if s, ok := m.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(p)
	}
}

// addrs are those of the peer's newest presence; those of its row are in the
// peerstore.
func (l *link) addrs() []ma.Multiaddr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return multiaddrs(l.presence.Addresses)
}

func multiaddrs(texts []string) []ma.Multiaddr {
	var out []ma.Multiaddr
	for _, text := range texts {
		if a, err := ma.NewMultiaddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func (l *link) openBeats(ctx context.Context) {
	defer func() {
		l.mu.Lock()
		l.opening = false
		l.mu.Unlock()
	}()
	wait, cancel := context.WithTimeout(ctx, dialWait)
	s, err := l.m.open(wait, l.peer, protocolHeartbeat)
	cancel()
	if err != nil {
		l.m.log.Debug("heartbeat stream not opened", "peer", l.peer.String(), "err", err)
		return
	}
	l.converse(ctx, s)
}

// attach makes s the lasting stream; an older one ends.
func (l *link) attach(s *stream, end context.CancelFunc) {
	l.mu.Lock()
	old := l.end
	l.beats, l.end = s, end
	l.mu.Unlock()
	if old != nil {
		old()
	}
}

func (l *link) detach(s *stream) {
	l.mu.Lock()
	if l.beats == s {
		l.beats, l.end = nil, nil
	}
	l.mu.Unlock()
	wake(l.kicked)
}

func (l *link) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		l.end()
	}
}

// keepAddresses makes the peerstore remember members for good; libp2p would
// forget them 15 minutes after they went away.
func (m *Mesh) keepAddresses(old, r *roster) {
	for id, member := range r.members {
		if id == m.self || !r.active(id) || len(member.addrs) == 0 {
			continue
		}
		if before, ok := old.members[id]; ok {
			gone := slices.DeleteFunc(slices.Clone(before.addrs), func(a string) bool { return slices.Contains(member.addrs, a) })
			m.host.Peerstore().SetAddrs(id, multiaddrs(gone), 0)
		}
		m.host.Peerstore().AddAddrs(id, multiaddrs(member.addrs), peerstore.PermanentAddrTTL)
	}
}

// watchClock drives the links, and finds out when this box itself did not run,
// suspended or starved: then it accuses nobody.
func (m *Mesh) watchClock(ctx context.Context) {
	tick := time.NewTicker(linkTick)
	defer tick.Stop()
	last := m.now()
	for ticks := 0; ; ticks++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := m.now()
		late, jumped := lapse(now.Round(0).Sub(last.Round(0)), now.Sub(last))
		if late > lateTick {
			m.log.Debug("this box did not run for a while", "for", late)
			m.links.slept(late)
		}
		if jumped {
			m.log.Info("the wall clock jumped: this box was suspended, or its clock was set")
			m.links.recheck()
		}
		if late > lateTick || jumped {
			m.puller.requestAll()
		}
		m.links.tick(now, ticks%int(heartbeatEach/linkTick) == 0)
		last = now
	}
}
