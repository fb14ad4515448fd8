package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
)

// TestFullDiskRefusesWritesAndServesOn: a box with no byte left refuses what it
// cannot keep, says why, serves on, and recovers by itself.
func TestFullDiskRefusesWritesAndServesOn(t *testing.T) {
	t.Parallel()
	l := New(t)
	b := l.Box("b")
	b.SmallDisk(smallDiskBytes)
	b.Start()
	b.PullSim("sim", Sim{Tokens: 1})
	b.CLI("load", "sim")
	b.AwaitReplica("sim", string(catalog.ReplicaReady), 15*time.Second)
	at := l.Box("laptop").API(b, b.CLI("keys", "new", "phone"))
	b.FillDisk()
	refused := Result{}
	for n := range 100 {
		if refused = b.Try("keys", "new", fmt.Sprintf("tablet-%d", n)); refused.Code != 0 {
			break
		}
	}
	if !b.Running() {
		t.Fatal("the full disk ended the daemon")
	}
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "space") {
		t.Errorf("a write on a full disk:\n%s", refused)
	}
	if got, err := at.Ask(seconds(t, 10), "POST", "/v1/chat/completions", Chat("sim", "Hi", false, nil)); err != nil || got.Status != 200 {
		t.Errorf("a request on a full disk: %v, %v", got, err)
	}
	if said := b.CLI("status"); !strings.Contains(said, "disk") {
		t.Errorf("status says nothing of the disk:\n%s", said)
	}
	b.FreeDisk()
	Eventually(t, 20*time.Second, "keys are made again", func() (bool, string) {
		r := b.Try("keys", "new", "tablet")
		return r.Code == 0, r.String()
	})
}
