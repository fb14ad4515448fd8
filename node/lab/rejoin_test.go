package lab

import (
	"net/http"
	"testing"
	"time"

	"llmgw/ui"
)

// TestWipedBoxRejoinsUnderItsName: a box with a new disk is a new member; what
// the mesh shared is there again, and the old member is shown as away.
func TestWipedBoxRejoinsUnderItsName(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	s.a.PullSim("sim", Sim{Tokens: 1})
	key := s.a.CLI("keys", "new", "phone")
	ofB := s.b.CLI("keys", "new", "tablet")
	old := JSON[ui.Status](s.b, "status").Node.ID
	answers(t, s.atA(ofB), http.StatusOK)
	s.b.Crash()
	s.b.Wipe()
	s.b.Start()
	s.b.CLI("join", s.a.CLI("token", "new"))
	fresh := JSON[ui.Status](s.b, "status").Node.ID
	if fresh == old {
		t.Fatal("a new disk gave the box its old identity")
	}
	Eventually(t, 30*time.Second, "a knows the new box as live and the old one as dead", func() (bool, string) {
		states := map[string]string{}
		for _, n := range JSON[ui.NodeList](s.a, "nodes").Nodes {
			states[n.ID] = n.State
		}
		return states[fresh] == ui.NodeLive && states[old] == ui.NodeDead, s.a.CLI("nodes")
	})
	t.Logf("%s\n%s", s.a.CLI("nodes"), s.a.CLI("status"))
	for _, k := range []string{key, ofB} {
		answers(t, s.atA(k), http.StatusOK)
		answers(t, s.atB(k), http.StatusOK)
	}
	if got := JSON[ui.ModelList](s.b, "models").Models; len(got) != 1 {
		t.Errorf("the wiped box knows the models %+v", got)
	}
}
