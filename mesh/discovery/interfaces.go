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
	"veth", "docker", "br-", "virbr", "vnet", "podman", "cni", "flannel", "cali", "cilium", "kube-", "lxc", "lxdbr", "incusbr",
	"vmnet", "vboxnet", "dummy", "wg", "tun", "zt", "tailscale",
}

// links is what this box is attached to and may speak multicast on.
type links struct {
	ifaces   []net.Interface
	addrs    []netip.Addr // of these interfaces, to be announced
	prefixes []netip.Prefix
}

// attachment is one interface with the addresses on it.
type attachment struct {
	net.Interface
	prefixes []netip.Prefix
}

// chooseLinks reads the interfaces and chooses.
func chooseLinks() (links, error) {
	all, err := net.Interfaces()
	if err != nil {
		return links{}, err
	}
	var found []attachment
	for _, iface := range all {
		if usable(iface) {
			found = append(found, attachment{iface, prefixesOf(iface)})
		}
	}
	return choose(found), nil
}

// choose takes the interfaces that are up, speak multicast, are no loopback, no
// point-to-point link and of none of the skipped names, and that have an address which
// another box can use: one of its own link alone cannot be written down.
func choose(all []attachment) links {
	var l links
	for _, iface := range all {
		if !usable(iface.Interface) {
			continue
		}
		taken := false
		for _, p := range iface.prefixes {
			addr := p.Addr().Unmap()
			if !reachable(addr) || addr.IsLoopback() {
				continue
			}
			taken = true
			if slices.Contains(l.addrs, addr) {
				continue // two interfaces into one subnet may share it
			}
			l.addrs = append(l.addrs, addr)
			l.prefixes = append(l.prefixes, netip.PrefixFrom(addr, p.Bits()).Masked())
		}
		if taken {
			l.ifaces = append(l.ifaces, iface.Interface)
		}
	}
	return l
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
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// same says whether nothing changed that an announcement depends on.
func (l links) same(o links) bool {
	return slices.Equal(l.addrs, o.addrs) && slices.Equal(l.prefixes, o.prefixes) && slices.EqualFunc(l.ifaces, o.ifaces, func(a, b net.Interface) bool {
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
