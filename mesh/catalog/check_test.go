package catalog

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"
)

// okModel may be kept.
func okModel() Model {
	m := smol()
	m.ID, m.State = "smollm2", ModelServed
	return m
}

func TestModelsAtTheirBoundsAreTaken(t *testing.T) {
	for name, change := range map[string]func(*Model){
		"stopped":               func(m *Model) { m.State = ModelStopped },
		"no replica":            func(m *Model) { m.Scale = Scale{} },
		"all replicas":          func(m *Model) { m.Scale = Scale{MaxReplicas, MaxReplicas, math.MaxInt64} },
		"on demand alone":       func(m *Model) { m.Scale = Scale{0, 1, 0} },
		"no limits":             func(m *Model) { m.Limits = Limits{} },
		"limits without bounds": func(m *Model) { m.Limits = Limits{math.MaxInt, math.MaxInt, true} },
		"the longest alias":     func(m *Model) { m.Aliases = []string{strings.Repeat("a", maxAliasBytes)} },
		"its own name":          func(m *Model) { m.Aliases = []string{m.Name} },
		"no profile":            func(m *Model) { m.Profiles = nil },
		"names differ in case":  func(m *Model) { m.Profiles = []Profile{{ID: "A", Engine: "e"}, {ID: "a", Engine: "e"}} },
		"the longest profile": func(m *Model) {
			m.Profiles = []Profile{{ID: strings.Repeat("p", crdt.MaxNameBytes-len(profilePrefix)), Engine: "e"}}
		},
		"an odd profile":      func(m *Model) { m.Profiles = []Profile{{ID: "a/b c\n", Engine: "e", Priority: -1, Args: []string{""}}} },
		"a required label":    func(m *Model) { m.Labels.Require = map[string]string{"a/b": ""} },
		"required and forbid": func(m *Model) { m.Labels = Selector{map[string]string{"a": "1"}, map[string]string{"a": "2"}} },
	} {
		t.Run(name, func(t *testing.T) {
			m := okModel()
			change(&m)
			must(t, CheckModel(m))
			b := quickBox(t)
			must(t, b.CreateModel(m))
			got, err := b.Model(m.ID)
			must(t, err)
			got.Created = 0
			equal(t, "model", m, got)
		})
	}
}

func TestModelsThatCannotBeKeptSayWhy(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(*Model)
		field, why string
	}{
		"no state":         {func(m *Model) { m.State = "" }, "state", `"" is neither served nor stopped`},
		"another state":    {func(m *Model) { m.State = "Served" }, "state", `"Served" is neither served nor stopped`},
		"min below":        {func(m *Model) { m.Scale.Min = -1 }, "scale.min", "is -1: want 0 to 256 replicas"},
		"min above":        {func(m *Model) { m.Scale.Min = 257 }, "scale.min", "is 257: want 0 to 256 replicas"},
		"max below":        {func(m *Model) { m.Scale.Max = -1 }, "scale.max", "is -1: want 0 to 256 replicas"},
		"max above":        {func(m *Model) { m.Scale.Max = 257 }, "scale.max", "is 257: want 0 to 256 replicas"},
		"max below min":    {func(m *Model) { m.Scale = Scale{Min: 2, Max: 1} }, "scale.max", "is 1, below scale.min, which is 2"},
		"idle":             {func(m *Model) { m.Scale.Idle = -time.Nanosecond }, "scale.idle", "is below zero"},
		"context":          {func(m *Model) { m.Limits.Context = -1 }, "limits", "are below zero"},
		"output":           {func(m *Model) { m.Limits.MaxOutput = -1 }, "limits", "are below zero"},
		"nameless profile": {func(m *Model) { m.Profiles[0].ID = "" }, "profiles", "have one without a name or an engine"},
		"no engine":        {func(m *Model) { m.Profiles[0].Engine = "" }, "profiles", "have one without a name or an engine"},
		"profile twice":    {func(m *Model) { m.Profiles = append(m.Profiles, m.Profiles[0]) }, "profiles", `have two named "default"`},
		"profile context":  {func(m *Model) { m.Profiles[0].Context = -1 }, "profile default", "has a context or parallel below zero"},
		"profile parallel": {func(m *Model) { m.Profiles[0].Parallel = -1 }, "profile default", "has a context or parallel below zero"},
		"long profile": {func(m *Model) { m.Profiles[0].ID = strings.Repeat("p", 248) }, "profile/" + strings.Repeat("p", 248),
			"has a name that is not UTF-8, or over 255 bytes with its kind"},
		"profile of bytes": {func(m *Model) { m.Profiles[0].ID = "\xff" }, "profile/\xff", "has a name that is not UTF-8, or over 255 bytes with its kind"},
		"flags of bytes":   {func(m *Model) { m.Profiles[0].Args = []string{"\xff"} }, "profile/default", "holds text that is not UTF-8"},
		"pin of bytes":     {func(m *Model) { m.Pin = "a\x80" }, "pin", "holds text that is not UTF-8"},
		"source of bytes":  {func(m *Model) { m.Source.URI = "file:/m\xe4.gguf" }, "source", "holds text that is not UTF-8"},
		"file of bytes":    {func(m *Model) { m.Declared.File = "/\xff" }, "declared", "holds text that is not UTF-8"},
		"much text":        {func(m *Model) { m.Profiles[0].Args = []string{strings.Repeat("x", crdt.MaxValueBytes)} }, "profile/default", "is over 131072 bytes"},
		"many aliases":     {func(m *Model) { m.Aliases = manyNames(crdt.MaxCells) }, "settings", "are more than 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			m := okModel()
			c.change(&m)
			want := (&ModelError{"SmolLM2", c.field, c.why}).Error()
			refused[*ModelError](t, CheckModel(m), want)
			b := quickBox(t)
			must(t, b.CreateModel(smol()))
			before := b.row(t, modelKey("smollm2"))
			refused[*ModelError](t, b.UpdateModel("smollm2", func(m *Model) error { c.change(m); return nil }), want)
			if after := b.row(t, modelKey("smollm2")); !after.Equal(before) {
				t.Error("something of it was written")
			}
		})
	}
	refused[*ModelError](t, CheckModel(Model{Name: "a"}), `model "a": state "" is neither served nor stopped`)
}

func manyNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("a", i)
	}
	return out
}

func TestNamesAndLabelsOfAModelAreChecked(t *testing.T) {
	m := okModel()
	m.Aliases = []string{"fine", "a b"}
	refused[*NameError](t, CheckModel(m), `model name "a b": holds ' '; `+allowedInNames)
	m.Aliases = []string{strings.Repeat("a", 250)}
	refused[*NameError](t, CheckModel(m), fmt.Sprintf("model name %q: is longer than 249 bytes, which an alias may have", m.Aliases[0]))
	m = okModel()
	m.Labels.Require = map[string]string{"z z": "1", "a a": "1"}
	for range 20 { // whatever the order in which the map is gone through
		refused[*LabelError](t, CheckModel(m), `label "a a=1": letters, digits, '.', '_' and '-' are allowed, and '/' in the key`)
	}
	m = okModel()
	m.Labels.Forbid = map[string]string{"": "1"}
	refused[*LabelError](t, CheckModel(m), `label "=1": has no key`)
}

// A cell that nobody could read back is not written, whatever the document.
func TestTextThatIsNoneIsNotWritten(t *testing.T) {
	const bad = "a\xffb"
	b := quickBox(t)
	_, err := b.CreateProject(Project{ID: "web"})
	must(t, err)
	for name, write := range map[string]func() error{
		"session":     func() error { return b.PutSession(Session{ID: "s", Creator: bad}) },
		"key's name":  func() error { return b.PutAPIKey(APIKey{ID: "k", Name: bad}) },
		"key's scope": func() error { return b.PutAPIKey(APIKey{ID: "k", Scopes: []string{bad}}) },
		"location":    func() error { return b.UpdateNode("n", func(s *NodeSettings) error { s.Location = bad; return nil }) },
		"device": func() error {
			return b.UpdateNode("n", func(s *NodeSettings) error { s.CordonedDevices = []string{bad}; return nil })
		},
		"assignment": func() error { return b.PutAssignment(Assignment{Model: "m", Epoch: 1, Reason: bad}) },
		"model":      func() error { m := smol(); m.Source.Revision = bad; return b.CreateModel(m) },
		"sponsor": func() error {
			return b.SetProvider("p", func(p *Provider) error { p.URL, p.Sponsor = "https://a.example", bad; return nil })
		},
		"their name": func() error {
			return b.SetProvider("p", func(p *Provider) error {
				p.URL, p.Models = "https://a.example", []ProviderModel{{"m", bad}}
				return nil
			})
		},
		"target": func() error { return b.PutRoute(Route{Name: "r", Targets: []string{"m@" + bad}}) },
	} {
		before := b.store.Sequence()
		if err := write(); err == nil || !strings.Contains(err.Error(), "UTF-8") && !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("%s: error is %v", name, err)
		}
		if b.store.Sequence() != before {
			t.Errorf("%s: something was written", name)
		}
	}
	for name, s := range shelves() {
		if _, err := s.list(b); err != nil {
			t.Errorf("%s cannot be read any more: %v", name, err)
		}
	}
}

// What is checked before it is written can be written: nothing is left to the store's bounds.
func TestCheckCells(t *testing.T) {
	name := strings.Repeat("n", crdt.MaxNameBytes)
	full := map[string]any{}
	for i := range crdt.MaxCells {
		full[fmt.Sprint("c", i)] = i
	}
	for what, c := range map[string]struct {
		cells     map[string]any
		cell, why string
	}{
		"none":           {nil, "", ""},
		"the longest":    {map[string]any{name: true}, "", ""},
		"too long":       {map[string]any{name + "n": true}, name + "n", "has a name that is not UTF-8, or over 255 bytes with its kind"},
		"no name":        {map[string]any{"": true}, "", "has a name that is not UTF-8, or over 255 bytes with its kind"},
		"the largest":    {map[string]any{"c": make([]byte, crdt.MaxValueBytes-5)}, "", ""},
		"too large":      {map[string]any{"c": make([]byte, crdt.MaxValueBytes-4)}, "c", "is over 131072 bytes"},
		"first of two":   {map[string]any{"b": "\xff", "a": "\xff"}, "a", "holds text that is not UTF-8"},
		"as many as fit": {full, "", ""},
	} {
		if cell, why := checkCells(c.cells); cell != c.cell || why != c.why {
			t.Errorf("%s: %q %q, want %q %q", what, cell, why, c.cell, c.why)
		}
	}
	full["one more"] = true
	if cell, why := checkCells(full); cell != "settings" || why != "are more than 1024" {
		t.Errorf("too many: %q %q", cell, why)
	}
}
