package mesh

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"

	"llmgw/mesh/discovery"
)

const (
	// lookEach is how often what is known is looked at again.
	lookEach = time.Second
	// askEach spaces the handshakes that ask a static peer who it is.
	askEach = 5 * time.Second
	// askedFor is how long the answer is believed: an address may get another box.
	askedFor = time.Minute
	// maxReasons bounds what is remembered of boxes that are no members.
	maxReasons = 1024
	// joinRetry spaces attempts to be admitted by secret at one box.
	joinRetry = 5 * time.Second
	// secondMover lets the box with the lower peer ID make the first move, so that
	// two that see each other do not join at each other at once.
	secondMover = 2 * time.Second
)

// Sighting is a box that was seen and is no member of this mesh.
type Sighting struct {
	ID     string // peer ID as claimed; empty when it did not answer
	Name   string // as claimed
	Addrs  []string
	Reason string // why it has not joined, for a person
}

// sightings holds what discovery sees, by source.
type sightings struct {
	m *Mesh

	mu      sync.Mutex
	sources map[string][]discovery.Group // whole sets, by source
	reasons map[string]string            // by peer ID or address
	tried   map[peer.ID]time.Time        // last attempt to be admitted there
	busy    map[peer.ID]bool
	asked   map[string]answerAt // of static peers, by address
}

// answerAt is who answered at an address; no ID when nobody did.
type answerAt struct {
	id peer.ID
	at time.Time
}

func newSightings(m *Mesh) *sightings {
	return &sightings{
		m: m, sources: map[string][]discovery.Group{}, reasons: map[string]string{},
		tried: map[peer.ID]time.Time{}, busy: map[peer.ID]bool{}, asked: map[string]answerAt{},
	}
}

// Sightings lists the boxes that discovery sees and that are no members.
func (m *Mesh) Sightings() []Sighting { return m.sights.list(m.view.Load().roster) }

// list has each box once, whatever sources know it: a peer given by hand is known
// by who answered at its address.
func (s *sightings) list(r *roster) []Sighting {
	connected := s.m.membersAt()
	s.mu.Lock()
	defer s.mu.Unlock()
	byKey := map[string]*Sighting{}
	for _, g := range s.all() {
		id := s.whose(g, connected)
		if p, err := peer.Decode(id); err == nil && (p == s.m.self || r.standing(p) == active) {
			continue
		}
		key := cmp.Or(id, firstOf(g.Addrs))
		seen, ok := byKey[key]
		if !ok {
			seen = &Sighting{ID: id, Reason: s.defaultReason(g)}
			byKey[key] = seen
		}
		seen.Name = cmp.Or(seen.Name, cleanName(g.Name))
		for _, addr := range g.Addrs {
			if !slices.Contains(seen.Addrs, addr) {
				seen.Addrs = append(seen.Addrs, addr)
			}
		}
		if why := cmp.Or(s.reasons[id], s.reasons[firstOf(g.Addrs)]); why != "" {
			seen.Reason = why
		}
	}
	out := make([]Sighting, 0, len(byKey))
	for _, seen := range byKey {
		out = append(out, *seen)
	}
	slices.SortFunc(out, func(a, b Sighting) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID), cmp.Compare(firstOf(a.Addrs), firstOf(b.Addrs)))
	})
	return out
}

// whose is the peer ID of a group as far as known. It is called with s locked.
func (s *sightings) whose(g discovery.Group, connected map[string]string) string {
	addr := firstOf(g.Addrs)
	if id := cmp.Or(g.Peer, connected[addr]); id != "" {
		return id
	}
	if last := s.asked[addr]; last.id != "" {
		return last.id.String()
	}
	for _, other := range s.all() {
		if other.Peer != "" && slices.Contains(other.Addrs, addr) {
			return other.Peer
		}
	}
	return ""
}

// membersAt maps the addresses of connected members to their IDs.
func (m *Mesh) membersAt() map[string]string {
	out := map[string]string{}
	r := m.view.Load().roster
	for _, c := range m.host.Network().Conns() {
		if r.active(c.RemotePeer()) {
			out[plainAddr(c.RemoteMultiaddr())] = c.RemotePeer().String()
		}
	}
	return out
}

// byMDNS is what mDNS tells of a peer, nil when it was not seen.
func (s *sightings) byMDNS(p peer.ID) *discovery.Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.sources["mdns"] {
		if g.Peer == p.String() {
			return &g
		}
	}
	return nil
}

func (s *sightings) defaultReason(g discovery.Group) string {
	if g.Source != "mdns" {
		return "not reached yet"
	}
	return "it is not of this mesh; it can join with a token made here"
}

// all is called with s locked.
func (s *sightings) all() []discovery.Group {
	var out []discovery.Group
	for _, groups := range s.sources {
		out = append(out, groups...)
	}
	return out
}

func firstOf(addrs []string) string {
	if len(addrs) == 0 {
		return ""
	}
	return addrs[0]
}

func (s *sightings) because(key, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reasons) > maxReasons {
		clear(s.reasons) // a noisy link must not fill memory
	}
	s.reasons[key] = reason
}

// runDiscovery takes what the discoverers find until ctx ends.
func (m *Mesh) runDiscovery(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	for source, d := range m.discoverers() {
		found := make(chan []discovery.Group)
		work.Go(func() {
			switch source {
			case "mdns":
				m.lan.runWhile(ctx, d, found)
			case "dht":
				m.dht.runWhile(ctx, d, found)
			default:
				d.Run(ctx, found)
			}
		})
		work.Go(func() { m.sights.follow(ctx, source, found) })
	}
	work.Go(func() { m.sights.retry(ctx) })
	<-ctx.Done()
}

func (m *Mesh) discoverers() map[string]discovery.Discoverer {
	all := map[string]discovery.Discoverer{}
	if static := m.staticPeers(m.cfg.Peers); len(static.Addrs) > 0 {
		all["static"] = static
	}
	all["mdns"] = &discovery.MDNS{Self: m.announcement, Complete: m.complete, Now: m.cfg.Now, Log: m.log}
	all["dht"] = &discovery.DHT{
		Host: memberHost{Host: m.host, m: m}, Prefix: func() string { return m.view.Load().mesh.dhtPrefix() },
		Member: func(p peer.ID) bool { return m.view.Load().roster.active(p) }, Missing: m.missing,
		Bootstrap: m.staticPeers(m.cfg.DHTBootstrap), Now: m.cfg.Now, Log: m.log,
	}
	return all
}

// missing lists the members that are not connected.
func (m *Mesh) missing() []peer.ID {
	var out []peer.ID
	r := m.view.Load().roster
	for p := range r.members {
		if p != m.self && r.active(p) && m.host.Network().Connectedness(p) != network.Connected {
			out = append(out, p)
		}
	}
	return out
}

// staticPeers reads a setting: host:port or a multiaddr, with or without a peer
// ID. What cannot be read is reported and left out.
func (m *Mesh) staticPeers(texts []string) discovery.Static {
	static := discovery.Static{Peers: map[string]string{}}
	for _, text := range texts {
		addr, id, err := readStatic(text)
		if err != nil {
			m.log.Error("static peer not understood", "peer", text, "err", err)
			continue
		}
		if !slices.Contains(static.Addrs, addr) {
			static.Addrs = append(static.Addrs, addr)
		}
		// Given twice, with its ID and without: who is meant is known.
		if id != "" && static.Peers[addr] == "" {
			static.Peers[addr] = id.String()
		}
	}
	return static
}

func readStatic(text string) (addr string, id peer.ID, err error) {
	if a, err := ma.NewMultiaddr(text); err == nil {
		transport, id := peer.SplitAddr(a)
		addr := plainAddr(transport)
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return "", "", fmt.Errorf("read %s: want a TCP address", text)
		}
		return addr, id, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", "", fmt.Errorf("read %s: want host:port or a multiaddr: %w", text, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
		return "", "", fmt.Errorf("read %s: want a host and a port number, such as box-b:8771", text)
	}
	return text, "", nil
}

// announcement is what mDNS tells of this box now.
func (m *Mesh) announcement() discovery.Self {
	return discovery.Self{
		Peer: m.self.String(), Name: m.Name(), Port: m.port(), Boot: m.boot,
		Hint: m.view.Load().mesh.hint(m.self), Settled: !m.Provisional(),
	}
}

// port is the TCP port that the host listens on.
func (m *Mesh) port() int {
	for _, a := range m.host.Network().ListenAddresses() {
		if text, err := a.ValueForProtocol(ma.P_TCP); err == nil {
			if n, err := net.LookupPort("tcp", text); err == nil {
				return n
			}
		}
	}
	return 0
}

// complete says whether every member is live, so that nobody is missing.
func (m *Mesh) complete() bool {
	others := 0
	r := m.view.Load().roster
	for p := range r.members {
		if p != m.self && r.active(p) {
			others++
		}
	}
	return others > 0 && len(m.links.live()) == others
}

func (s *sightings) follow(ctx context.Context, source string, found <-chan []discovery.Group) {
	for {
		select {
		case <-ctx.Done():
			return
		case groups := <-found:
			s.mu.Lock()
			s.sources[source] = groups
			s.mu.Unlock()
			s.look(ctx, groups)
		}
	}
}

// retry looks again at what is known: a box may have come up meanwhile, or be of
// our mesh by now.
func (s *sightings) retry(ctx context.Context) {
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.look(ctx, s.missing())
		}
	}
}

// missing are the sightings of boxes that are no connected members.
func (s *sightings) missing() []discovery.Group {
	connected := map[string]bool{}
	r := s.m.view.Load().roster
	for _, p := range s.m.host.Network().Peers() {
		if r.active(p) {
			connected[p.String()] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.all(), func(g discovery.Group) bool { return connected[g.Peer] })
}

// look acts on each sighting, several at once: one that does not answer must not
// hold up the others.
func (s *sightings) look(ctx context.Context, groups []discovery.Group) {
	var work sync.WaitGroup
	for _, g := range groups {
		work.Go(func() { s.m.sighted(ctx, g) })
	}
	work.Wait()
}

// sighted acts on one box: a member is dialled at the new addresses, one with the
// same secret is joined, all others are only listed.
func (m *Mesh) sighted(ctx context.Context, g discovery.Group) {
	id, ok := m.identify(ctx, g)
	switch {
	case !ok:
		return
	case id == m.self:
		m.checkClone(ctx, g)
		return
	case m.view.Load().roster.active(id):
		m.host.Peerstore().AddAddrs(id, dialAddrs(g.Addrs), peerstore.TempAddrTTL)
		if m.host.Network().Connectedness(id) != network.Connected {
			m.clearBackoff(id)
			m.links.kick(id)
		}
		return
	}
	sameMesh := m.view.Load().mesh.hint(id) == g.Hint
	switch {
	case m.admitsBySecret() && g.Source == "mdns" && sameMesh && !m.autoJoin.Load():
		m.sights.because(g.Peer, "it holds the mesh secret, and joining by itself is switched off (discovery.auto_join); it can join with a token made here")
	case m.admitsBySecret() && (sameMesh || g.Source == "static"):
		m.joinBySecret(ctx, id, g)
	case sameMesh:
		m.sights.because(g.Peer, "it says that it is of this mesh, and no admin of it has vouched for it here yet")
	}
}

// identify finds out which peer a group is. A static address without an ID is
// asked by a handshake that goes no further.
func (m *Mesh) identify(ctx context.Context, g discovery.Group) (peer.ID, bool) {
	if g.Peer != "" {
		id, _, err := peerKey(g.Peer)
		return id, err == nil
	}
	addr := firstOf(g.Addrs)
	if id, ok := m.knownAt(addr); ok {
		return id, true
	}
	if id, fresh := m.sights.answered(addr, m.now()); fresh {
		return id, id != ""
	}
	id, err := m.whoIs(ctx, addr)
	why := "it is not of this mesh; it can join with a token made here"
	if err != nil {
		why = reason(err)
		m.log.Debug("static peer not reached", "addr", addr, "err", err)
	}
	m.sights.because(addr, why)
	m.sights.mu.Lock()
	m.sights.asked[addr] = answerAt{id: id, at: m.now()}
	m.sights.mu.Unlock()
	return id, err == nil
}

// answered is who answered at an address lately; not fresh means to ask again.
func (s *sightings) answered(addr string, now time.Time) (id peer.ID, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.asked[addr]
	life := askEach
	if last.id != "" {
		life = askedFor
	}
	return last.id, ok && now.Sub(last.at) < life
}

// knownAt spares the handshake when a member is connected at that address.
func (m *Mesh) knownAt(addr string) (peer.ID, bool) {
	for _, c := range m.host.Network().Conns() {
		if plainAddr(c.RemoteMultiaddr()) == addr && m.view.Load().roster.active(c.RemotePeer()) {
			return c.RemotePeer(), true
		}
	}
	return "", false
}
