package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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

func TestUsableInterfaces(t *testing.T) {
	const up = net.FlagUp | net.FlagMulticast
	cases := map[string]struct {
		iface net.Interface
		want  bool
	}{
		"ethernet":       {net.Interface{Name: "eth0", Flags: up}, true},
		"bridge of ours": {net.Interface{Name: "bridge0", Flags: up}, true},
		"down":           {net.Interface{Name: "eth0", Flags: net.FlagMulticast}, false},
		"no multicast":   {net.Interface{Name: "eth0", Flags: net.FlagUp}, false},
		"loopback":       {net.Interface{Name: "lo", Flags: up | net.FlagLoopback}, false},
		"point to point": {net.Interface{Name: "ppp0", Flags: up | net.FlagPointToPoint}, false},
		"docker":         {net.Interface{Name: "docker0", Flags: up}, false},
		"its networks":   {net.Interface{Name: "br-0123456789ab", Flags: up}, false},
		"container end":  {net.Interface{Name: "veth12ab", Flags: up}, false},
		"wireguard":      {net.Interface{Name: "wg0", Flags: up}, false},
		"tailscale":      {net.Interface{Name: "tailscale0", Flags: up}, false},
	}
	for name, c := range cases {
		if got := usable(c.iface); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestChangedLinksEndAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := links{addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
		var now atomic.Pointer[links]
		now.Store(&on)
		choose := func() (links, error) { return *now.Load(), nil }
		done := make(chan struct{})
		go func() { defer close(done); untilChanged(t.Context(), choose, on) }()
		time.Sleep(5 * pollLinks)
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("it ended without a change")
		default:
		}
		now.Store(&links{addrs: append(slices.Clone(on.addrs), netip.MustParseAddr("198.51.100.1"))})
		time.Sleep(pollLinks)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Fatal("an interface that came was not noticed")
		}
	})
}

// TestLinksThatCannotBeReadEndNoWindow: an error is no change.
func TestLinksThatCannotBeReadEndNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		asked := 0
		untilChanged(ctx, func() (links, error) { asked++; return links{}, errors.New("busy") }, attachedTo("192.0.2.0/24"))
		if got := time.Since(start); got != time.Hour || asked < 300 {
			t.Errorf("it ended after %v and %d looks", got, asked)
		}
	})
}

func TestEverySkippedNameIsSkipped(t *testing.T) {
	const up = net.FlagUp | net.FlagMulticast
	for _, prefix := range skipped {
		for _, name := range []string{prefix, prefix + "0", prefix + "-a.7"} {
			if usable(net.Interface{Name: name, Flags: up}) {
				t.Errorf("%s is used", name)
			}
		}
		if !usable(net.Interface{Name: "x" + prefix, Flags: up}) {
			t.Errorf("x%s is skipped", prefix)
		}
	}
	for _, name := range []string{"eth0", "enp5s0", "eno1", "wlan0", "wlp3s0", "ib0", "bond0", "team0", "br0", "vlan7", "eth0.7", "usb0", "en0", "hsn0", "mlx5_0"} {
		if !usable(net.Interface{Name: name, Flags: up}) {
			t.Errorf("%s is skipped", name)
		}
	}
}

func TestWhatIsNeverAnnounced(t *testing.T) {
	l := choose([]attachment{attached(2, "eth0", net.FlagUp|net.FlagMulticast,
		"127.0.1.1/8", "::1/128", "0.0.0.0/0", "::/0", "169.254.1.1/16", "fe80::1/64", "224.0.0.1/4", "ff02::1/16", "192.0.2.5/24")})
	if got := strings.Join(l.texts(), " "); got != "192.0.2.5" {
		t.Errorf("announced: %s", got)
	}
	if got := fmt.Sprint(l.prefixes); got != "[192.0.2.0/24]" {
		t.Errorf("attached to %s", got)
	}
}

// TestChooseTakesTheInterfacesOfThisMachine: whatever it has, what is chosen may be
// announced.
func TestChooseTakesTheInterfacesOfThisMachine(t *testing.T) {
	l, err := chooseLinks()
	if err != nil {
		t.Fatal(err)
	}
	for _, iface := range l.ifaces {
		if !usable(iface) || len(prefixesOf(iface)) == 0 {
			t.Errorf("%s was chosen: %v", iface.Name, prefixesOf(iface))
		}
	}
	if !l.same(l) || len(l.addrs) != len(l.prefixes) {
		t.Errorf("got %+v", l)
	}
	if got := prefixesOf(net.Interface{Index: 1 << 20, Name: "gone0"}); got != nil {
		t.Errorf("an interface that went has %v", got)
	}
}
