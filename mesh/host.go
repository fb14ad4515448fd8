package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	// connLow and connHigh bound connections; members are protected from trimming.
	connLow, connHigh = 160, 192
	connGrace         = time.Minute
)

// openHost builds the one libp2p host of this process: TCP, Noise and yamux on a
// fixed port, with membership as the gate. Ping, relay and reachability checks
// are off: a guest finds identify and join, nothing else.
func (m *Mesh) openHost() error {
	listen, err := listenAddrs(m.cfg.Listen)
	if err != nil {
		return err
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(m.cfg.Key)
	if err != nil {
		return fmt.Errorf("read identity key: %w", err)
	}
	limits, err := newResourceManager(m.cfg.Metrics)
	if err != nil {
		return err
	}
	m.conns, err = connmgr.NewConnManager(connLow, connHigh, connmgr.WithGracePeriod(connGrace))
	if err != nil {
		return fmt.Errorf("make connection manager: %w", err)
	}
	metrics := libp2p.DisableMetrics()
	if m.cfg.Metrics != nil {
		metrics = libp2p.PrometheusRegisterer(m.cfg.Metrics)
	}
	m.host, err = libp2p.New(
		libp2p.Identity(key),
		libp2p.ListenAddrs(listen...),
		// Without this two daemons share one port and each gets half of the calls.
		libp2p.NoTransports, libp2p.Transport(tcp.NewTCPTransport, tcp.DisableReuseport()),
		libp2p.Security(noise.ID, noise.New), libp2p.Muxer(yamux.ID, yamux.DefaultTransport),
		libp2p.ConnectionGater(m.gater), libp2p.ConnectionManager(m.conns), libp2p.ResourceManager(limits),
		libp2p.AddrsFactory(announced),
		libp2p.DisableRelay(), libp2p.ForceReachabilityPrivate(), libp2p.Ping(false),
		libp2p.UDPBlackHoleSuccessCounter(nil), libp2p.IPv6BlackHoleSuccessCounter(nil),
		libp2p.UserAgent("llmgw/"+m.cfg.Version), metrics,
	)
	if err != nil {
		return fmt.Errorf("listen on mesh port %s: %w", m.cfg.Listen, err)
	}
	m.host.Network().Notify(m.guests.notifiee())
	v := m.view.Load()
	m.enforce(v.roster, v)
	return nil
}

// listenAddrs turns the setting into multiaddrs and makes sure that the port is
// free: libp2p itself would go on with the one family that worked, and its
// error hides the cause.
func listenAddrs(listen string) ([]ma.Multiaddr, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("read mesh address %q: %w", listen, err)
	}
	hosts := []string{host}
	if host == "" {
		hosts = []string{"0.0.0.0", "::"}
	}
	var addrs []ma.Multiaddr
	for _, h := range hosts {
		ip, err := netip.ParseAddr(h)
		if err != nil {
			return nil, fmt.Errorf("read mesh address %q: %w", listen, err)
		}
		family := "ip4"
		if ip.Is6() {
			family = "ip6"
		}
		if err := probePort(ip, port); err != nil {
			if len(hosts) > 1 && family == "ip6" && noIPv6(err) {
				continue
			}
			return nil, fmt.Errorf("listen on mesh port %s: %w", listen, err)
		}
		addr, err := ma.NewMultiaddr("/" + family + "/" + ip.String() + "/tcp/" + port)
		if err != nil {
			return nil, fmt.Errorf("read mesh address %q: %w", listen, err)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// probePort listens and lets go again. Its error is a *net.OpError.
func probePort(ip netip.Addr, port string) error {
	network := "tcp4"
	if ip.Is6() {
		network = "tcp6"
	}
	l, err := net.Listen(network, net.JoinHostPort(ip.String(), port))
	if err != nil {
		return err
	}
	return l.Close()
}

func noIPv6(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// addressSettle is how long after a change of membership rows the own addresses in
// them are looked at: a copy of this box writes others, and two that set them right
// must not do so in turn without end.
const addressSettle = 5 * time.Second

// watchAddresses keeps this box's row, presence and announcements in line with
// its network interfaces.
func (m *Mesh) watchAddresses(ctx context.Context) {
	sub, err := m.host.EventBus().Subscribe(new(event.EvtLocalAddressesUpdated))
	if err != nil {
		m.log.Error("address changes cannot be followed", "err", err)
		return
	}
	defer sub.Close()
	rows := m.store.Watch(nsMembers)
	defer rows.Close()
	var settled <-chan time.Time
	for {
		if settled == nil && m.addressesChanged() && !m.clones.stopped() {
			if err := m.publishSelf(); err != nil {
				m.log.Error("own addresses not written", "err", err)
			}
			m.presence.touch()
		}
		select {
		case <-ctx.Done():
			return
		case <-settled:
			settled = nil
		case <-rows.C:
			if settled == nil {
				settled = time.After(addressSettle)
			}
		case _, open := <-sub.Out():
			if !open {
				return
			}
			settled = nil
		}
	}
}

// addresses are the multiaddrs that other boxes should dial.
func (m *Mesh) addresses() []string {
	var out []string
	for _, a := range m.host.Addrs() {
		out = append(out, a.String())
	}
	return capAddresses(out)
}

// bridgePrefixes are interfaces of containers and virtual machines: their
// addresses are the same on every box and lead nowhere.
var bridgePrefixes = []string{
	"veth", "docker", "br-", "virbr", "vnet", "podman", "cni", "flannel", "cali", "cilium", "kube-", "lxc", "lxdbr", "incusbr", "vmnet", "vboxnet",
}

// announced keeps the addresses that mean something to another box: no container
// bridges and no link-local ones; loopback only when there is nothing else.
func announced(addrs []ma.Multiaddr) []ma.Multiaddr {
	hidden := bridgeAddrs()
	var kept, loopback []ma.Multiaddr
	for _, a := range addrs {
		ip, ok := multiaddrIP(a)
		switch {
		case !ok:
			kept = append(kept, a)
		case ip.IsLoopback():
			loopback = append(loopback, a)
		case ip.IsLinkLocalUnicast(), hidden[ip]:
		default:
			kept = append(kept, a)
		}
	}
	if len(kept) == 0 {
		return loopback
	}
	return kept
}

func bridgeAddrs() map[netip.Addr]bool {
	hidden := map[netip.Addr]bool{}
	ifaces, err := net.Interfaces()
	if err != nil {
		return hidden
	}
	for _, iface := range ifaces {
		if !isBridge(iface.Name) {
			continue
		}
		addrs, err := iface.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				hidden[prefix.Addr().Unmap()] = true
			}
		}
	}
	return hidden
}

func isBridge(name string) bool {
	for _, prefix := range bridgePrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
