package discovery

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// skipped are names of interfaces that lead to no other box: bridges and ends of
// containers and virtual machines, and tunnels, which carry no multicast.
var skipped = []string{
	"veth", "docker", "br-", "virbr", "podman", "cni", "flannel", "wg", "tun", "zt", "tailscale",
}

// links is what this box is attached to and may speak multicast on.
type links struct {
	ifaces   []net.Interface
	addrs    []netip.Addr // of these interfaces, to be announced
	prefixes []netip.Prefix
}

// chooseLinks reads the interfaces: up, multicast, no loopback, no point-to-point,
// none of the skipped names, and with an address that another box can use.
func chooseLinks() (links, error) {
	all, err := net.Interfaces()
	if err != nil {
		return links{}, err
	}
	var l links
	for _, iface := range all {
		if !usable(iface) {
			continue
		}
		prefixes := prefixesOf(iface)
		if len(prefixes) == 0 {
			continue
		}
		l.ifaces = append(l.ifaces, iface)
		for _, p := range prefixes {
			l.addrs = append(l.addrs, p.Addr())
			l.prefixes = append(l.prefixes, p.Masked())
		}
	}
	return l, nil
}

func usable(iface net.Interface) bool {
	const want = net.FlagUp | net.FlagMulticast
	if iface.Flags&want != want || iface.Flags&(net.FlagLoopback|net.FlagPointToPoint) != 0 {
		return false
	}
	return !slices.ContainsFunc(skipped, func(prefix string) bool { return strings.HasPrefix(iface.Name, prefix) })
}

func prefixesOf(iface net.Interface) []netip.Prefix {
	addrs, err := iface.Addrs()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		out = append(out, netip.PrefixFrom(p.Addr().Unmap(), p.Bits()))
	}
	return out
}

// same says whether nothing changed that an announcement depends on.
func (l links) same(o links) bool {
	return slices.Equal(l.addrs, o.addrs) && slices.EqualFunc(l.ifaces, o.ifaces, func(a, b net.Interface) bool {
		return a.Index == b.Index && a.Name == b.Name
	})
}

func (l links) texts() []string {
	out := make([]string, len(l.addrs))
	for i, a := range l.addrs {
		out[i] = a.String()
	}
	return out
}

func (l links) has(v6 bool) bool {
	return slices.ContainsFunc(l.addrs, func(a netip.Addr) bool { return a.Is6() == v6 })
}
