package node

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"llmgw/ui"
)

func (d daemon) set(t *testing.T, name, value string) ui.SettingResult {
	t.Helper()
	r, err := d.client.SetSetting(t.Context(), ui.SettingRequest{Name: name, Value: &value})
	if err != nil {
		t.Fatalf("set %s: %v", name, err)
	}
	return r
}

func (d daemon) config(t *testing.T, name string) ui.Setting {
	t.Helper()
	list, err := d.client.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return find(t, list.Settings, name)
}

func TestMeshSettingsAreInForceAtOnceAndAfterARestart(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir)
	r := d.set(t, "log.level", "debug")
	if !r.Setting.Set || r.Setting.Here != "debug" || r.Setting.Origin != originMesh || len(r.Notes) != 0 {
		t.Errorf("got %+v", r)
	}
	if d.level.Level() != slog.LevelDebug {
		t.Errorf("the daemon logs at %s", d.level.Level())
	}
	// discovery.lan was given by flag, which wins, and that is said.
	r = d.set(t, "discovery.lan", "true")
	if r.Setting.Here != "false" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "flag --no-mdns") {
		t.Errorf("got %+v", r)
	}
	r = d.set(t, "metrics.public", "true")
	if r.Setting.Here != "false" || r.Setting.Pending != "true" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "llmgw restart") {
		t.Errorf("got %+v", r)
	}
	if code, _ := d.ask(t, "", "GET", "/metrics", ""); code != 401 {
		t.Errorf("before the restart /metrics answers %d", code)
	}
	soon := "soon"
	d.set(t, "router.prefix_ttl", "90s")
	if s := d.config(t, "router.prefix_ttl"); s.Value != "1m30s" || s.Origin != originMesh {
		t.Errorf("got %+v", s)
	}
	if _, err := d.client.SetSetting(t.Context(), ui.SettingRequest{Name: "router.prefix_ttl", Value: &soon}); err == nil || !strings.Contains(err.Error(), "30m") {
		t.Errorf("a duration that is none: %v", err)
	}
	d.stop()

	again := start(t, dir)
	if code, _ := again.ask(t, "", "GET", "/metrics", ""); code != 200 {
		t.Errorf("after the restart /metrics answers %d", code)
	}
	if s := again.config(t, "metrics.public"); s.Value != "true" || s.Origin != originMesh || s.Pending != "" {
		t.Errorf("got %+v", s)
	}
	if again.level.Level() != slog.LevelDebug {
		t.Errorf("the daemon logs at %s", again.level.Level())
	}
	if _, err := again.client.SetSetting(t.Context(), ui.SettingRequest{Name: "log.level"}); err != nil {
		t.Fatal(err)
	}
	if s := again.config(t, "log.level"); s.Value != "info" || s.Origin != originDefault {
		t.Errorf("after unset: %+v", s)
	}
}

func TestASettingOfAnotherNodeIsFollowed(t *testing.T) {
	d := start(t, t.TempDir())
	// What a peer wrote comes as a change of the store, with nobody asking here.
	if err := d.catalog.UpdateSettings(func(s map[string]string) error { s["log.level"] = "warn"; return nil }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the level follows", func() bool { return d.level.Level() == slog.LevelWarn })
}

func TestSettingRefusals(t *testing.T) {
	d := start(t, t.TempDir())
	for name, tc := range map[string]struct {
		value, want string
		status      int
	}{
		"log.level": {"loud", "debug, info", 400},
		"api":       {":1", "no setting", 404},
	} {
		_, err := d.client.SetSetting(t.Context(), ui.SettingRequest{Name: name, Value: &tc.value})
		refused := (*ui.APIError)(nil)
		if !errors.As(err, &refused) || refused.Status != tc.status || !strings.Contains(refused.Message, tc.want) || refused.Hint == "" {
			t.Errorf("%s: got %+v", name, err)
		}
	}
}

func TestEveryMeshSettingIsANodeSetting(t *testing.T) {
	d := start(t, t.TempDir())
	list, err := d.client.MeshSettings(t.Context())
	if err != nil || len(list.Settings) == 0 {
		t.Fatal(list, err)
	}
	for _, s := range list.Settings {
		if s.Origin == "" || s.Help == "" {
			t.Errorf("%s has no counterpart on a node: %+v", s.Name, s)
		}
		if turns := d.settings.turn[s.Name] != nil; turns == s.Restart {
			t.Errorf("%s: takes effect without a restart: %v, and says restart: %v", s.Name, turns, s.Restart)
		}
	}
}
