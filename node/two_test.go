package node

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"llmgw/mesh"
	"llmgw/ui"
)

// pair is two daemons of one mesh; both are called box.
func pair(t *testing.T) (a, b daemon) {
	t.Helper()
	a, b = start(t, t.TempDir()), start(t, t.TempDir())
	token, err := a.client.NewToken(t.Context(), ui.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Join(t.Context(), ui.JoinRequest{Token: token.Token}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []daemon{a, b} {
		eventually(t, "both are live", func() bool {
			s, err := d.client.Status(t.Context())
			return err == nil && s.Mesh.Live == 2
		})
	}
	return a, b
}

func TestWhatIsSetOnOneNodeHoldsOnTheOther(t *testing.T) {
	a, b := pair(t)
	a.set(t, "log.level", "warn")
	eventually(t, "the other follows", func() bool { return b.level.Level() == slog.LevelWarn })
	if _, err := b.client.SetSetting(t.Context(), ui.SettingRequest{Name: "log.level"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is unset on the first", func() bool { return a.level.Level() == slog.LevelInfo })

	place := "rack 3"
	if _, err := a.client.SetNode(t.Context(), ui.NodeRequest{Node: b.mesh.Self(), Location: &place}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both export the same", func() bool { return a.export(t) == b.export(t) && strings.Contains(a.export(t), place) })
	if doc := a.export(t); !strings.Contains(doc, b.mesh.Self()) {
		t.Errorf("of two boxes with one name the export does not say which:\n%s", doc)
	}
	_, err := a.client.Apply(t.Context(), ui.ApplyRequest{Document: "version: 1\nnodes: {box: {location: cellar}}\n"})
	if err == nil || !strings.Contains(err.Error(), "2 members are named") {
		t.Errorf("a name of two boxes was taken: %v", err)
	}
}

func TestAWantOfOneNodeLoadsOnAnother(t *testing.T) {
	a, b := pair(t)
	b.pull(t, "tiny") // a has not got the file
	b.scale(t, ui.ModelRequest{Model: "tiny", Max: number(1)})
	eventually(t, "a knows the model", func() bool { m, _ := a.model(t, "tiny"); return m.Max == 1 })
	release, err := a.Want("tiny")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "b serves what a wants", func() bool { return b.serving("tiny") })
	eventually(t, "a knows", func() bool { m, _ := a.model(t, "tiny"); return m.Loaded })
	release()
	// While b still hears of requests that wait, it rightly loads it again.
	eventually(t, "b hears that nobody wants it", func() bool {
		return !slices.ContainsFunc(b.mesh.Nodes(), func(n mesh.Node) bool { return len(n.Presence.Wants) > 0 }) &&
			!slices.ContainsFunc(b.view.Load().nodes, func(n mesh.Node) bool { return len(n.Presence.Wants) > 0 })
	})
	if _, err := a.client.Unload(t.Context(), ui.UnloadRequest{Model: "tiny"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ends on b", func() bool { return len(b.supervisor.Status()) == 0 })
}

func TestAnEditOfADeclaredModelIsRefusedOnEveryNode(t *testing.T) {
	a := start(t, t.TempDir())
	dir := t.TempDir()
	b := declareIn(t, dir, "  Tiny: {source: '"+simFile(t, `{"llmgw_sim":1}`)+"'}\n")
	eventually(t, "b declares it", func() bool { m, _ := b.model(t, "Tiny"); return m.DeclaredOn != "" })
	token, err := a.client.NewToken(t.Context(), ui.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Join(t.Context(), ui.JoinRequest{Token: token.Token, Replace: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b declares it in the mesh that it joined", func() bool { m, _ := a.model(t, "Tiny"); return strings.HasSuffix(m.DeclaredIn, "config.yaml") })
	if _, err := a.client.Load(t.Context(), ui.LoadRequest{Model: "tiny"}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}
