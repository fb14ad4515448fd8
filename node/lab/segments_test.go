package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

// TestTwoSubnetsAreOneMesh: mDNS ends at the router. One address given by hand
// joins the subnets, and the others learn of each other through the mesh.
func TestTwoSubnetsAreOneMesh(t *testing.T) {
	t.Parallel()
	l := New(t)
	far := l.Segment()
	gate := l.Box("gate")
	gate.Plug(far)
	gate.Forward()
	secret := l.File("secret", gate.CLI("secret", "new"), 0o600)
	near := []*Box{l.Box("a"), l.Box("b")}
	over := []*Box{l.BoxAt(far, "c"), l.BoxAt(far, "d")}
	for _, b := range near {
		b.RouteVia(gate, far)
		b.Args = []string{"--mesh-secret-file", secret}
	}
	for _, b := range over {
		b.RouteVia(gate, 0)
		b.Args = []string{"--mesh-secret-file", secret}
	}
	over[0].Args = append(over[0].Args, "--peer", near[0].MeshAddr())
	all := append(near, over...)
	for _, b := range all {
		b.Launch()
	}
	for _, b := range all {
		b.AwaitAPI()
	}
	for _, b := range all {
		for _, other := range all {
			if other != b {
				b.Sees(other, 45*time.Second, ui.NodeLive)
			}
		}
	}
	t.Log(over[1].CLI("nodes"))
}

// TestInterfacesComeAndGo: two boxes have one link, get a second one while they
// run, lose the first, and get it back. The link that is there carries the mesh.
func TestInterfacesComeAndGo(t *testing.T) {
	t.Parallel()
	l := New(t)
	second := l.Segment()
	boxes := l.joinedBoxes("a", "b")
	a, b := boxes[0], boxes[1]
	for _, x := range boxes {
		x.Plug(second)
	}
	a.Unplug()
	a.Sees(b, 45*time.Second, ui.NodeLive)
	b.Sees(a, 45*time.Second, ui.NodeLive)
	written := a.CLI("keys", "new", "over-the-second-link")
	Eventually(t, 30*time.Second, "b knows the key", func() (bool, string) {
		list := b.CLI("keys", "ls", "--json")
		return containsAny(list, []string{"over-the-second-link"}), list
	})
	t.Logf("%s\n%s", b.CLI("nodes"), b.CLI("doctor"))
	a.Heal()
	b.Remove(second)
	a.Sees(b, 45*time.Second, ui.NodeLive)
	b.Sees(a, 45*time.Second, ui.NodeLive)
	b.CLI("keys", "revoke", "over-the-second-link")
	answersWithin(t, b.API(a, written), 401, 30*time.Second)
}

// renumber gives a box other addresses at home, as a new lease does.
func (b *Box) renumber() {
	b.tb.Helper()
	b.must("renumber",
		b.onBox("ip", fmt.Sprintf("addr del %s/24 dev eth0", b.IP())),
		b.onBox("ip", fmt.Sprintf("addr del %s/64 dev eth0", b.IP6())),
		b.onBox("ip", fmt.Sprintf("addr add 10.77.0.%d/24 dev eth0", 100+b.number)),
		b.onBox("ip", "route replace 224.0.0.0/4 dev eth0"))
}

// TestMovedBoxesAreFoundWithTheTable: nothing is announced on the link, two of three
// boxes get new addresses while they are off, and the mesh keeps a table of who is
// where, because a setting asks for it.
func TestMovedBoxesAreFoundWithTheTable(t *testing.T) {
	t.Parallel()
	l := New(t)
	a, b, c := l.Box("a"), l.Box("b"), l.Box("c")
	secret := l.File("secret", a.CLI("secret", "new"), 0o600)
	for _, x := range []*Box{a, b, c} {
		x.Args = []string{"--mesh-secret-file", secret, "--no-mdns"}
		if x != a {
			x.Args = append(x.Args, "--peer", a.MeshAddr())
		}
		x.Start()
	}
	b.Sees(c, 30*time.Second, ui.NodeLive)
	a.CLI("settings", "set", "discovery.dht", "true")
	for _, x := range []*Box{b, c} {
		Eventually(t, 20*time.Second, "box "+x.Name+" keeps the table", func() (bool, string) {
			for _, s := range JSON[ui.SettingList](x, "config").Settings {
				if s.Name == "discovery.dht" {
					return s.Value == "true" && s.Origin == "mesh setting", fmt.Sprint(s)
				}
			}
			return false, "no such setting"
		})
	}
	for _, x := range []*Box{b, c} {
		x.Stop()
		x.renumber()
	}
	for _, x := range []*Box{b, c} {
		x.Launch()
	}
	for _, x := range []*Box{b, c} {
		Eventually(t, 20*time.Second, "the daemon of "+x.Name+" answers", func() (bool, string) {
			r := x.Try("status")
			return r.Code == 0, r.String()
		})
	}
	b.Sees(c, 60*time.Second, ui.NodeLive)
	c.Sees(b, 60*time.Second, ui.NodeLive)
	a.Sees(b, 30*time.Second, ui.NodeLive)
	if said := b.CLI("nodes"); !strings.Contains(said, fmt.Sprintf("10.77.0.%d:", 100+c.number)) {
		t.Errorf("c is not reached at its new address:\n%s", said)
	}
}
