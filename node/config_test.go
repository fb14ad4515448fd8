package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"llmgw/ui"
)

func environ(pairs map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := pairs[name]; return v, ok }
}

func writeConfig(t *testing.T, dir, content string) string {
	t.Helper()
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func find(t *testing.T, settings []ui.Setting, name string) ui.Setting {
	t.Helper()
	for _, s := range settings {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no setting %q", name)
	return ui.Setting{}
}

func TestConfigPrecedence(t *testing.T) {
	dir := t.TempDir()
	path := writeConfig(t, dir, "version: 1\napi: 127.0.0.1:1\nmesh: 127.0.0.1:2\nname: from-file\npeers: [a:1, b:2]\ndiscovery:\n  lan: false\nengines:\n  ports: 9000-9001\n")
	cfg, settings, warnings, err := LoadConfig(Sources{
		Flags: map[string]string{"state_dir": dir, "api": "127.0.0.1:7"},
		Env:   environ(map[string]string{"LLMGW_API": "127.0.0.1:8", "LLMGW_MESH": "127.0.0.1:9", "LLMGW_NAME": ""}),
	})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	for name, want := range map[string][2]string{
		"api":           {"127.0.0.1:7", "flag --api"},
		"mesh":          {"127.0.0.1:9", "env LLMGW_MESH"},
		"name":          {"from-file", "file " + path}, // an empty variable sets nothing
		"peers":         {"a:1,b:2", "file " + path},
		"engines.ports": {"9000-9001", "file " + path},
		"log.level":     {"info", "default"},
	} {
		if s := find(t, settings, name); s.Value != want[0] || s.Origin != want[1] {
			t.Errorf("%s is %q from %q, want %q from %q", name, s.Value, s.Origin, want[0], want[1])
		}
	}
	if cfg.LAN || !cfg.AutoJoin || cfg.EnginePorts != [2]int{9000, 9001} || len(cfg.Peers) != 2 {
		t.Errorf("got %+v", cfg)
	}
}

func TestConfigUnknownKeyWarns(t *testing.T) {
	dir := t.TempDir()
	writeConfig(t, dir, "version: 1\nengnies:\n  ports: 1-2\n")
	_, _, warnings, err := LoadConfig(Sources{Flags: map[string]string{"state_dir": dir}, Env: environ(nil)})
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], `"engnies.ports"`) {
		t.Errorf("got %v, %v", warnings, err)
	}
}

func TestConfigRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		env  map[string]string
		want string
	}{
		"no version":      {file: "api: :1\n", want: "version: 1"},
		"other version":   {file: "version: 2\n", want: "it says 2"},
		"no YAML":         {file: "version: [\n", want: "read config file"},
		"address":         {file: "version: 1\napi: here\n", want: "is not ADDR:PORT"},
		"port":            {env: map[string]string{"LLMGW_MESH": ":70000"}, want: "0 to 65535"},
		"boolean":         {env: map[string]string{"LLMGW_DISCOVERY_LAN": "maybe"}, want: "neither true nor false"},
		"ports":           {env: map[string]string{"LLMGW_ENGINE_PORTS": "9-8"}, want: "FIRST-LAST"},
		"log format":      {env: map[string]string{"LLMGW_LOG_FORMAT": "xml"}, want: "auto, text, json"},
		"says the origin": {env: map[string]string{"LLMGW_LOG_LEVEL": "loud"}, want: "from env LLMGW_LOG_LEVEL"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.file != "" {
				writeConfig(t, dir, tc.file)
			}
			_, _, _, err := LoadConfig(Sources{Flags: map[string]string{"state_dir": dir}, Env: environ(tc.env)})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestConfigNamedFileMustBeThere(t *testing.T) {
	_, _, _, err := LoadConfig(Sources{Flags: map[string]string{"state_dir": t.TempDir()}, Env: environ(nil), File: "/nowhere/config.yaml"})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
