package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

// apply has a box make the mesh as a document says.
func (b *Box) apply(document string, args ...string) Result {
	b.tb.Helper()
	r := b.TryInput(document, append([]string{"apply", "-f", "-"}, args...)...)
	if r.Code != 0 {
		b.tb.Fatal(r)
	}
	return r
}

const appliedMesh = `version: 1
settings:
  discovery.auto_join: false
models:
  tiny:
    aliases: [small]
    scale: {min: 0, max: 2}
    require: {zone: eu}
nodes:
  a:
    labels: {zone: eu}
    location: rack 3
`

// TestExportRestoresAWipedMesh: what one mesh exports makes another like it.
func TestExportRestoresAWipedMesh(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	s.b.PullSim("tiny", Sim{Tokens: 2})
	Eventually(t, 20*time.Second, "a knows the model", func() (bool, string) {
		r := s.a.Try("why", "tiny")
		return r.Code == 0, r.String()
	})
	dry := s.a.apply(appliedMesh, "--dry-run")
	if r := s.a.CLI("export"); strings.Contains(r, "rack 3") {
		t.Errorf("a dry run wrote:\n%s", r)
	}
	t.Log(dry.Out())
	s.a.apply(appliedMesh)
	var exported string
	Eventually(t, 20*time.Second, "both boxes export the same", func() (bool, string) {
		exported = s.a.CLI("export")
		ofB := s.b.CLI("export")
		return exported == ofB && strings.Contains(ofB, "rack 3"), exported + "\n---\n" + ofB
	})
	t.Log(exported)
	key := s.a.CLI("keys", "new", "phone")
	if secret := key[len(key)-20:]; strings.Contains(exported, secret) {
		t.Error("the export holds a key")
	}
	again := s.b.apply(exported)
	if after := s.b.CLI("export"); after != exported {
		t.Errorf("a second apply changed something:\n%s\n%s", again, after)
	}
	for _, b := range []*Box{s.a, s.b} {
		b.Stop()
		b.Wipe()
		b.Start()
	}
	s.b.Join(s.a)
	s.a.apply(exported)
	for _, b := range []*Box{s.a, s.b} {
		Eventually(t, 20*time.Second, "box "+b.Name+" exports what the old mesh did", func() (bool, string) {
			now := b.CLI("export")
			return now == exported, fmt.Sprintf("%s\n--- want\n%s", now, exported)
		})
	}
}

// TestAppliesOnBothSidesOfACut: different settings of one model survive both.
func TestAppliesOnBothSidesOfACut(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	s.a.PullSim("tiny", Sim{Tokens: 2})
	Eventually(t, 20*time.Second, "b knows the model", func() (bool, string) {
		r := s.b.Try("why", "tiny")
		return r.Code == 0, r.String()
	})
	s.b.Cut()
	s.a.Sees(s.b, 30*time.Second, ui.NodeDead)
	s.a.apply("version: 1\nmodels:\n  tiny:\n    aliases: [from-a]\n    limits: {context: 128}\nnodes:\n  a:\n    labels: {side: left}\n")
	s.b.apply("version: 1\nmodels:\n  tiny:\n    aliases: [from-b]\n    scale: {min: 0, max: 3}\nnodes:\n  b:\n    labels: {side: right}\nsettings:\n  discovery.auto_join: false\n")
	s.b.Heal()
	both := []string{"from-a", "from-b", "context: 128", "max: 3", "side: left", "side: right", "discovery.auto_join: false"}
	Eventually(t, 40*time.Second, "both boxes export what either side applied", func() (bool, string) {
		ofA, ofB := s.a.CLI("export"), s.b.CLI("export")
		for _, want := range both {
			if !strings.Contains(ofA, want) {
				return false, "no " + want + " in\n" + ofA
			}
		}
		return ofA == ofB, ofA + "\n---\n" + ofB
	})
	t.Log(s.a.CLI("export"))
}

// TestMeshSettingIsInForceEverywhere: set on one box, obeyed by the others
// within seconds, and a box's own config goes before it.
func TestMeshSettingIsInForceEverywhere(t *testing.T) {
	t.Parallel()
	l := New(t)
	own := l.Box("own")
	own.Env = []string{"LLMGW_LOG_LEVEL=info"}
	boxes := l.startBoxes("a", "b")
	a, b := boxes[0], boxes[1]
	own.Start()
	b.Join(a)
	own.Join(a)
	if strings.Contains(b.Logs(), `"level":"DEBUG"`) {
		t.Fatal("b logs debug lines by itself")
	}
	a.CLI("settings", "set", "log.level", "debug")
	Eventually(t, 20*time.Second, "b logs debug lines", func() (bool, string) {
		return strings.Contains(b.Logs(), `"level":"DEBUG"`), b.CLI("config")
	})
	if said := b.CLI("config"); !strings.Contains(said, "mesh setting") {
		t.Errorf("config does not tell where the level is from:\n%s", said)
	}
	if said := own.CLI("config"); strings.Contains(own.Logs(), `"level":"DEBUG"`) || !strings.Contains(said, "LLMGW_LOG_LEVEL") {
		t.Errorf("own's environment does not go before:\n%s", said)
	}
	if r := b.Try("settings", "set", "log.level", "shout"); r.Code == 0 || !strings.Contains(r.Stderr, "debug") {
		t.Errorf("want a refusal that lists what there is:\n%s", r)
	}
	b.CLI("settings", "unset", "log.level")
	Eventually(t, 20*time.Second, "a has no such setting", func() (bool, string) {
		return !strings.Contains(a.CLI("export"), "log.level"), a.CLI("settings")
	})
}
