package lab

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

// copyState gives a box the state directory of another, as a copied disk has it.
func (b *Box) copyState(of *Box) {
	b.tb.Helper()
	if out, err := exec.Command("cp", "-a", of.StateDir(), b.StateDir()).CombinedOutput(); err != nil {
		b.tb.Fatalf("copy the state of box %s: %v\n%s", of.Name, err, out)
	}
}

// TestCopiedDiskIsFoundAndRotates: two boxes under one identity. All say so, the
// copy serves no more, and a new identity makes it a member of its own.
func TestCopiedDiskIsFoundAndRotates(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.joinedBoxes("a", "b", "c")
	a, b, c := boxes[0], boxes[1], boxes[2]
	b.Sees(c, 20*time.Second, ui.NodeLive)
	key := a.CLI("keys", "new", "phone")
	c.Stop()
	twin := l.Box("twin")
	twin.copyState(c)
	c.Start()
	a.Sees(c, 20*time.Second, ui.NodeLive)
	twin.Start()
	twin.says(60*time.Second, "another box runs under this box's identity", "llmgw identity rotate")
	c.says(60*time.Second, "another box runs under this box's identity")
	a.says(60*time.Second, "two boxes run under the identity of")
	t.Logf("a:\n%s\n\nc:\n%s\n\ntwin:\n%s", a.CLI("status"), c.CLI("status"), twin.CLI("status"))
	answers(t, a.API(c, key), http.StatusOK)
	Eventually(t, 20*time.Second, "the copy is not ready to serve", func() (bool, string) {
		got, err := a.API(twin, key).Ask(seconds(t, 5), http.MethodGet, "/readyz", nil)
		return err == nil && got.Status == http.StatusServiceUnavailable, got.String()
	})
	old := JSON[ui.Status](twin, "status").Node.ID
	t.Log(twin.CLI("identity", "rotate"))
	Eventually(t, 30*time.Second, "the copy runs under an identity of its own", func() (bool, string) {
		r := twin.Try("status", "--json")
		return r.Code == 0 && !strings.Contains(r.Stdout, old), r.String()
	})
	for _, at := range []*Box{a, b, c} {
		Eventually(t, 30*time.Second, "box "+at.Name+" counts four live boxes", func() (bool, string) {
			live := 0
			for _, n := range JSON[ui.NodeList](at, "nodes").Nodes {
				if n.State == ui.NodeLive || n.State == ui.NodeSelf {
					live++
				}
			}
			return live == 4, at.CLI("nodes")
		})
	}
	// What each writes under its own writer ID reaches the other.
	ofTwin, ofC := twin.CLI("keys", "new", "of-twin"), c.CLI("keys", "new", "of-c")
	for _, k := range []string{ofTwin, ofC} {
		for _, at := range []*Box{a, b, c, twin} {
			answers(t, b.API(at, k), http.StatusOK)
		}
	}
}
