// Package discovery owns ways to find addresses of other boxes: multicast DNS on
// the links that this box is attached to, addresses that a person gave, and on
// request a table that the members of the mesh keep among themselves.
//
// What it finds is a hint to dial. It is never membership, which the dialled box
// proves, and never liveness, which the connection shows: a silent network says
// nothing about who is up.
package discovery

import (
	"context"
	"net"
	"slices"
	"time"
)

// Group is what one source knows of one box.
type Group struct {
	Source string // "mdns", "static" or "dht"
	Peer   string // peer ID as claimed; empty when the source does not know it
	Name   string // label as claimed; empty when not known
	// Addrs are host:port, to be tried in this order.
	Addrs []string
	// Hint is 8 bytes of HMAC(mesh ID, peer ID): it tells those who know the
	// mesh ID whether the box is of their mesh. Zero when not told.
	Hint [8]byte
	Boot uint64 // the box's boot number as claimed; 0 when not told
	// Settled: the box claims to belong to a mesh with content or other members.
	Settled bool
	Seen    time.Time // when it was last heard of
}

// Discoverer finds boxes.
//
// Run MUST send the full set first, MUST return when ctx ends, and leaves out
// open. Each send is the whole set of this source: it may repeat a group that
// did not change, and a missing entry is a removal.
type Discoverer interface {
	Run(ctx context.Context, out chan<- []Group)
}

// Static is a fixed list of addresses. Names are resolved by whoever dials. What is no
// host and port is left out, and what is there twice is told once.
type Static struct {
	Addrs []string // host:port
	// Peers holds, for the addresses that came with one, the peer ID.
	Peers map[string]string
}

var _ Discoverer = Static{}

// Run sends the list once.
func (s Static) Run(ctx context.Context, out chan<- []Group) {
	select {
	case out <- s.groups("static"):
		<-ctx.Done()
	case <-ctx.Done():
	}
}

func (s Static) groups(source string) []Group {
	groups := make([]Group, 0, len(s.Addrs))
	for i, addr := range s.Addrs {
		if _, _, err := net.SplitHostPort(addr); err == nil && !slices.Contains(s.Addrs[:i], addr) {
			groups = append(groups, Group{Source: source, Peer: s.Peers[addr], Addrs: []string{addr}})
		}
	}
	return groups
}
