package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"llmgw/engines/sim"
	"llmgw/node"
)

// TestMain lets the test binary stand in for the daemon's own program, which
// is the simulated engine when it is called so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "engine-sim" {
		os.Exit(sim.Main(context.Background(), os.Args[2:], os.Environ(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// box is a real daemon and the command line that talks to it.
type box struct {
	dir  string
	stop func()
}

// newBox starts a daemon in this process; config is its file, which may be empty.
func newBox(t *testing.T, name, config string) *box {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	b := &box{dir: t.TempDir()}
	if config != "" {
		if err := os.WriteFile(filepath.Join(b.dir, "config.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.start(t, name)
	return b
}

func (b *box) start(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	src := node.Sources{Env: func(string) (string, bool) { return "", false }, Flags: map[string]string{
		"state_dir": b.dir, "name": name, "api": "127.0.0.1:0", "mesh": "127.0.0.1:0", "discovery.lan": "false", "log.format": "text",
	}}
	go func() { ended <- node.Up(ctx, src, node.Build{Version: "test"}, io.Discard, io.Discard) }()
	b.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
		b.stop = func() {}
	}
	t.Cleanup(func() { b.stop() })
	waitFor(t, "the daemon answers", func() bool { _, err := run("status", "--state-dir", b.dir); return err == nil })
}

// waitFor asks until it is true; the limit only bounds a failure.
func waitFor(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ask(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 60 s: %s", what)
		}
	}
}

// llmgw runs a command line that must end with the given exit code.
func (b *box) llmgw(t *testing.T, code int, args ...string) string {
	t.Helper()
	return b.feed(t, code, "", args...)
}

// feed is llmgw with something on stdin.
func (b *box) feed(t *testing.T, code int, stdin string, args ...string) string {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(slices.Clone(args), "--state-dir", b.dir))
	err := root.ExecuteContext(t.Context())
	if err != nil {
		explain(&out, err)
	}
	if got := exitCode(t.Context(), err); got != code {
		t.Fatalf("llmgw %s: exit %d, want %d: %s", strings.Join(args, " "), got, code, out.String())
	}
	return out.String()
}

// says fails unless text holds all the parts.
func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func TestSettingsVerbs(t *testing.T) {
	b := newBox(t, "attic", "")
	says(t, b.llmgw(t, 0, "settings"), "discovery.lan", "not set", "flag --no-mdns", "a restart brings it")
	says(t, b.llmgw(t, 0, "settings", "set", "log.level", "debug"), "the mesh says debug", "mesh setting")
	says(t, b.llmgw(t, 0, "settings", "set", "metrics.public", "true"), "llmgw restart")
	says(t, b.llmgw(t, 0, "config"), "mesh setting", "the mesh says true, which a restart brings")
	says(t, b.llmgw(t, 0, "settings", "ls", "--json"), `"schema_version": 1`, `"name": "log.level"`, `"value": "debug"`)
	says(t, b.llmgw(t, 0, "settings", "unset", "log.level", "--json"), `"set": false`)
	says(t, b.llmgw(t, exitUsage, "settings", "set", "log.level", "loud"), "is not one of debug")
	says(t, b.llmgw(t, exitNotFound, "settings", "set", "nothing", "1"), "no setting", "llmgw settings lists them")
	says(t, b.llmgw(t, exitUsage, "settings", "set", "log.level"), "needs a setting and a value")
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, err := run("completion", shell)
		if err != nil || !strings.Contains(out, "llmgw") || len(out) < 1000 {
			t.Errorf("completion for %s: %d bytes, %v", shell, len(out), err)
		}
	}
	if _, err := run("completion", "tcsh"); exitCode(t.Context(), err) != exitUsage {
		t.Errorf("a shell that is none: got %v", err)
	}
}

func TestCompletionOffersWhatTheDaemonKnows(t *testing.T) {
	b := newBox(t, "attic", "")
	t.Setenv("LLMGW_STATE_DIR", b.dir)
	for line, want := range map[string]string{"cordon ": "attic", "nodes demote ": "attic", "sett": "settings", "completion ": "fish"} {
		out, err := run(append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if err != nil {
			t.Errorf("complete %q: %v", line, err)
		}
		says(t, out, want)
	}
	t.Setenv("LLMGW_STATE_DIR", t.TempDir())
	if out, err := run("__complete", "load", ""); err != nil || strings.Contains(out, "rror") {
		t.Errorf("without a daemon: %v: %s", err, out)
	}
}

// tinyModel is a model file of the simulated engine.
func tinyModel(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.json")
	if err := os.WriteFile(path, []byte(`{"llmgw_sim":1,"tokens":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExportAndApplyVerbs(t *testing.T) {
	b := newBox(t, "attic", "")
	b.llmgw(t, 0, "pull", "file:"+tinyModel(t), "--as", "Tiny")
	b.llmgw(t, 0, "scale", "tiny", "--max", "2", "--idle", "10m", "--require", "zone=eu")
	b.llmgw(t, 0, "label", "attic", "zone=eu", "--location", "under the roof")
	b.llmgw(t, 0, "settings", "set", "log.level", "warn")
	document := b.llmgw(t, 0, "export")
	says(t, document, "Tiny:", "log.level: warn", "idle: 10m0s", "under the roof")
	says(t, b.feed(t, 0, document, "apply", "-f", "-"), "nothing to change")

	other := newBox(t, "attic", "")
	file := filepath.Join(t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, other.llmgw(t, 0, "apply", "-f", file, "--dry-run"), "+ model Tiny", "+ setting log.level: warn", "~ node attic: location: - -> under the roof", "nothing was written")
	says(t, other.llmgw(t, 0, "models"), "no models yet")
	says(t, other.llmgw(t, 0, "apply", "-f", file), "changes written")
	if again := other.llmgw(t, 0, "export"); again != document {
		t.Errorf("restored elsewhere:\n%s\nwant\n%s", again, document)
	}
	says(t, other.feed(t, 0, "version: 1\nmodels: {}\n", "apply", "-f", "-", "--prune", "--json"), `"action": "delete"`, `"name": "Tiny"`)
	says(t, other.feed(t, exitUsage, "version: 1\nmodels:\n  x:\n    statte: on\n", "apply", "-f", "-"), "line 4: field statte not found", "nothing was changed")
	says(t, other.llmgw(t, exitUsage, "apply"), "needs -f FILE")
	says(t, other.llmgw(t, exitFailed, "apply", "-f", "/nowhere/mesh.yaml"), "no such file")
}

func TestModelVerbs(t *testing.T) {
	b := newBox(t, "attic", "")
	b.llmgw(t, 0, "pull", "file:"+tinyModel(t), "--as", "Tiny")
	says(t, b.llmgw(t, exitConflict, "load", "tiny", "--on-demand"), "llmgw scale Tiny --max 1")
	says(t, b.llmgw(t, 0, "scale", "tiny", "--replicas", "0", "--max", "1", "--idle", "1h"), "0 wanted, up to 1 on demand", "after 1h0m0s without a request")
	says(t, b.llmgw(t, exitUsage, "scale", "tiny", "--replicas", "2", "--max", "1"), "below scale.min")
	says(t, b.llmgw(t, exitUsage, "load", "tiny", "--on-demand", "--node", "attic"), "--on-demand")
	says(t, b.llmgw(t, 0, "load", "tiny", "--on-demand", "--wait"), "Tiny is ready")
	says(t, b.llmgw(t, 0, "why", "tiny"), "requests ask for it", "serves it")
	says(t, b.llmgw(t, 0, "cordon", "attic", "--device", "cpu"), "cordoned: false", "cordoned devices: cpu")
	says(t, b.llmgw(t, exitNotFound, "cordon", "attic", "--device", "GPU-9"), "no device", "it has: cpu")
	says(t, b.llmgw(t, 0, "uncordon", "attic", "--device", "cpu"), "cordoned devices: -")
	says(t, b.llmgw(t, 0, "scale", "tiny", "--replicas", "1"), "1 wanted")
	says(t, b.llmgw(t, exitDegraded, "drain", "attic"), "keeps Tiny, slot 0: stays on attic, which is being drained")
	says(t, b.llmgw(t, 0, "nodes"), "self, drained")
	says(t, b.llmgw(t, 0, "uncordon", "attic"), "drained: false")
	says(t, b.llmgw(t, 0, "drain", "attic", "--no-wait"), "drained: true")
	says(t, b.llmgw(t, exitDegraded, "drain", "attic", "--json"), `"model": "Tiny"`, `"stays"`)
	says(t, b.llmgw(t, exitNotFound, "drain", "nowhere"), "nowhere")
	says(t, b.llmgw(t, 0, "uncordon", "attic"), "drained: false")
	says(t, b.llmgw(t, 0, "models", "rm", "tiny"), "Tiny is removed")
	says(t, b.llmgw(t, exitNotFound, "models", "rm", "tiny"), "no model is named")
	waitFor(t, "its engine ends", func() bool { return strings.Contains(b.llmgw(t, 0, "ps"), "nothing runs") })
}

func TestADeclaredModelIsShownWithItsFile(t *testing.T) {
	b := newBox(t, "attic", "version: 1\nmodels:\n  Tiny: {source: 'file:"+tinyModel(t)+"'}\n")
	file := filepath.Join(b.dir, "config.yaml")
	waitFor(t, "it is in the catalog", func() bool { return strings.Contains(b.llmgw(t, 0, "models"), "Tiny is declared in "+file+" on attic") })
	for _, line := range []string{"load tiny", "stop tiny", "scale tiny --max 3", "models rm tiny"} {
		says(t, b.llmgw(t, exitConflict, strings.Fields(line)...), file+" on attic", "llmgw restart")
	}
	says(t, b.llmgw(t, 0, "models", "--json"), `"declared_on": "attic"`)
}
