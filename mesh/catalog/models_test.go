package catalog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func smol() Model {
	return Model{Name: "SmolLM2", Source: Source{URI: "file:/smol.gguf", Digest: "sha256:01", SizeBytes: 98 << 20, Format: FormatGGUF},
		Aliases: []string{"Small"}, Profiles: []Profile{{ID: "default", Engine: EngineLlamaCpp, Embeddings: true}}}
}

func TestModelComesBackAsWritten(t *testing.T) {
	b := newBox(t)
	must(t, b.CreateModel(smol()))
	want := smol()
	want.ID, want.State = "smollm2", ModelServed
	got, err := b.Model("smollm2")
	must(t, err)
	if age := time.Since(time.Unix(got.Created, 0)); age < 0 || age > time.Minute {
		t.Errorf("made %s ago", age)
	}
	want.Created = got.Created
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	must(t, b.CreateModel(smol())) // the same again is no change
	other := smol()
	other.Source.Digest = "sha256:02"
	var exists *ExistsError
	if err := b.CreateModel(other); !errors.As(err, &exists) || exists.Source.URI != "file:/smol.gguf" {
		t.Errorf("another source under the same name: got %v", err)
	}
	if _, err := b.Model("gone"); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown model: got %v", err)
	}
}

func TestEditsOfDifferentSettingsBothSurvive(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.CreateModel(smol()))
	exchange(t, a, b)
	must(t, a.UpdateModel("smollm2", func(m *Model) error { m.Scale.Min, m.Scale.Max = 1, 1; return nil }))
	must(t, b.UpdateModel("smollm2", func(m *Model) error {
		m.Limits.MaxOutput, m.Aliases, m.Profiles = 99, []string{"tiny"}, append(m.Profiles, Profile{ID: "big", Engine: EngineLlamaCpp})
		return nil
	}))
	exchange(t, a, b)
	for name, box := range map[string]box{"a": a, "b": b} {
		m, err := box.Model("smollm2")
		must(t, err)
		if m.Scale.Min != 1 || m.Limits.MaxOutput != 99 || len(m.Profiles) != 2 || !cmp.Equal(m.Aliases, []string{"tiny"}) {
			t.Errorf("on %s an edit was lost: %+v", name, m)
		}
	}
}

func TestTwoCreationsDoNotMixSources(t *testing.T) {
	a, b := newBox(t), newBox(t)
	one, two := smol(), smol()
	two.Source = Source{URI: "file:/other", Digest: "sha256:02", SizeBytes: 5, Format: FormatSim}
	must(t, a.CreateModel(one))
	must(t, b.CreateModel(two))
	exchange(t, a, b)
	onA, err := a.Model("smollm2")
	must(t, err)
	onB, err := b.Model("smollm2")
	must(t, err)
	if diff := cmp.Diff(onA, onB); diff != "" {
		t.Errorf("the boxes differ: %s", diff)
	}
	if onA.Source != one.Source && onA.Source != two.Source {
		t.Errorf("the sources are mixed: %+v", onA.Source)
	}
}

func TestModelsAreCheckedAtTheWrite(t *testing.T) {
	b := newBox(t)
	must(t, b.CreateModel(smol()))
	for want, change := range map[string]func(*Model){
		"state":           func(m *Model) { m.State = "asleep" },
		"below scale.min": func(m *Model) { m.Scale.Min = 1 },
		"scale.min":       func(m *Model) { m.Scale.Min = -1 },
		"scale.max":       func(m *Model) { m.Scale.Max = MaxReplicas + 1 },
		"scale.idle":      func(m *Model) { m.Scale.Idle = -time.Second },
		"limits":          func(m *Model) { m.Limits.Context = -1 },
		"'@'":             func(m *Model) { m.Aliases = []string{"a@b"} },
		"two named":       func(m *Model) { m.Profiles = append(m.Profiles, m.Profiles[0]) },
		"engine":          func(m *Model) { m.Profiles = []Profile{{ID: "x"}} },
		"profile default": func(m *Model) { m.Profiles[0].Parallel = -1 },
		"label":           func(m *Model) { m.Labels.Require = map[string]string{"a b": "c"} },
		"\"zone=e u\"":    func(m *Model) { m.Labels.Forbid = map[string]string{"zone": "e u"} },
	} {
		before, err := b.Model("smollm2")
		must(t, err)
		err = b.UpdateModel("smollm2", func(m *Model) error { change(m); return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
		after, err := b.Model("smollm2")
		must(t, err)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: a refused write changed %s", want, diff)
		}
	}
	must(t, b.UpdateModel("smollm2", func(m *Model) error { m.Declared = Declaration{Node: "p", File: "/f"}; return nil }))
	m, err := b.Model("smollm2")
	must(t, err)
	if m.Declared.File != "/f" {
		t.Errorf("got %+v", m.Declared)
	}
}
