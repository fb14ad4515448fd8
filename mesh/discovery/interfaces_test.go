package discovery

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// attached is an interface with addresses, as the system would tell.
func attached(index int, name string, flags net.Flags, prefixes ...string) attachment {
	a := attachment{Interface: net.Interface{Index: index, Name: name, Flags: flags}}
	for _, p := range prefixes {
		a.prefixes = append(a.prefixes, netip.MustParsePrefix(p))
	}
	return a
}

func TestInterfacesAreChosen(t *testing.T) {
	const (
		lan    = net.FlagUp | net.FlagMulticast | net.FlagBroadcast
		tunnel = net.FlagUp | net.FlagPointToPoint
	)
	lo := attached(1, "lo", net.FlagUp|net.FlagLoopback, "127.0.0.1/8", "::1/128")
	cases := map[string]struct {
		have          []attachment
		ifaces, addrs string
		v4, v6        bool
	}{
		"nothing but loopback": {have: []attachment{lo}},
		"one link": {
			have:   []attachment{lo, attached(2, "eth0", lan, "192.0.2.5/24", "fe80::1/64")},
			ifaces: "eth0", addrs: "192.0.2.5", v4: true,
		},
		"both families": {
			have:   []attachment{attached(2, "eth0", lan, "192.0.2.5/24", "2001:db8::5/64", "fe80::1/64")},
			ifaces: "eth0", addrs: "192.0.2.5 2001:db8::5", v4: true, v6: true,
		},
		"two subnets at once": {
			have:   []attachment{lo, attached(2, "eth0", lan, "192.0.2.5/24"), attached(3, "eth1", lan, "198.51.100.5/24")},
			ifaces: "eth0 eth1", addrs: "192.0.2.5 198.51.100.5", v4: true,
		},
		"IPv6 only": {
			have:   []attachment{lo, attached(2, "eth0", lan, "fe80::1/64", "fd00:1::5/64")},
			ifaces: "eth0", addrs: "fd00:1::5", v6: true,
		},
		"addresses of the link alone": {
			have: []attachment{attached(2, "eth0", lan, "169.254.7.7/16", "fe80::1/64")},
		},
		"no address yet": {have: []attachment{attached(2, "eth0", lan)}},
		"WireGuard beside a LAN": {
			have:   []attachment{attached(2, "eth0", lan, "192.0.2.5/24"), attached(3, "wg0", tunnel, "10.9.0.1/24"), attached(4, "home", tunnel, "10.8.0.1/32")},
			ifaces: "eth0", addrs: "192.0.2.5", v4: true,
		},
		"a tunnel that claims multicast": {
			have: []attachment{attached(3, "tailscale0", net.FlagUp|net.FlagMulticast, "100.64.0.5/32"), attached(4, "ppp0", tunnel|net.FlagMulticast, "10.0.0.2/32")},
		},
		"containers": {
			have: []attachment{
				attached(2, "br0", lan, "192.0.2.5/24"), attached(3, "docker0", lan, "172.17.0.1/16"), attached(4, "lxdbr0", lan, "10.5.0.1/24"),
				attached(5, "vnet3", lan, "10.6.0.1/24"), attached(6, "cali1234", lan, "10.7.0.1/32"),
			},
			ifaces: "br0", addrs: "192.0.2.5", v4: true,
		},
		"two cards in one subnet": {
			have:   []attachment{attached(2, "eth0", lan, "192.0.2.5/24"), attached(3, "wlan0", lan, "192.0.2.6/24", "192.0.2.5/24")},
			ifaces: "eth0 wlan0", addrs: "192.0.2.5 192.0.2.6", v4: true,
		},
		"an address written as IPv6": {
			have:   []attachment{attached(2, "eth0", lan, "::ffff:192.0.2.5/24")},
			ifaces: "eth0", addrs: "192.0.2.5", v4: true,
		},
	}
	for name, c := range cases {
		l := choose(c.have)
		if got := strings.Join(names(l), " "); got != c.ifaces {
			t.Errorf("%s: speaks on %q, want %q", name, got, c.ifaces)
		}
		if got := strings.Join(l.texts(), " "); got != c.addrs {
			t.Errorf("%s: announces %q, want %q", name, got, c.addrs)
		}
		if l.has(false) != c.v4 || l.has(true) != c.v6 {
			t.Errorf("%s: IPv4 %v, IPv6 %v", name, l.has(false), l.has(true))
		}
	}
}

// Addresses of both subnets come before those that need a router.
func TestBothSubnetsAreNear(t *testing.T) {
	const lan = net.FlagUp | net.FlagMulticast
	l := choose([]attachment{attached(2, "eth0", lan, "192.0.2.5/24"), attached(3, "eth1", lan, "198.51.100.5/24")})
	var ips []netip.Addr
	for _, text := range []string{"203.0.113.1", "198.51.100.9", "192.0.2.9"} {
		ips = append(ips, netip.MustParseAddr(text))
	}
	want := []string{"198.51.100.9:8771", "192.0.2.9:8771", "203.0.113.1:8771"}
	if got := rankAddrs(ips, 8771, l.prefixes); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWhatComesAndGoesIsAChange(t *testing.T) {
	const lan = net.FlagUp | net.FlagMulticast
	eth0 := attached(2, "eth0", lan, "192.0.2.5/24")
	on := choose([]attachment{eth0})
	cases := map[string]struct {
		now  []attachment
		same bool
	}{
		"nothing":             {[]attachment{eth0}, true},
		"an interface came":   {[]attachment{eth0, attached(3, "eth1", lan, "198.51.100.5/24")}, false},
		"a tunnel came":       {[]attachment{eth0, attached(3, "wg0", net.FlagUp|net.FlagPointToPoint, "10.9.0.1/24")}, true},
		"it went":             {nil, false},
		"it went down":        {[]attachment{attached(2, "eth0", net.FlagMulticast, "192.0.2.5/24")}, false},
		"another address":     {[]attachment{attached(2, "eth0", lan, "192.0.2.6/24")}, false},
		"another prefix":      {[]attachment{attached(2, "eth0", lan, "192.0.2.5/16")}, false},
		"one more address":    {[]attachment{attached(2, "eth0", lan, "192.0.2.5/24", "fd00::1/64")}, false},
		"a card put in anew":  {[]attachment{attached(7, "eth0", lan, "192.0.2.5/24")}, false},
		"a link-local one":    {[]attachment{attached(2, "eth0", lan, "192.0.2.5/24", "fe80::1/64")}, true},
		"a container started": {[]attachment{eth0, attached(9, "veth1", lan, "172.18.0.1/16")}, true},
	}
	for name, c := range cases {
		if got := choose(c.now).same(on); got != c.same {
			t.Errorf("%s: the same is %v, want %v", name, got, c.same)
		}
	}
}
