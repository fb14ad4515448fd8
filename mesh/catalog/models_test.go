package catalog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"

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

func TestANameIsTakenByOneSource(t *testing.T) {
	b := quickBox(t)
	must(t, b.CreateModel(smol()))
	before := b.row(t, modelKey("smollm2"))
	again := smol() // the same file, under the name as another person spells it
	again.Name, again.Source.URI, again.Pin, again.Aliases = "SMOLLM2", "hf:other", "p", nil
	must(t, b.CreateModel(again))
	if !b.row(t, modelKey("smollm2")).Equal(before) {
		t.Error("making it again changed it")
	}
	other := smol()
	other.Name, other.Source = "smolLM2", Source{URI: "hf:new", Digest: "sha256:02"}
	err := b.CreateModel(other)
	refused[*ExistsError](t, err, `model "SmolLM2" exists already with source file:/smol.gguf`)
	if !b.row(t, modelKey("smollm2")).Equal(before) {
		t.Error("a refused one changed it")
	}
	refused[*NameError](t, b.CreateModel(Model{Name: "a b"}), `model name "a b": holds ' '; `+allowedInNames)
	refused[*NameError](t, b.CreateModel(Model{}), `model name "": is empty`)
	refused[*ModelError](t, b.CreateModel(Model{Name: "new", State: "x"}), `model "new": state "x" is neither served nor stopped`)
}

func TestAModelThatIsGone(t *testing.T) {
	b := quickBox(t)
	m := smol()
	m.Labels.Require, m.Scale.Max = map[string]string{"zone": "eu"}, 3
	must(t, b.CreateModel(m))
	must(t, b.DeleteModel("smollm2"))
	for name, err := range map[string]error{
		"read":    func() error { _, err := b.Model("smollm2"); return err }(),
		"changed": b.UpdateModel("smollm2", func(*Model) error { t.Error("it was changed"); return nil }),
		"deleted": b.DeleteModel("smollm2"),
		"by name": b.DeleteModel("SmolLM2"), // documents are read by ID
	} {
		notFound(t, name, err)
	}
	all, err := b.Models()
	must(t, err)
	if len(all) != 0 {
		t.Errorf("there are %+v", all)
	}
	// The name may be used again, for another source, and has nothing of the old one.
	must(t, b.CreateModel(Model{Name: "smolLM2", Source: Source{Digest: "sha256:02"}}))
	got, err := b.Model("smollm2")
	must(t, err)
	got.Created = 0
	equal(t, "model", Model{ID: "smollm2", Name: "smolLM2", State: ModelServed, Source: Source{Digest: "sha256:02"}}, got)
}

// An edit may spell a model's name in another way and never gives it another.
func TestAModelKeepsItsName(t *testing.T) {
	b := quickBox(t)
	must(t, b.CreateModel(smol()))
	must(t, b.UpdateModel("smollm2", func(m *Model) error { m.ID, m.Name = "other", "SMOLlm2"; return nil }))
	m, err := b.Model("smollm2")
	must(t, err)
	if m.Name != "SMOLlm2" || m.ID != "smollm2" {
		t.Errorf("it is %q, %q", m.ID, m.Name)
	}
	for _, name := range []string{"other", "", "a b", "smollm2 ", "small", "smoll\u212Am2"} {
		err := b.UpdateModel("smollm2", func(m *Model) error { m.Name = name; return nil })
		refused[*ModelError](t, err, fmt.Sprintf(`model "SMOLlm2": name %q is another one: it may differ in case alone`, name))
	}
	_, err = b.Model("other")
	notFound(t, "the other name", err)
}

// An alias is there once, however it is spelled, as it was spelled last.
func TestAliasesDifferInMoreThanCase(t *testing.T) {
	b := quickBox(t)
	m := smol()
	m.Aliases = []string{"Small", "tiny", "SMALL"}
	must(t, b.CreateModel(m))
	got, err := b.Model("smollm2")
	must(t, err)
	equal(t, "aliases", []string{"SMALL", "tiny"}, got.Aliases)
	for _, want := range [][]string{{"small"}, nil, {"Tiny", "small"}} {
		must(t, b.UpdateModel("smollm2", func(m *Model) error { m.Aliases = want; return nil }))
		got, err := b.Model("smollm2")
		must(t, err)
		equal(t, "aliases", want, got.Aliases)
	}
}

func TestModelsAreListedByID(t *testing.T) {
	b := quickBox(t)
	for _, name := range []string{"b", "A/c", "a", "Z", "a.b", "a:b"} {
		must(t, b.CreateModel(Model{Name: name}))
	}
	all, err := b.Models()
	must(t, err)
	var ids []string
	for _, m := range all {
		ids = append(ids, m.ID)
	}
	equal(t, "IDs", []string{"a", "a.b", "a/c", "a:b", "b", "z"}, ids)
}

// A model is made when its source was written, whatever is edited later.
func TestAnEditIsNoCreation(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s, err := store.Open("", store.Options{Now: func() time.Time { return now }, Entropy: rand.Reader, Disk: store.NewDisk(), Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	c := New(s)
	must(t, c.CreateModel(smol()))
	now = now.Add(time.Hour)
	must(t, c.UpdateModel("smollm2", func(m *Model) error { m.Pin, m.Created = "p", 7; return nil }))
	m, err := c.Model("smollm2")
	must(t, err)
	if m.Created != 1_800_000_000 {
		t.Errorf("made at %d", m.Created)
	}
	must(t, c.UpdateModel("smollm2", func(m *Model) error { m.Source.Revision = "2"; return nil }))
	if m, err = c.Model("smollm2"); err != nil || m.Created != 1_800_003_600 {
		t.Errorf("its source was written at %d, %v", m.Created, err)
	}
}

// A watch hears of its documents, of those that others wrote too, and of no others.
func TestAWatchHearsOfItsDocuments(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	models, all := b.Watch(NamespaceModels, NamespaceRoutes), b.Watch(NamespaceKeys, NamespaceModels)
	t.Cleanup(models.Close)
	t.Cleanup(all.Close)
	heard := func(w *store.Watch) bool {
		select {
		case <-w.C:
			return true
		default:
			return false
		}
	}
	want := func(what string, wantModels, wantAll bool) {
		t.Helper()
		if m, k := heard(models), heard(all); m != wantModels || k != wantAll {
			t.Errorf("%s: heard %v, %v", what, m, k)
		}
	}
	want("nothing", false, false)
	must(t, b.PutAPIKey(APIKey{ID: "k"}))
	want("a key", false, true)
	must(t, b.PutSession(Session{ID: "s"}))
	want("a session", false, false)
	must(t, a.CreateModel(smol()))
	must(t, a.CreateModel(Model{Name: "more"}))
	exchange(t, a, b)
	want("two models by a merge", true, true)
	want("nothing more", false, false)
	must(t, b.UpdateModel("more", func(*Model) error { return nil }))
	want("an edit of nothing", false, false)
}

func TestIsDeclared(t *testing.T) {
	for name, c := range map[string]struct {
		row  crdt.Row
		want bool
	}{
		"no row":     {crdt.Row{}, false},
		"not":        {rowOf(t, map[string]any{cellDeclared: Declaration{}}), false},
		"file alone": {rowOf(t, map[string]any{cellDeclared: Declaration{File: "/f"}}), false},
		"by a node":  {rowOf(t, map[string]any{cellDeclared: Declaration{Node: "n"}}), true},
		"unset":      {crdt.Row{Length: 1, Cells: map[string]crdt.Cell{cellDeclared: {At: 1}}}, false},
		"unreadable": {crdt.Row{Length: 1, Cells: map[string]crdt.Cell{cellDeclared: {Value: []byte{0xff}}}}, false},
		"half read":  {rowOf(t, map[string]any{cellDeclared: map[string]any{"node": "n", "file": 7}}), false},
	} {
		if got := IsDeclared(c.row); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestTheMarkOfAnUnloadOnlyGrows: on each box, in a merge, and whatever clocks say. No
// other edit moves it, and a model that is made anew has none.
func TestTheMarkOfAnUnloadOnlyGrows(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.CreateModel(smol()))
	exchange(t, a, b)
	mark := func(x box) uint64 {
		m, err := x.Model("smollm2")
		must(t, err)
		return m.Unloaded
	}
	unload := func(x box) {
		must(t, x.UnloadModel("smollm2", func(m *Model) error { m.Scale.Min = 0; return nil }))
	}
	if mark(a) != 0 {
		t.Errorf("a new model has the mark %d", mark(a))
	}
	for _, x := range []box{a, b, a, a, b} { // without having heard of each other's
		before := mark(x)
		unload(x)
		if mark(x) <= before {
			t.Errorf("the mark went from %d to %d", before, mark(x))
		}
	}
	highest := max(mark(a), mark(b))
	exchange(t, a, b)
	if mark(a) != highest || mark(b) != highest {
		t.Errorf("merged to %d and %d, want %d", mark(a), mark(b), highest)
	}
	must(t, b.UpdateModel("smollm2", func(m *Model) error { m.Scale.Max, m.Unloaded = 3, 9; return nil }))
	refusal := errors.New("no")
	if err := b.UnloadModel("smollm2", func(*Model) error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("got %v", err)
	}
	if mark(b) != highest {
		t.Errorf("another edit moved the mark to %d", mark(b))
	}
	far := crdt.StampOf(time.Now().Add(20 * time.Hour)) // a box whose clock is wrong unloaded it
	_, err := a.store.Merge([]crdt.Item{{Key: modelKey("smollm2"), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{cellUnloaded: {At: far, By: 5, Value: enc(t, uint64(1))}}}}})
	must(t, err)
	unload(a)
	if mark(a) <= uint64(far) {
		t.Errorf("the mark %d is not after %d", mark(a), far)
	}
	must(t, a.DeleteModel("smollm2"))
	must(t, a.CreateModel(smol()))
	if mark(a) != 0 {
		t.Errorf("made anew it has the mark %d", mark(a))
	}
	notFound(t, "unload", a.UnloadModel("none", func(*Model) error { return nil }))
}
