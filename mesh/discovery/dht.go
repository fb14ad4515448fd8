package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// seekTick is how often it is looked at who is missing; that costs nothing while
	// nobody is.
	seekTick = 2 * time.Second
	// seekEach spaces the questions for one box that stays missing, and seekWait bounds
	// one question.
	seekEach, seekWait = 15 * time.Second, 10 * time.Second
	// tableProtocol is what the table adds to the prefix.
	tableProtocol = "/kad/1.0.0"
)

// DHT finds the present addresses of members over a Kademlia table in which members
// alone take part: a box that reaches one of them reaches those that the others
// are connected to. It stores no values and no providers.
type DHT struct {
	// Host MUST serve members alone: whoever it serves may ask for addresses.
	Host host.Host
	// Prefix begins the name of the protocol. It is asked at each look; with another one
	// the table begins anew.
	Prefix func() string
	Member func(peer.ID) bool
	// Missing lists the members that are not connected.
	Missing   func() []peer.ID
	Bootstrap Static // boxes to begin with, given by hand
	Now       func() time.Time
	Log       *slog.Logger
}

var _ Discoverer = (*DHT)(nil)

// Run sends the boxes to begin with, then adds what is found of missing members.
func (d *DHT) Run(ctx context.Context, out chan<- []Group) {
	s := &seeker{d: d, found: map[peer.ID]Group{}, sought: map[peer.ID]time.Time{}}
	if !s.send(ctx, out) {
		return
	}
	for ctx.Err() == nil {
		if err := s.follow(ctx, d.Prefix(), out); err != nil {
			d.Log.Warn("DHT not opened; boxes are still found by the other ways", "err", err)
			pause(ctx, seekEach)
		}
	}
}

// seeker is what one run knows.
type seeker struct {
	d *DHT

	mu     sync.Mutex
	found  map[peer.ID]Group
	sought map[peer.ID]time.Time
}

// open makes a table in which members alone are kept and asked.
func (d *DHT) open(prefix string) (*dht.IpfsDHT, error) {
	table, err := dht.New(d.Host,
		// The default begins as a client and waits for public reachability.
		dht.Mode(dht.ModeServer),
		dht.ProtocolPrefix(protocol.ID(prefix)),
		dht.DisableValues(), dht.DisableProviders(), dht.DisableAutoRefresh(),
		dht.RoutingTableFilter(func(_ any, p peer.ID) bool { return d.Member(p) }),
		dht.QueryFilter(func(_ any, info peer.AddrInfo) bool { return d.Member(info.ID) }),
	)
	if err != nil {
		return nil, fmt.Errorf("open DHT: %w", err)
	}
	return table, nil
}

// close ends a table, which itself leaves its handler behind.
func (d *DHT) close(table *dht.IpfsDHT, prefix string) error {
	d.Host.RemoveStreamHandler(protocol.ID(prefix + tableProtocol))
	return table.Close()
}

// follow keeps one table up while the prefix stays.
func (s *seeker) follow(ctx context.Context, prefix string, out chan<- []Group) (err error) {
	table, err := s.d.open(prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.d.close(table, prefix)) }()
	tick := time.NewTicker(seekTick)
	defer tick.Stop()
	for s.d.Prefix() == prefix {
		if s.seek(ctx, table) && !s.send(ctx, out) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// seek asks for those who are missing, all at once, and says whether the set changed.
func (s *seeker) seek(ctx context.Context, table *dht.IpfsDHT) (changed bool) {
	missing := s.d.Missing()
	s.mu.Lock()
	for p := range s.found {
		if !slices.Contains(missing, p) {
			delete(s.found, p)
			changed = true
		}
	}
	now := s.d.Now()
	missing = slices.DeleteFunc(missing, func(p peer.ID) bool {
		last, asked := s.sought[p]
		return asked && now.Sub(last) < seekEach
	})
	s.mu.Unlock()
	if len(missing) == 0 || table.RoutingTable().Size() == 0 {
		return changed
	}
	var work sync.WaitGroup
	results := make([]bool, len(missing))
	for i, p := range missing {
		work.Go(func() { results[i] = s.ask(ctx, table, p) })
	}
	work.Wait()
	return changed || slices.Contains(results, true)
}

// ask looks for one member and says whether that led to news.
func (s *seeker) ask(ctx context.Context, table *dht.IpfsDHT, p peer.ID) bool {
	ctx, cancel := context.WithTimeout(ctx, seekWait)
	defer cancel()
	info, err := table.FindPeer(ctx, p)
	now := s.d.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sought[p] = now
	maps.DeleteFunc(s.sought, func(_ peer.ID, at time.Time) bool { return now.Sub(at) > forget })
	addrs := hostPorts(info.Addrs)
	if err != nil || len(addrs) == 0 {
		s.d.Log.Debug("DHT does not find a member", "peer", p.String(), "err", err)
		return false
	}
	had := s.found[p]
	s.found[p] = Group{Source: "dht", Peer: p.String(), Addrs: addrs, Seen: now}
	return !slices.Equal(had.Addrs, addrs)
}

// hostPorts keeps of the addresses those that can be dialled, as host:port in a fixed
// order, loopback last.
func hostPorts(addrs []ma.Multiaddr) []string {
	var far, own []netip.AddrPort
	for _, a := range addrs {
		if tcp, err := manet.ToNetAddr(a); err == nil {
			t, ok := tcp.(*net.TCPAddr)
			if !ok || t.Port == 0 {
				continue
			}
			at := netip.AddrPortFrom(t.AddrPort().Addr().Unmap(), uint16(t.Port))
			switch {
			case !reachable(at.Addr()):
			case at.Addr().IsLoopback():
				own = append(own, at)
			default:
				far = append(far, at)
			}
		}
	}
	slices.SortFunc(far, netip.AddrPort.Compare)
	slices.SortFunc(own, netip.AddrPort.Compare)
	var out []string
	for _, at := range slices.Compact(append(far, own...)) {
		out = append(out, at.String())
	}
	return out[:min(len(out), maxAddrs)]
}

// send passes on the whole set; it returns false when ctx ended instead.
func (s *seeker) send(ctx context.Context, out chan<- []Group) bool {
	groups := s.d.Bootstrap.groups("dht")
	s.mu.Lock()
	for _, p := range slices.Sorted(maps.Keys(s.found)) {
		groups = append(groups, s.found[p])
	}
	s.mu.Unlock()
	select {
	case out <- groups:
		return true
	case <-ctx.Done():
		return false
	}
}
