package lab

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// IP is the box's IPv4 address at home.
func (b *Box) IP() netip.Addr { return b.IPAt(b.home) }

// IP6 is the box's IPv6 address at home.
func (b *Box) IP6() netip.Addr { return b.IP6At(b.home) }

// IPAt is the IPv4 address that the box has on a segment, plugged in or not.
func (b *Box) IPAt(s Segment) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, byte(s), byte(b.number)})
}

// IP6At is the same in IPv6.
func (b *Box) IP6At(s Segment) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fd77:%x::%x", int(s), b.number))
}

// mac is chosen by us so that the link-local address is known.
func (b *Box) mac() string { return fmt.Sprintf("02:77:00:00:00:%02x", b.number) }

// linkLocal follows from mac (RFC 4291, appendix A).
func (b *Box) linkLocal() string { return fmt.Sprintf("fe80::77:ff:fe00:%x", b.number) }

// port is the box's plug in the switch.
func (b *Box) port() string { return fmt.Sprintf("p%d", b.number) }

// plugIn lays the cable. The route makes multicast work without a gateway, as
// it does on a box that got one by DHCP.
func (b *Box) plugIn() error {
	sw, ns := b.lab.sw.name, b.ns.name
	err := tools(
		fmt.Sprintf("ip -n %s link add %s type veth peer name eth0 address %s netns %s", sw, b.port(), b.mac(), ns),
		fmt.Sprintf("ip -n %s link set %s master %s up", sw, b.port(), b.home.bridge()),
		fmt.Sprintf("ip -n %s link set lo up", ns),
		fmt.Sprintf("ip -n %s addr add %s/24 dev eth0", ns, b.IP()),
	)
	if err != nil {
		return err
	}
	if err := b.ns.do(func() error { return skipAddressCheck("eth0") }); err != nil {
		return err
	}
	return tools(
		fmt.Sprintf("ip -n %s addr add %s/64 dev eth0", ns, b.IP6()),
		fmt.Sprintf("ip -n %s link set eth0 up", ns),
		fmt.Sprintf("ip -n %s route add 224.0.0.0/4 dev eth0", ns),
	)
}

// skipAddressCheck spares the seconds in which a new IPv6 address may not be
// used because another box could have it.
func skipAddressCheck(iface string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+iface+"/accept_dad", []byte("0"), 0)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("skip duplicate address detection: %w", err)
	}
	return nil
}

// must runs command lines in which %s stands for the switch's namespace.
func (b *Box) must(what string, lines ...string) {
	b.tb.Helper()
	if err := tools(lines...); err != nil {
		b.tb.Fatalf("%s box %s: %v", what, b.Name, err)
	}
}

func (b *Box) onSwitch(tool, words string) string {
	return fmt.Sprintf("%s -n %s %s", tool, b.lab.sw.name, words)
}

func (b *Box) onBox(tool, words string) string {
	return fmt.Sprintf("%s -n %s %s", tool, b.ns.name, words)
}

// Cut takes the box off the network without a sign: the switch forwards nothing
// from or to it, the link stays up, connections hang.
func (b *Box) Cut() {
	b.tb.Helper()
	b.must("cut", b.onSwitch("bridge", "link set dev "+b.port()+" state 0"))
	b.cut = true
}

// Unplug pulls the cable: the box sees its link go down.
func (b *Box) Unplug() {
	b.tb.Helper()
	b.must("unplug", b.onSwitch("ip", "link set "+b.port()+" down"))
	b.unplugged = true
}

// Heal undoes Cut, Unplug, Mute, Deafen, Lose and Shape. A port whose link comes up
// forwards by itself, and cannot be told to before the link is there.
func (b *Box) Heal() {
	b.tb.Helper()
	b.clearShape()
	b.clearLoss()
	switch {
	case b.unplugged:
		b.must("heal", b.onSwitch("ip", "link set "+b.port()+" up"))
	case b.cut:
		b.must("heal", b.onSwitch("bridge", "link set dev "+b.port()+" state 3"))
	}
	b.cut, b.unplugged = false, false
}

// dropAll is a token bucket too small for any packet: each is dropped. It needs
// no packet filter in the kernel.
const dropAll = "root tbf rate 8bit burst 1b limit 1"

// Mute drops what the box sends; it still hears the others.
func (b *Box) Mute() {
	b.tb.Helper()
	b.must("mute", b.onBox("tc", "qdisc replace dev eth0 "+dropAll))
}

// Deafen drops what is sent to the box; the others still hear it.
func (b *Box) Deafen() {
	b.tb.Helper()
	b.must("deafen", b.onSwitch("tc", "qdisc replace dev "+b.port()+" "+dropAll))
}

// Shape sets the traffic control of the link towards the box, in tc's words:
// "netem delay 20ms loss 1%", "tbf rate 10mbit burst 32kb latency 50ms". It
// skips the test where the kernel lacks that discipline.
func (b *Box) Shape(words string) {
	b.tb.Helper()
	err := tools(b.onSwitch("tc", "qdisc replace dev "+b.port()+" root "+words))
	if err != nil && strings.Contains(err.Error(), "qdisc kind is unknown") {
		Skip(b.tb, "this kernel has no %q: %v", words, err)
	}
	if err != nil {
		b.tb.Fatalf("shape box %s: %v", b.Name, err)
	}
}

// Lose drops so many in a hundred packets at random, each way.
func (b *Box) Lose(percent int) {
	b.tb.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		Skip(b.tb, "lost packets need the nft command of nftables: %v", err)
	}
	nft := "ip netns exec " + b.ns.name + " nft "
	lines := []string{nft + "add table inet lab"}
	for _, hook := range []string{"input", "output"} {
		lines = append(lines,
			nft+"add chain inet lab "+hook+" { type filter hook "+hook+" priority 0 ; }",
			fmt.Sprintf("%sadd rule inet lab %s oifname != lo iifname != lo numgen random mod 100 < %d drop", nft, hook, percent))
	}
	b.must("lose packets of", lines...)
	b.lossy = true
}

// clearLoss undoes Lose.
func (b *Box) clearLoss() {
	b.tb.Helper()
	if b.lossy {
		b.must("heal", "ip netns exec "+b.ns.name+" nft delete table inet lab")
		b.lossy = false
	}
}

// clearShape removes disciplines of both ends; there may be none.
func (b *Box) clearShape() {
	_ = tools(b.onSwitch("tc", "qdisc del dev "+b.port()+" root"))
	_ = tools(b.onBox("tc", "qdisc del dev eth0 root"))
}

// CutTo drops what the box sends to one other box, and nothing else: its
// neighbour entries for it point to a card that nobody has. Multicast and the
// other direction still pass; call it on both boxes to cut a pair.
func (b *Box) CutTo(other *Box) {
	b.tb.Helper()
	for _, a := range other.addresses() {
		b.must("cut", b.onBox("ip", "neigh replace "+a+" lladdr 02:77:ff:ff:ff:ff nud permanent dev eth0"))
	}
}

// HealTo undoes CutTo, if there was one.
func (b *Box) HealTo(other *Box) {
	b.tb.Helper()
	for _, a := range other.addresses() {
		b.must("heal", b.onBox("ip", "neigh flush to "+a+" dev eth0 nud permanent"))
	}
}

func (b *Box) addresses() []string {
	return []string{b.IP().String(), b.IP6().String(), b.linkLocal()}
}
