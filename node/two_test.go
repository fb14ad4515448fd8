package node

import (
	"log/slog"
	"net/http"
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
}

// TestAnUnloadEndsWantsOfBefore: whoever unloads, and whoever still tells of requests
// that wait. What begins afterwards loads the model again.
func TestAnUnloadEndsWantsOfBefore(t *testing.T) {
	a, b := pair(t)
	b.pull(t, "tiny")
	eventually(t, "a knows the model", func() bool { m, err := a.catalog.Model("tiny"); return err == nil && m.ID != "" })
	for _, unloads := range []daemon{a, b} {
		if _, err := b.client.Load(t.Context(), ui.LoadRequest{Model: "tiny"}); err != nil { // once by hand, and scale.max is 1 from then on
			t.Fatal(err)
		}
		release := a.wants.hold(wanted{"tiny", a.unloadedAt(t, "tiny")}, 1, a.now())
		a.wake()
		eventually(t, "b serves it and hears that a wants it", func() bool { return b.serving("tiny") && b.hearsWants() })
		if _, err := unloads.client.Unload(t.Context(), ui.UnloadRequest{Model: "tiny"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "both know of the unload", func() bool { return b.unloadedAt(t, "tiny") == unloads.unloadedAt(t, "tiny") })
		eventually(t, "it ends on b", func() bool { return len(b.supervisor.Status()) == 0 })
		eventually(t, "a tells no want of before", func() bool { return len(a.view.Load().own.Wants) == 0 })
		again := func() {}
		eventually(t, "a hears that it is not loaded", func() bool {
			wants, err := a.Want("tiny")
			if err == nil {
				again = wants
			}
			return err == nil
		})
		eventually(t, "a want of now loads it", func() bool { return b.serving("tiny") })
		release()
		again()
	}
}

func (d daemon) hearsWants() bool {
	return slices.ContainsFunc(d.view.Load().nodes, func(n mesh.Node) bool { return len(n.Presence.Wants) > 0 })
}

func (d daemon) unloadedAt(t *testing.T, model string) uint64 {
	t.Helper()
	m, err := d.catalog.Model(model)
	if err != nil {
		t.Fatal(err)
	}
	return m.Unloaded
}

// TestARequestThatWaitsIsToldOfAnUnload, on another node than it waits on, and not
// left alone with a model that nobody loads any more.
func TestARequestThatWaitsIsToldOfAnUnload(t *testing.T) {
	a, b := pair(t)
	if _, err := b.client.Pull(t.Context(), ui.PullRequest{Source: simFile(t, `{"llmgw_sim":1,"load_ms":600000}`), As: "slow"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Load(t.Context(), ui.LoadRequest{Model: "slow"}); err != nil {
		t.Fatal(err)
	}
	key, err := a.client.NewKey(t.Context(), ui.KeyRequest{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a expects it", func() bool { m, err := a.catalog.Model("slow"); return err == nil && a.view.Load().route(m).Loadable })
	type answer struct {
		status int
		body   string
	}
	answers := make(chan answer, 1)
	go func() {
		status, body := a.ask(t, key.Key, http.MethodPost, "/v1/chat/completions", `{"model":"slow","messages":[{"role":"user","content":"x"}]}`)
		answers <- answer{status, body}
	}()
	eventually(t, "b hears that a waits", b.hearsWants)
	if _, err := b.client.Unload(t.Context(), ui.UnloadRequest{Model: "slow"}); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "unloaded while requests waited") {
		t.Errorf("the request got %d %s", got.status, got.body)
	}
	eventually(t, "it ends on b", func() bool { return len(b.supervisor.Status()) == 0 })
	eventually(t, "a new request may wait for it", func() bool { m, _ := a.catalog.Model("slow"); return a.view.Load().route(m).Loadable })
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
