package lab

import (
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
	boxes := l.startBoxes("a", "b")
	a, b := boxes[0], boxes[1]
	b.Join(a)
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
