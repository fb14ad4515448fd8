package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/grandcat/zeroconf"
)

const (
	// pollLinks: zeroconf reads interfaces once, so a change means a new server.
	pollLinks = 10 * time.Second
	// firstWindow: a box that starts is found soon; windows then double.
	firstWindow = 5 * time.Second
	// window: zeroconf stops asking after the first answer and reports each box
	// once, so a new window is what hears of new boxes and new addresses.
	window = 75 * time.Second
	// idlePause is the time between windows once nobody is missing: the traffic
	// grows with the boxes.
	idlePause = 5 * time.Minute
	// maxGroups bounds what a noisy link can make this box remember.
	maxGroups = 256
	// forget drops a box from the list that no window has seen for this long. It
	// is a matter of what is shown; nobody is called dead for it.
	forget = 10 * time.Minute
)

// MDNS announces this box and browses for others.
type MDNS struct {
	// Self tells what to announce now; it is asked at each poll.
	Self func() Self
	// Complete says whether all known members are connected, so that looking for
	// others can be rare. nil: never.
	Complete func() bool
	Now      func() time.Time
	Log      *slog.Logger
}

var _ Discoverer = (*MDNS)(nil)

// Run announces and browses until ctx ends. Without any usable interface it waits
// for one.
func (d *MDNS) Run(ctx context.Context, out chan<- []Group) {
	b := &browser{d: d, groups: map[string]Group{}}
	if !b.send(ctx, out) { // the full set first: nobody yet
		return
	}
	var both sync.WaitGroup
	both.Go(func() { d.announce(ctx) })
	both.Go(func() { b.run(ctx, out) })
	both.Wait()
}

// announce keeps one server up: one for all interfaces, because several under one
// name mix their addresses up.
func (d *MDNS) announce(ctx context.Context) {
	var (
		server *zeroconf.Server
		on     links
		as     Self
	)
	defer func() {
		if server != nil {
			server.Shutdown()
		}
	}()
	tick := time.NewTicker(pollLinks)
	defer tick.Stop()
	for {
		now, err := chooseLinks()
		self := d.Self()
		if err != nil {
			d.Log.Warn("network interfaces not read", "err", err)
		} else if server == nil || !now.same(on) || self != as {
			if server != nil {
				server.Shutdown()
			}
			server, on, as = d.register(now, self), now, self
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// register starts a server, or returns nil when there is nothing to announce on
// now; the next poll tries again.
func (d *MDNS) register(l links, self Self) *zeroconf.Server {
	if len(l.ifaces) == 0 || self.Port == 0 {
		d.Log.Debug("no interface to announce on")
		return nil
	}
	server, err := zeroconf.RegisterProxy(
		instance(self.Peer), service, domain, self.Port, hostName(self.Peer), l.texts(), self.txt(), l.ifaces)
	if err != nil {
		d.Log.Warn("mDNS announcement not made; other boxes can still be joined by address", "err", err)
		return nil
	}
	d.Log.Debug("announcing by mDNS", "interfaces", names(l), "addrs", l.texts())
	return server
}

// instance and hostName hold the peer ID: zeroconf resolves no name conflicts. A
// DNS label has 63 bytes at most.
func instance(peer string) string { return "llmgw-" + tail(peer, 40) }

func hostName(peer string) string { return "llmgw-" + tail(peer, 40) + ".local." }

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func names(l links) []string {
	var out []string
	for _, iface := range l.ifaces {
		out = append(out, iface.Name)
	}
	return out
}

// browser collects what the windows see.
type browser struct {
	d      *MDNS
	groups map[string]Group // by peer
}

func (b *browser) run(ctx context.Context, out chan<- []Group) {
	length := firstWindow
	for ctx.Err() == nil {
		if err := b.look(ctx, length, out); err != nil {
			b.d.Log.Debug("mDNS window not opened", "err", err)
			pause(ctx, length)
		}
		length = min(2*length, window)
		if length == window && b.d.Complete != nil && b.d.Complete() {
			b.rest(ctx)
		}
		b.prune()
		if !b.send(ctx, out) {
			return
		}
	}
}

// rest waits until the next window is due, or an interface came or went.
func (b *browser) rest(ctx context.Context) {
	on, err := chooseLinks()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, idlePause)
	defer cancel()
	untilChanged(ctx, chooseLinks, on)
}

// untilChanged returns when the links are other ones than on, or ctx ended.
func untilChanged(ctx context.Context, choose func() (links, error), on links) {
	tick := time.NewTicker(pollLinks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now, err := choose(); err == nil && !now.same(on) {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// look opens one window: a resolver, a context and a channel of its own. Ending the
// context makes zeroconf close its sockets and the channel.
func (b *browser) look(ctx context.Context, length time.Duration, out chan<- []Group) error {
	l, err := chooseLinks()
	if err != nil {
		return fmt.Errorf("read interfaces: %w", err)
	}
	if len(l.ifaces) == 0 {
		return fmt.Errorf("no interface with multicast")
	}
	resolver, err := newResolver(l)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	entries := make(chan *zeroconf.ServiceEntry)
	if err := resolver.Browse(ctx, service, domain, entries); err != nil {
		cancel()
		drain(entries)
		return fmt.Errorf("browse: %w", err)
	}
	// A window hears only the interfaces that it began with.
	go func() {
		untilChanged(ctx, chooseLinks, l)
		cancel()
	}()
	// zeroconf sends without looking at the context, so this reads until it closes
	// the channel, and closes it never itself.
	for entry := range entries {
		if b.take(entry, l) {
			b.send(ctx, out)
		}
	}
	return nil
}

func drain(entries <-chan *zeroconf.ServiceEntry) {
	for range entries {
	}
}

// newResolver takes the IP families that work: NewResolver fails when either does.
func newResolver(l links) (*zeroconf.Resolver, error) {
	var families []zeroconf.IPType
	if l.has(false) && l.has(true) {
		families = append(families, zeroconf.IPv4AndIPv6)
	}
	if l.has(false) {
		families = append(families, zeroconf.IPv4)
	}
	if l.has(true) {
		families = append(families, zeroconf.IPv6)
	}
	var err error
	for _, family := range families {
		var r *zeroconf.Resolver
		if r, err = zeroconf.NewResolver(zeroconf.SelectIPTraffic(family), zeroconf.SelectIfaces(l.ifaces)); err == nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("open multicast sockets: %w", err)
}

// take keeps a sighting; it tells whether it is worth passing on.
func (b *browser) take(entry *zeroconf.ServiceEntry, l links) bool {
	records := make([]string, len(entry.Text))
	for i, rec := range entry.Text {
		records[i] = plainTXT(rec)
	}
	g, port, err := parseTXT(records)
	if err != nil {
		b.d.Log.Debug("mDNS announcement not understood", "instance", entry.Instance, "err", err)
		return false
	}
	var ips []netip.Addr
	for _, raw := range slices.Concat(entry.AddrIPv4, entry.AddrIPv6) {
		if ip, ok := netip.AddrFromSlice(raw); ok {
			ips = append(ips, ip)
		}
	}
	g.Addrs = rankAddrs(ips, port, l.prefixes)
	g.Seen = b.d.Now()
	if _, known := b.groups[g.Peer]; len(g.Addrs) == 0 || !known && len(b.groups) >= maxGroups {
		return false
	}
	b.groups[g.Peer] = g
	return true
}

func (b *browser) prune() {
	now := b.d.Now()
	maps.DeleteFunc(b.groups, func(_ string, g Group) bool { return now.Sub(g.Seen) > forget })
}

// send passes on the whole set; it returns false when ctx ended instead.
func (b *browser) send(ctx context.Context, out chan<- []Group) bool {
	groups := make([]Group, 0, len(b.groups))
	for _, peer := range slices.Sorted(maps.Keys(b.groups)) {
		groups = append(groups, b.groups[peer])
	}
	select {
	case out <- groups:
		return true
	case <-ctx.Done():
		return false
	}
}
