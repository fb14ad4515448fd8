package mesh

import (
	"cmp"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"llmgw/mesh/catalog"
)

// Node is one member, or one that left, as this box sees it.
type Node struct {
	ID    string // peer ID
	Name  string
	Role  Role
	State State
	// LastHeard is how long ago the node was last heard. It means nothing unless
	// Heard: since this daemon started the node gave no sign of life.
	LastHeard time.Duration
	Heard     bool
	Presence  catalog.Presence // the newest known; zero when none is
	Skew      time.Duration    // how far its clock is ahead of ours; zero for self
	Path      string           // address of the connection, empty when there is none
	RoundTrip time.Duration    // to it and back, the least of late; 0: not measured yet
	// LastSync is how long ago the node last told how far it has pulled from this box;
	// it means nothing unless Synced. Blocks counts the deletions that this box
	// remembers only because the node has not heard of them yet.
	LastSync time.Duration
	Synced   bool
	Blocks   int
	// Mismatch says that the node cannot be talked to, and why: the two boxes have no version of
	// the protocol in common. Empty: they have, or nothing is known.
	Mismatch string
}

// Nodes lists the members and those who left, this box first, then by name.
func (m *Mesh) Nodes() []Node {
	v := m.view.Load()
	var nodes []Node
	for p, member := range v.roster.members {
		nodes = append(nodes, m.node(v, p, member))
	}
	if _, ok := v.roster.members[m.self]; !ok {
		// It was removed: to itself it is still there.
		nodes = append(nodes, m.node(v, m.self, &member{id: m.self, role: RoleMember}))
	}
	slices.SortFunc(nodes, func(a, b Node) int {
		if a.State == StateSelf || b.State == StateSelf {
			return cmp.Compare(rank(a), rank(b))
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return nodes
}

func rank(n Node) int {
	if n.State == StateSelf {
		return 0
	}
	return 1
}

func (m *Mesh) node(v *view, p peer.ID, member *member) Node {
	n := Node{ID: p.String(), Name: member.name, Role: member.role, State: StateDead}
	switch {
	case p == m.self:
		n.State, n.Heard = StateSelf, true
		n.Presence, _ = m.presence.current()
		n.Name = n.Presence.Name
		return n
	case member.standing != active:
		n.State = StateLeft
		return n
	}
	if l, ok := m.links.get(p); ok {
		l.describe(&n, m.now())
	}
	m.absence.describe(&n, p, m.now())
	n.Path, _ = m.pathTo(p)
	n.Mismatch, _ = m.mismatch(p)
	return n
}

func (l *link) describe(n *Node, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.State = l.health.current()
	if l.health.ever {
		n.Heard, n.LastHeard = true, now.Sub(l.health.heardAt)
	}
	n.Skew, n.RoundTrip = l.skew, l.trips.least()
	if l.known {
		n.Presence = l.presence
		n.Name = cmp.Or(l.presence.Name, n.Name)
	}
}

// pathTo is the peer's address on the connection in use, host:port, and who made
// the connection; empty without one.
func (m *Mesh) pathTo(p peer.ID) (path string, dir network.Direction) {
	conns := m.host.Network().ConnsToPeer(p)
	if len(conns) == 0 {
		return "", network.DirUnknown
	}
	conn := conns[0]
	for _, c := range conns {
		if c.Stat().Direction == network.DirOutbound {
			conn = c
			break
		}
	}
	dir = conn.Stat().Direction
	if dir == network.DirOutbound {
		return plainAddr(conn.RemoteMultiaddr()), dir
	}
	return listening(conn.RemoteMultiaddr(), m.addrsOf(p)), dir
}

// listening is the announced address of the host that calls from remote: the port
// that it calls from says nothing. When it announces none there, it is the host alone.
func listening(remote ma.Multiaddr, announced []ma.Multiaddr) string {
	ip, ok := multiaddrIP(remote)
	if !ok {
		return plainAddr(remote)
	}
	for _, a := range announced {
		if at, ok := multiaddrIP(a); ok && at == ip {
			return plainAddr(a)
		}
	}
	return ip.String()
}

// addrsOf are the addresses that a member announces, by its presence, its row and the
// last handshake.
func (m *Mesh) addrsOf(p peer.ID) []ma.Multiaddr {
	var out []ma.Multiaddr
	if l, ok := m.links.get(p); ok {
		out = l.addrs()
	}
	if row, ok := m.view.Load().roster.members[p]; ok {
		out = append(out, multiaddrs(row.addrs)...)
	}
	return append(out, m.host.Peerstore().Addrs(p)...)
}
