package node

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// declareIn starts a daemon whose config file declares a model.
func declareIn(t *testing.T, dir, models string) daemon {
	t.Helper()
	writeConfig(t, dir, "version: 1\nmodels:\n"+models)
	return start(t, dir)
}

func (d daemon) model(t *testing.T, name string) (ui.Model, bool) {
	t.Helper()
	list, err := d.client.Models(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Models {
		if m.Name == name {
			return m, true
		}
	}
	return ui.Model{}, false
}

func TestDeclaredModelIsKeptAndReadOnly(t *testing.T) {
	dir := t.TempDir()
	source := simFile(t, `{"llmgw_sim":1,"tokens":3}`)
	d := declareIn(t, dir, "  Tiny:\n    source: "+source+"\n    aliases: [small]\n    scale: {min: 1}\n")
	file := filepath.Join(dir, "config.yaml")
	eventually(t, "it is served", func() bool { m, _ := d.model(t, "Tiny"); return m.Loaded })
	m, _ := d.model(t, "Tiny")
	if m.DeclaredOn != "box" || m.DeclaredIn != file || m.Wanted != 1 || m.Aliases[0] != "small" {
		t.Errorf("got %+v", m)
	}
	if s := d.config(t, "models"); s.Value != "Tiny" || s.Origin != "file "+file {
		t.Errorf("config says %+v", s)
	}
	stopped, ctx := "stopped", t.Context()
	for name, edit := range map[string]func() error{
		"unload": func() error { _, err := d.client.Unload(ctx, ui.UnloadRequest{Model: "tiny"}); return err },
		"stop": func() error {
			_, err := d.client.SetModel(ctx, ui.ModelRequest{Model: "tiny", State: &stopped})
			return err
		},
		"pin": func() error { _, err := d.client.Load(ctx, ui.LoadRequest{Model: "tiny", Node: "box"}); return err },
	} {
		refused := (*ui.APIError)(nil)
		if err := edit(); !errors.As(err, &refused) || refused.Status != 409 || !strings.Contains(refused.Message, file+" on box") || !strings.Contains(refused.Hint, "llmgw restart") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := d.client.Load(ctx, ui.LoadRequest{Model: "tiny"}); err != nil {
		t.Errorf("what changes nothing was refused: %v", err)
	}
	if r := d.apply(t, ui.ApplyRequest{Document: d.export(t), Prune: true}); len(r.Changes) != 0 {
		t.Errorf("its own export changes %v", lines(r))
	}
	_, err := d.client.Apply(ctx, ui.ApplyRequest{Document: "version: 1\nmodels: {tiny: {state: stopped}}\n"})
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("apply over it: %v", err)
	}
	if r := d.apply(t, ui.ApplyRequest{Document: "version: 1\nmodels: {}\n", Prune: true}); len(r.Changes) != 0 {
		t.Errorf("it was pruned: %v", lines(r))
	}
	// What another version or an older peer does to it is undone.
	if err := d.catalog.UpdateModel("tiny", func(m *catalog.Model) error { m.Aliases = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is as declared again", func() bool { m, err := d.catalog.Model("tiny"); return err == nil && len(m.Aliases) == 1 })
	d.stop()

	again := declareIn(t, dir, "  Other:\n    source: "+source+"\n")
	eventually(t, "the other is there and the first is let go", func() bool {
		first, _ := again.model(t, "Tiny")
		other, ok := again.model(t, "Other")
		return ok && other.DeclaredOn == "box" && first.DeclaredOn == ""
	})
	if _, err := again.client.Unload(ctx, ui.UnloadRequest{Model: "tiny"}); err != nil {
		t.Errorf("a model that is no longer declared cannot be edited: %v", err)
	}
}

func TestDeclaredModelTakesOverAnEntryOfTheSameSource(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir)
	d.serve(t, "tiny")
	m, err := d.catalog.Model("tiny")
	if err != nil {
		t.Fatal(err)
	}
	d.stop()
	again := declareIn(t, dir, "  tiny: {source: '"+m.Source.URI+"', limits: {context: 128}}\n")
	eventually(t, "it is declared", func() bool {
		m, err := again.catalog.Model("tiny")
		return err == nil && m.Declared.Node == again.mesh.Self() && m.Limits.Context == 128 && m.Scale.Min == 0
	})
}

func TestWhatCannotBeDeclaredIsAProblem(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir)
	d.serve(t, "taken")
	d.stop()
	again := declareIn(t, dir, "  gone: {source: 'file:/nowhere/gone.json'}\n  taken: {source: '"+simFile(t, `{"llmgw_sim":1,"tokens":9}`)+"'}\n  lost: {source: '"+simFile(t, `{"llmgw_sim":1}`)+"', pin: cellar}\n")
	want := []string{"gone is not as", "/nowhere/gone.json", "taken is not as", "another source", `no member is named "cellar"`, filepath.Join(dir, "config.yaml")}
	said := ""
	eventually(t, "all are told", func() bool {
		status, err := again.client.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		said = ""
		for _, p := range status.Problems {
			said += p.Text + "\n"
		}
		for _, part := range want {
			if !strings.Contains(said, part) {
				return false
			}
		}
		return true
	})
	if m, _ := again.model(t, "taken"); m.DeclaredOn != "" {
		t.Errorf("an entry with another source was taken over: %+v", m)
	}
}

func TestADeclarationOfANodeThatLeftBindsNobody(t *testing.T) {
	d := start(t, t.TempDir())
	d.serve(t, "tiny")
	err := d.catalog.UpdateModel("tiny", func(m *catalog.Model) error {
		m.Declared = catalog.Declaration{Node: "12D3KooWGone", File: "/etc/llmgw/config.yaml"}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.Unload(t.Context(), ui.UnloadRequest{Model: "tiny"}); err != nil {
		t.Error(err)
	}
}

func TestConfigFileModelsAreStrict(t *testing.T) {
	for name, tc := range map[string]struct{ models, want string }{
		"unknown field": {"  m: {source: x, sacle: {}}", "field sacle not found"},
		"no source":     {"  m: {state: served}", "no source"},
		"bad name":      {"  'a@b': {source: x}", "'@'"},
		"no mapping":    {"  - m", "cannot unmarshal"},
	} {
		dir := t.TempDir()
		path := writeConfig(t, dir, "version: 1\nmodels:\n"+tc.models+"\n")
		_, _, _, err := LoadConfig(Sources{Flags: map[string]string{"state_dir": dir}, Env: environ(nil)})
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
