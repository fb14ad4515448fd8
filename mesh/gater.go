package mesh

import (
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// guestStay is long enough to join, with a pull by the issuer in between.
	guestStay = 15 * time.Second
	// guestRate and guestBurst are connections of strangers per address: a box
	// that was removed redials each second and may hear why.
	guestRate, guestBurst = 2, 40
	// maxGuests bounds strangers connected at once.
	maxGuests = 64
)

// gater decides which connections come to be. Out: members, and those whom this
// box means to join. In: members freely, guests and banned ones at a low rate;
// what they can do there is for the stream handlers to decide.
type gater struct {
	m     *Mesh
	rate  *rate.Limiter
	mu    sync.Mutex
	calls map[peer.ID]int // dials to non-members in progress
}

var _ connmgr.ConnectionGater = (*gater)(nil)

func newGater(m *Mesh) *gater {
	return &gater{m: m, rate: newGuestRate(), calls: map[peer.ID]int{}}
}

// allow lets this box dial one who is no member, until the returned function is
// called.
func (g *gater) allow(p peer.ID) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[p]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.calls[p]--; g.calls[p] <= 0 {
			delete(g.calls, p)
		}
	}
}

func (g *gater) allowed(p peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[p] > 0
}

func (g *gater) standing(p peer.ID) standing { return g.m.view.Load().roster.standing(p) }

// InterceptPeerDial is asked before a peer is dialled.
func (g *gater) InterceptPeerDial(p peer.ID) bool {
	return g.standing(p) == active || g.allowed(p)
}

// InterceptAddrDial is asked for each address of a peer.
func (g *gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool { return true }

// InterceptAccept is asked before the peer is known.
func (g *gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured is asked once the peer has proved its ID.
func (g *gater) InterceptSecured(dir network.Direction, p peer.ID, addrs network.ConnMultiaddrs) bool {
	if dir == network.DirOutbound || g.standing(p) == active {
		return true
	}
	ip, _ := multiaddrIP(addrs.RemoteMultiaddr())
	if g.m.guests.count() >= maxGuests || !g.rate.Allow(ip) {
		g.m.counts.refused("guest_rate")
		g.m.log.Debug("guest refused", "peer", p.String(), "addr", addrs.RemoteMultiaddr().String())
		return false
	}
	return true
}

// InterceptUpgraded is asked last.
func (g *gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

func multiaddrIP(a ma.Multiaddr) (netip.Addr, bool) {
	raw, err := manet.ToIP(a)
	if err != nil {
		return netip.Addr{}, false
	}
	ip, ok := netip.AddrFromSlice(raw)
	return ip.Unmap(), ok
}

// guestList holds the open connections of non-members.
type guestList struct {
	m     *Mesh
	stay  time.Duration
	mu    sync.Mutex
	conns map[network.Conn]*time.Timer
	held  map[network.Conn]int // joins being answered
}

func newGuestList(m *Mesh) *guestList {
	return &guestList{m: m, stay: guestStay, conns: map[network.Conn]*time.Timer{}, held: map[network.Conn]int{}}
}

// hold keeps a connection open across its peer's promotion, so that the answer to
// a join gets out; the returned function ends that. joins is how many hold it now.
func (g *guestList) hold(c network.Conn) (release func(), joins int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[c]++
	return func() {
		g.mu.Lock()
		if g.held[c]--; g.held[c] <= 0 {
			delete(g.held, c)
		}
		g.mu.Unlock()
		g.promote(g.m.view.Load().roster)
	}, g.held[c]
}

// holds says whether a join with p is under way: a box that was pardoned is still
// removed until it has its answer.
func (g *guestList) holds(p peer.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.held {
		if c.RemotePeer() == p {
			return true
		}
	}
	return false
}

func (g *guestList) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

func (g *guestList) notifiee() network.Notifiee {
	return &network.NotifyBundle{
		ConnectedF:    func(_ network.Network, c network.Conn) { g.connected(c) },
		DisconnectedF: func(_ network.Network, c network.Conn) { g.disconnected(c) },
	}
}

// connected sorts a new connection. The roster is read with the lock held, so
// that a promotion at the same moment sees the connection here or we see the
// promotion.
func (g *guestList) connected(c network.Conn) {
	p := c.RemotePeer()
	g.mu.Lock()
	r := g.m.view.Load().roster
	member := r.active(p)
	if !member {
		g.conns[c] = time.AfterFunc(g.stay, func() { g.expire(c) })
	}
	g.mu.Unlock()
	if member {
		g.m.conns.Protect(p, "member")
		g.m.links.connected(p)
		return
	}
	g.m.conns.Unprotect(p, "member") // it may have ceased to be one while it was away
	if r.removed(p) {
		g.m.tellVerdict(p)
	}
}

func (g *guestList) disconnected(c network.Conn) {
	g.mu.Lock()
	if t, ok := g.conns[c]; ok {
		t.Stop()
		delete(g.conns, c)
	}
	g.mu.Unlock()
	g.m.links.kick(c.RemotePeer())
}

func (g *guestList) expire(c network.Conn) {
	g.m.log.Debug("guest's time is over; connection closed", "peer", c.RemotePeer().String())
	if err := c.Close(); err != nil {
		g.m.log.Debug("connection did not close cleanly", "peer", c.RemotePeer().String(), "err", err)
	}
}

// promote closes the connections that were made when their peers were guests:
// pubsub and the heartbeat only take up a member on a new one. A connection on
// which a join is being answered is left to the join.
func (g *guestList) promote(r *roster) {
	var stale []network.Conn
	g.mu.Lock()
	for c, t := range g.conns {
		if r.active(c.RemotePeer()) && g.held[c] == 0 {
			t.Stop()
			delete(g.conns, c)
			stale = append(stale, c)
		}
	}
	g.mu.Unlock()
	for _, c := range stale {
		go c.Close() // may wait for the other side
	}
}
