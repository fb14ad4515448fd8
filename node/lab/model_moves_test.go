package lab

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// TestModelOfADeadBoxMovesAndStays: a box that is away for so long that its
// model moves, and then comes back, still serving.
func TestModelOfADeadBoxMovesAndStays(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	sim := Sim{Tokens: 4, IntervalMS: 5}
	s.a.PullSim("sim", sim)
	s.b.PullSim("sim", sim)
	s.a.CLI("load", "sim")
	holder := s.a.AwaitReplica("sim", string(catalog.ReplicaReady), 15*time.Second).NodeName
	away, stays := s.b, s.a
	if holder == "a" {
		away, stays = s.a, s.b
	}
	key := s.key()
	answers(t, s.laptop.API(stays, key), http.StatusOK)
	away.Cut()
	began := time.Now()
	stays.Sees(away, 25*time.Second, ui.NodeDead)
	stays.AwaitReplicaOn("sim", stays, 60*time.Second)
	t.Logf("ready elsewhere %v after the cut", time.Since(began).Round(100*time.Millisecond))
	stop, failures := make(chan struct{}), make(chan string, 1000)
	go s.keepAsking(s.laptop.API(stays, key), stop, failures)
	away.Heal()
	away.Sees(stays, 20*time.Second, ui.NodeLive)
	stays.Sees(away, 20*time.Second, ui.NodeLive)
	Eventually(t, 30*time.Second, "both see one owner", func() (bool, string) {
		seen := s.a.CLI("ps") + "\n" + s.b.CLI("ps")
		return len(s.a.Replicas("sim")) == 1 && len(s.b.Replicas("sim")) == 1, seen
	})
	one := s.a.Replicas("sim")[0]
	Always(t, 5*time.Second, "the one owner stays", func() (bool, string) {
		for _, b := range []*Box{s.a, s.b} {
			if now := b.Replicas("sim"); len(now) != 1 || now[0].Node != one.Node || now[0].State != string(catalog.ReplicaReady) {
				return false, b.CLI("ps")
			}
		}
		return true, ""
	})
	close(stop)
	for f := range failures {
		t.Errorf("a request failed while a replica was ready: %s", f)
	}
	t.Logf("after the return:\n%s\n%s", s.a.CLI("ps"), s.a.CLI("why", "sim"))
}

// TestADrainedBoxGivesAwayWhatOthersCanHave: without a failed request, and says what
// stays.
func TestADrainedBoxGivesAwayWhatOthersCanHave(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	sim := Sim{Tokens: 4, IntervalMS: 5, LoadMS: 500}
	s.b.PullSim("sim", sim)
	s.a.CLI("load", "sim")
	s.a.AwaitReplicaOn("sim", s.b, 15*time.Second)
	s.a.PullSim("sim", sim)
	s.b.PullSim("pinned", sim)
	s.b.CLI("load", "pinned", "--node", "b", "--wait")
	key := s.key()
	answers(t, s.laptop.API(s.a, key), http.StatusOK)
	stop, failures := make(chan struct{}), make(chan string, 1000)
	go s.keepAsking(s.laptop.API(s.a, key), stop, failures)
	r := s.a.Try("drain", "b")
	if r.Code != 7 || !strings.Contains(r.Out(), "sim, slot 0, moves to a") || !strings.Contains(r.Out(), "keeps pinned, slot 0: pinned to b") {
		t.Errorf("drain says:\n%s", r)
	}
	close(stop)
	for f := range failures {
		t.Errorf("a request failed: %s", f)
	}
	if got := s.a.Replicas("sim"); len(got) != 1 || got[0].NodeName != "a" {
		t.Errorf("after the drain:\n%s\n%s", s.a.CLI("ps"), s.a.CLI("why", "sim"))
	}
	s.a.CLI("scale", "pinned", "--replicas", "0")
	s.a.CLI("drain", "b")
	t.Logf("%s\n%s", r.Out(), s.a.CLI("nodes"))
	s.a.CLI("uncordon", "b")
	s.a.CLI("drain", "a")
	s.a.AwaitReplicaOn("sim", s.b, 15*time.Second)
}

// keepAsking asks for sim until stop and then closes failures.
func (s scene) keepAsking(at *API, stop chan struct{}, failures chan string) {
	defer close(failures)
	for {
		select {
		case <-stop:
			return
		case <-time.After(30 * time.Millisecond):
		}
		got, err := at.Ask(s.tb.Context(), "POST", "/v1/chat/completions", Chat("sim", "Hi", false, nil))
		if err != nil || got.Status != http.StatusOK {
			select {
			case failures <- got.String():
			default:
			}
		}
	}
}
