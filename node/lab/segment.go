package lab

import "fmt"

// Segment is a link layer of its own with its own subnet, 10.77.<n>.0/24 and
// fd77:<n>::/64: nothing passes from one to another but over a box that stands in
// both and forwards. Segment 0 is every box's home unless it is told otherwise.
type Segment int

func (s Segment) bridge() string { return fmt.Sprintf("br%d", int(s)) }

// iface is what a box calls its plug in a segment that is not its home.
func (s Segment) iface() string { return fmt.Sprintf("eth%d", int(s)) }

func (s Segment) subnet() string { return fmt.Sprintf("10.77.%d.0/24", int(s)) }

// Segment adds one.
func (l *Lab) Segment() Segment {
	l.tb.Helper()
	s := Segment(l.laid)
	if err := l.lay(s); err != nil {
		l.tb.Fatalf("lay segment %d: %v", s, err)
	}
	return s
}

func (l *Lab) lay(s Segment) error {
	l.laid++
	// Snooping would hold back multicast until some box sends a query for it.
	return tools(
		"ip -n "+l.sw.name+" link add "+s.bridge()+" type bridge mcast_snooping 0",
		"ip -n "+l.sw.name+" link set "+s.bridge()+" up",
	)
}

// Plug gives a box one more interface, in a segment that is not its home.
func (b *Box) Plug(s Segment) {
	b.tb.Helper()
	port := fmt.Sprintf("p%ds%d", b.number, int(s))
	b.must("plug in",
		b.onSwitch("ip", fmt.Sprintf("link add %s type veth peer name %s netns %s", port, s.iface(), b.ns.name)),
		b.onSwitch("ip", "link set "+port+" master "+s.bridge()+" up"),
		b.onBox("ip", fmt.Sprintf("addr add %s/24 dev %s", b.IPAt(s), s.iface())))
	if err := b.ns.do(func() error { return skipAddressCheck(s.iface()) }); err != nil {
		b.tb.Fatalf("plug in box %s: %v", b.Name, err)
	}
	b.must("plug in",
		b.onBox("ip", fmt.Sprintf("addr add %s/64 dev %s", b.IP6At(s), s.iface())),
		b.onBox("ip", "link set "+s.iface()+" up"))
}

// Remove takes the interface of Plug away altogether, as pulling out a USB
// adapter does.
func (b *Box) Remove(s Segment) {
	b.tb.Helper()
	b.must("remove an interface of", b.onBox("ip", "link del "+s.iface()))
}

// Forward lets a box that stands in several segments pass packets on.
func (b *Box) Forward() {
	b.tb.Helper()
	if r, err := b.Run(b.tb.Context(), "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"); err != nil || r.Code != 0 {
		b.tb.Fatalf("forward on box %s: %v\n%s", b.Name, err, r)
	}
}

// RouteVia sends what is for a segment over another box at home.
func (b *Box) RouteVia(gate *Box, to Segment) {
	b.tb.Helper()
	b.must("route on", b.onBox("ip", fmt.Sprintf("route add %s via %s", to.subnet(), gate.IPAt(b.home))))
}
