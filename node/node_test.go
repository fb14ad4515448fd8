package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"llmgw/engines/sim"
	"llmgw/fetch"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// TestMain lets the test binary stand in for the daemon's own program, which
// is the simulated engine when it is called so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "engine-sim" {
		os.Exit(sim.Main(context.Background(), os.Args[2:], os.Environ(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// daemon is a node that runs in this process on free loopback ports.
type daemon struct {
	*Node
	client *ui.Client
	log    *bytes.Buffer
	stop   func()
	ended  chan error
}

func start(t *testing.T, dir string) daemon {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	cfg, settings, _, err := LoadConfig(Sources{Env: environ(nil), Flags: map[string]string{
		"state_dir": dir, "name": "box", "api": "127.0.0.1:0", "mesh": "127.0.0.1:0", "discovery.lan": "false",
	}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.EnginePorts = freeRange(t)
	var log bytes.Buffer
	level := new(slog.LevelVar)
	n, err := New(cfg, settings, Build{Version: "test"}, NewLogger(&log, "text", level), level)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	socket, err := SocketPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := daemon{Node: n, client: ui.NewClient(socket), log: &log}
	d.ended = ended
	d.stop = func() {
		if ended == nil {
			return
		}
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, errRestart) {
			t.Errorf("the daemon ended with %v", err)
		}
		ended = nil
		d.client.Close()
	}
	t.Cleanup(d.stop)
	return d
}

// freeRange finds some neighbouring free ports for engines.
func freeRange(t *testing.T) [2]int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	first := l.Addr().(*net.TCPAddr).Port + 1
	return [2]int{first, min(first+20, 65535)}
}

// eventually asks until it is true; the limit only bounds a failure.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ask(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func (d daemon) ask(t *testing.T, key, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.public.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

func simFile(t *testing.T, params string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.json")
	if err := os.WriteFile(path, []byte(params), 0o600); err != nil {
		t.Fatal(err)
	}
	return "file:" + path
}

func TestOneBoxServesAndForgets(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir)
	ctx := t.Context()
	first, err := d.client.FirstKey(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if code, body := d.ask(t, first.Key, "GET", "/v1/models", ""); code != 200 || !strings.Contains(body, `"data":[]`) {
		t.Errorf("an empty box lists %d %s", code, body)
	}
	if _, err := d.client.Pull(ctx, ui.PullRequest{Source: simFile(t, `{"llmgw_sim":1,"tokens":3}`), As: "Tiny"}, nil); err != nil {
		t.Fatal(err)
	}
	chat := `{"model":"tiny","messages":[{"role":"user","content":"hi"}]}`
	if code, body := d.ask(t, first.Key, "POST", "/v1/chat/completions", chat); code != 503 || !strings.Contains(body, "llmgw load Tiny") {
		t.Errorf("a model that is not loaded answers %d %s", code, body)
	}
	if _, err := d.client.Load(ctx, ui.LoadRequest{Model: "TINY"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is ready", func() bool { code, _ := d.ask(t, first.Key, "POST", "/v1/chat/completions", chat); return code == 200 })
	if code, body := d.ask(t, first.Key, "POST", "/v1/chat/completions", `{"model":"nosuch","messages":[]}`); code != 404 || !strings.Contains(body, "Tiny") {
		t.Errorf("an unknown model answers %d %s", code, body)
	}
	if code, _ := d.ask(t, "", "POST", "/v1/chat/completions", chat); code != 401 {
		t.Errorf("without a key: %d", code)
	}
	stopped := "stopped"
	if _, err := d.client.SetModel(ctx, ui.ModelRequest{Model: "tiny", State: &stopped}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a stopped model refuses", func() bool {
		code, body := d.ask(t, first.Key, "POST", "/v1/chat/completions", chat)
		return code == 503 && strings.Contains(body, "stopped")
	})
	eventually(t, "its engine is gone", func() bool { return len(d.supervisor.Status()) == 0 })
	d.stop()
	if strings.Contains(d.log.String(), first.Key) {
		t.Error("the log holds the API key")
	}

	again := start(t, dir)
	if code, body := again.ask(t, first.Key, "GET", "/v1/models", ""); code != 200 || !strings.Contains(body, `"Tiny"`) {
		t.Errorf("after a restart: %d %s", code, body)
	}
	refused := (*ui.APIError)(nil)
	if _, err := again.client.FirstKey(ctx); !errors.As(err, &refused) || refused.Status != http.StatusConflict {
		t.Errorf("the first key was shown twice: %v", err)
	}
}

func TestAFailedLoadIsToldToTheClient(t *testing.T) {
	d := start(t, t.TempDir())
	key, err := d.client.NewKey(t.Context(), ui.KeyRequest{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.Pull(t.Context(), ui.PullRequest{Source: simFile(t, `{"llmgw_sim":1,"fail":"load"}`), As: "broken"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.Load(t.Context(), ui.LoadRequest{Model: "broken"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the failure is told", func() bool {
		code, body := d.ask(t, key.Key, "POST", "/v1/completions", `{"model":"broken","prompt":"x"}`)
		return code == 503 && strings.Contains(body, "box") && strings.Contains(body, "load")
	})
	status, err := d.client.Status(t.Context())
	if err != nil || status.Verdict != ui.VerdictDegraded {
		t.Errorf("status says %s, %v", status.Verdict, err)
	}
}

// awaitRestart takes the end of a run that asked for another, and starts that.
func (d daemon) awaitRestart(t *testing.T, dir string) daemon {
	t.Helper()
	err := <-d.ended
	if !errors.Is(err, errRestart) {
		t.Fatalf("the run ended with %v", err)
	}
	d.ended <- err // for stop
	d.stop()
	return start(t, dir)
}

func TestRestartKeepsTheEngine(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir)
	d.serve(t, "tiny")
	pid := d.supervisor.Status()[0].PID
	if _, err := d.client.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := d.awaitRestart(t, dir)
	eventually(t, "the engine is adopted", func() bool {
		s := again.supervisor.Status()
		return len(s) == 1 && s[0].State == catalog.ReplicaReady && s[0].Adopted && s[0].PID == pid
	})
	eventually(t, "it is the one that is assigned", func() bool { return again.settled.Load() && len(again.supervisor.Status()) == 1 })
}

func TestRotatedIdentityKeepsWhatTheMeshHas(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir)
	d.serve(t, "tiny")
	before := d.mesh.Self()
	res, err := d.client.RotateIdentity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !res.Admitted || res.ID == before {
		t.Errorf("got %+v", res)
	}
	again := d.awaitRestart(t, dir)
	if again.mesh.Self() != res.ID {
		t.Errorf("the box is %s, want %s", again.mesh.Self(), res.ID)
	}
	if files, _ := os.ReadDir(filepath.Join(dir, "identity")); len(files) != 2 {
		t.Errorf("the former key is not kept beside the new one: %v", files)
	}
	eventually(t, "the model is served under the new identity", func() bool {
		models, err := again.client.Models(t.Context())
		return err == nil && len(models.Models) == 1 && models.Models[0].Loaded
	})
}

// serve pulls and loads a simulated model and waits until it is ready.
func (d daemon) serve(t *testing.T, name string) {
	t.Helper()
	if _, err := d.client.Pull(t.Context(), ui.PullRequest{Source: simFile(t, `{"llmgw_sim":1,"tokens":3}`), As: name}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.Load(t.Context(), ui.LoadRequest{Model: name}); err != nil {
		t.Fatal(err)
	}
	eventually(t, name+" is ready", func() bool {
		s := d.supervisor.Status()
		return len(s) == 1 && s[0].State == catalog.ReplicaReady
	})
}

func TestDoorsOfThePublicPort(t *testing.T) {
	d := start(t, t.TempDir())
	for path, want := range map[string]int{
		"/healthz": 200, "/": 200, "/v1/models": 401, "/metrics": 401, "/admin/v1/status": 401, "/admin/v1/overview": 401, "//v1//models/": 401, "/nosuch": 404,
	} {
		if code, body := d.ask(t, "", "GET", path, ""); code != want {
			t.Errorf("GET %s: %d %s, want %d", path, code, body, want)
		}
	}
	eventually(t, "the box is ready", func() bool { code, _ := d.ask(t, "", "GET", "/readyz", ""); return code == 200 })
}

func TestATokenThatCannotBeIsBadInput(t *testing.T) {
	d := start(t, t.TempDir())
	for want, r := range map[string]ui.TokenRequest{
		"uses": {Uses: -1}, "life of": {TTLSeconds: 1 << 40}, "role": {Role: "king"},
	} {
		_, err := d.client.NewToken(t.Context(), r)
		refused := (*ui.APIError)(nil)
		if !errors.As(err, &refused) || refused.Status != 400 || refused.Code != "token_bad_options" || !strings.Contains(refused.Message, want) {
			t.Errorf("%+v: got %+v", r, err)
		}
	}
}

func TestPortInUseNamesTheFlag(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for flag, key := range map[string]string{"--api": "api", "--mesh": "mesh"} {
		flags := map[string]string{"state_dir": t.TempDir(), "api": "127.0.0.1:0", "mesh": "127.0.0.1:0", "discovery.lan": "false"}
		flags[key] = taken.Addr().String()
		cfg, settings, _, err := LoadConfig(Sources{Env: environ(nil), Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(cfg, settings, Build{}, slog.New(slog.DiscardHandler), new(slog.LevelVar))
		port := (*PortError)(nil)
		if !errors.As(err, &port) || port.Flag != flag || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s taken: got %v", key, err)
		}
		again, err := lockStateDir(flags["state_dir"])
		if err != nil {
			t.Fatalf("a failed start kept the directory: %v", err)
		}
		_ = again.Close()
	}
}

func TestOverviewHasNoNullLists(t *testing.T) {
	d := start(t, t.TempDir())
	overview, err := d.client.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(overview)
	if err != nil || strings.Contains(string(raw), `"models":null`) || !strings.Contains(string(raw), `"models":[]`) {
		t.Errorf("got %s, %v", raw, err)
	}
	if len(overview.Nodes) != 1 || overview.Nodes[0].Hardware.RAMTotal == nil {
		t.Errorf("got nodes %+v", overview.Nodes)
	}
}

func TestDeadNodesAreGoneAfterTheHoldDown(t *testing.T) {
	dead := deadSince{}
	now := time.Unix(1000, 0)
	nodes := nodesIn("live", "dead", "left")
	for _, step := range []struct {
		after time.Duration
		want  map[string]bool
	}{
		{0, map[string]bool{"live": false, "dead": false, "left": true}},
		{holdDown - time.Second, map[string]bool{"live": false, "dead": false, "left": true}},
		{holdDown, map[string]bool{"live": false, "dead": true, "left": true}},
	} {
		got := dead.gone(nodes, now.Add(step.after))
		for id, want := range step.want {
			if got[id] != want {
				t.Errorf("after %s %s is gone: %v", step.after, id, got[id])
			}
		}
	}
	// One that came back and dies again starts anew.
	dead.gone(nodesIn("live", "live", "left"), now.Add(holdDown))
	if dead.gone(nodes, now.Add(holdDown+time.Second))["dead"] {
		t.Error("an old death was counted again")
	}
}

func TestFixForTakesTheCommand(t *testing.T) {
	for reason, want := range map[string]string{
		"box: engine llamacpp is not installed (llmgw engines install llamacpp there)": "llmgw engines install llamacpp there",
		"box: needs 3 GiB": "",
	} {
		if got := fixFor(reason); got != want {
			t.Errorf("%q gives %q", reason, got)
		}
	}
}

func TestFetchesAreListedWhileTheyRun(t *testing.T) {
	var f fetches
	step, end := f.begin("file:/x", "m")
	step(progressOf("downloading", 5, 10))
	want := catalog.FetchStatus{Source: "file:/x", As: "m", Phase: "downloading", Done: 5, Total: 10}
	if got := f.list(); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v", got)
	}
	end()
	if got := f.list(); len(got) != 0 {
		t.Errorf("an ended download is listed: %+v", got)
	}
}

func nodesIn(states ...mesh.State) []mesh.Node {
	ids := []string{"live", "dead", "left"}
	nodes := make([]mesh.Node, len(states))
	for i, s := range states {
		nodes[i] = mesh.Node{ID: ids[i], State: s}
	}
	return nodes
}

func progressOf(phase string, done, total int64) fetch.Progress {
	return fetch.Progress{Phase: phase, Done: done, Total: total}
}
