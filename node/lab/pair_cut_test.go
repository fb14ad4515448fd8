package lab

import (
	"net/http"
	"testing"
	"time"

	"llmgw/ui"
)

// TestPairCutDoesNotFlap: two of three boxes no longer reach each other, both
// reach the third. Each says what it sees and keeps saying it.
func TestPairCutDoesNotFlap(t *testing.T) {
	t.Parallel()
	for name, both := range map[string]bool{"both ways": true, "one way": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := joinedScene(t)
			c := s.Box("c")
			c.Start()
			c.Join(s.a)
			c.Sees(s.b, 15*time.Second, ui.NodeLive)
			c.PullSim("sim", Sim{Tokens: 1})
			c.CLI("load", "sim", "--node", "c")
			s.a.AwaitReplicaOn("sim", c, 15*time.Second)
			s.b.AwaitReplicaOn("sim", c, 15*time.Second)
			key := s.key()
			answers(t, s.atB(key), http.StatusOK)
			s.a.CutTo(s.b)
			if both {
				s.b.CutTo(s.a)
			}
			tale := map[string][]string{}
			note := func(of string, state string) {
				if said := tale[of]; len(said) == 0 || said[len(said)-1] != state {
					tale[of] = append(said, state)
				}
			}
			failed := 0
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				note("b on a", s.a.Nodes()["b"])
				note("a on b", s.b.Nodes()["a"])
				note("a on c", c.Nodes()["a"])
				note("b on c", c.Nodes()["b"])
				for _, at := range []*API{s.atA(key), s.atB(key)} {
					if got, err := at.Ask(seconds(t, 10), "POST", "/v1/chat/completions", Chat("sim", "Hi", false, nil)); err != nil || got.Status != 200 {
						failed++
					}
				}
			}
			t.Logf("what was said: %v; %d requests failed", tale, failed)
			for of, states := range tale {
				if len(states) > 3 {
					t.Errorf("%s flaps: %v", of, states)
				}
			}
			if len(tale["a on c"])+len(tale["b on c"]) != 2 || failed > 0 {
				t.Errorf("the third box is touched by the cut: %v, %d requests failed", tale, failed)
			}
			s.a.HealTo(s.b)
			s.b.HealTo(s.a)
			s.a.Sees(s.b, 20*time.Second, ui.NodeLive)
			s.b.Sees(s.a, 20*time.Second, ui.NodeLive)
		})
	}
}
