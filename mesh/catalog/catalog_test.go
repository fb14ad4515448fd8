package catalog

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"llmgw/crdt/store"

	"github.com/google/go-cmp/cmp"
)

// box is one node's catalog on a store of its own.
type box struct {
	*Catalog
	store *store.Store
}

func newBox(t *testing.T) box {
	t.Helper()
	s, err := store.Open(t.TempDir(), store.Options{Now: time.Now, Entropy: rand.Reader, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return box{New(s), s}
}

// exchange merges all rows both ways.
func exchange(t *testing.T, a, b box) {
	t.Helper()
	for _, way := range [][2]box{{a, b}, {b, a}} {
		page, err := way[0].store.Since(0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := way[1].store.Merge(page.Items); err != nil {
			t.Fatal(err)
		}
	}
}

func smol() Model {
	return Model{Name: "SmolLM2", Source: Source{URI: "file:/smol.gguf", Digest: "sha256:01", SizeBytes: 98 << 20, Format: FormatGGUF},
		Aliases: []string{"Small"}, Profiles: []Profile{{ID: "default", Engine: EngineLlamaCpp, Embeddings: true}}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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

func TestResolve(t *testing.T) {
	models := []Model{{ID: "b", Name: "B", Aliases: []string{"chat"}}, {ID: "a", Name: "A", Aliases: []string{"Chat", "b"}}}
	for name, want := range map[string]string{"A": "a", "b": "b", "CHAT": "a", "none": ""} {
		m, ok := Resolve(models, name)
		if ok != (want != "") || m.ID != want {
			t.Errorf("%q resolves to %q, want %q", name, m.ID, want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, good := range map[string]bool{
		"qwen2.5:7b": true, "org/model-Q4_K.gguf": true,
		"": false, "a@b": false, "a:b:c": false, "a b": false, "../x": false, "a//b": false, "/a": false, "ä": false, strings.Repeat("x", 999): false,
	} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("name %q: got %v", name, err)
		}
	}
}

func TestHigherEpochOwnsTheSlot(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.PutAssignment(Assignment{Model: "m", Owner: "late", Epoch: 3, Steward: "a"}))
	must(t, b.PutAssignment(Assignment{Model: "m", Owner: "early", Epoch: 2, Steward: "b"}))
	exchange(t, a, b)
	must(t, b.PutAssignment(Assignment{Model: "m", Owner: "stale", Epoch: 1, Steward: "b"}))
	exchange(t, a, b)
	for name, box := range map[string]box{"a": a, "b": b} {
		got, err := box.Assignments()
		must(t, err)
		want := []Assignment{{Model: "m", Owner: "late", Epoch: 3, Steward: "a"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("on %s: %s", name, diff)
		}
	}
}

func TestEqualEpochsAgreeOnOneOwner(t *testing.T) {
	a, b := newBox(t), newBox(t)
	must(t, a.PutAssignment(Assignment{Model: "m", Owner: "x", Epoch: 3, Steward: "a"}))
	must(t, b.PutAssignment(Assignment{Model: "m", Owner: "y", Epoch: 3, Steward: "b"}))
	exchange(t, a, b)
	onA, err := a.Assignments()
	must(t, err)
	onB, err := b.Assignments()
	must(t, err)
	if diff := cmp.Diff(onA, onB); diff != "" || len(onA) != 1 {
		t.Errorf("the boxes differ: %s", diff)
	}
}

func TestRevokedKeyStaysRevoked(t *testing.T) {
	a, b := newBox(t), newBox(t)
	key := APIKey{ID: "k1", Name: "laptop", Hash: []byte{1, 2}, Scopes: []string{ScopeInfer}, Created: 5, Creator: "a"}
	must(t, a.PutAPIKey(key))
	exchange(t, a, b)
	got, err := b.APIKey("k1")
	must(t, err)
	if diff := cmp.Diff(key, got); diff != "" {
		t.Error(diff)
	}
	must(t, b.RevokeAPIKey("k1"))
	exchange(t, a, b)
	if _, err := a.APIKey("k1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a revoked key reads as %v", err)
	}
	if err := a.PutAPIKey(key); !errors.Is(err, ErrNotFound) {
		t.Errorf("a revoked key could be written again: %v", err)
	}
	if err := a.RevokeAPIKey("k1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestKeysAreListedOldestFirst(t *testing.T) {
	b := newBox(t)
	for _, k := range []APIKey{{ID: "z", Created: 1}, {ID: "b", Created: 2}, {ID: "a", Created: 2}} {
		must(t, b.PutAPIKey(k))
	}
	keys, err := b.APIKeys()
	must(t, err)
	var ids []string
	for _, k := range keys {
		ids = append(ids, k.ID)
	}
	if diff := cmp.Diff([]string{"z", "a", "b"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestExpiredSessionsAreDropped(t *testing.T) {
	b := newBox(t)
	must(t, b.PutSession(Session{ID: "old", Expires: 10}))
	must(t, b.PutSession(Session{ID: "new", Expires: 30}))
	must(t, b.DropExpiredSessions(time.Unix(20, 0)))
	if _, err := b.Session("old"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an expired session reads as %v", err)
	}
	s, err := b.Session("new")
	must(t, err)
	if s.ID != "new" || s.Expires != 30 {
		t.Errorf("got %+v", s)
	}
	must(t, b.DeleteSession("new"))
	if err := b.PutSession(s); !errors.Is(err, ErrNotFound) {
		t.Errorf("an ended session could be prolonged: %v", err)
	}
}

func TestMemoryNeed(t *testing.T) {
	for _, tc := range []struct {
		name string
		m    Model
		p    Profile
		want int64
	}{
		{"file and KV by header", Model{Source: Source{SizeBytes: 1000, KVBytesPerToken: 10}}, Profile{Context: 100, Parallel: 2}, 1000 + 10*100*2},
		{"trained context bounds it", Model{Source: Source{SizeBytes: 0, KVBytesPerToken: 1, ContextTrain: 50}}, Profile{Parallel: 1}, 50},
		{"defaults", Model{Source: Source{KVBytesPerToken: 1}}, Profile{}, DefaultContext * DefaultParallel},
		{"no header", Model{Source: Source{SizeBytes: 1000}}, Profile{}, 1200},
	} {
		if got := tc.m.MemoryNeed(tc.p); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}
