package process

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"llmgw/engines"
	"llmgw/engines/sim"
	"llmgw/mesh/catalog"
)

func TestStartToReady(t *testing.T) {
	var changes atomic.Int64
	r := newRig(t, `{"llmgw_sim":1,"tokens":4,"slots":2,"load_ms":30}`, func(c *Config) {
		c.OnChange = func() { changes.Add(1) }
	})
	got := r.ready()
	if changes.Load() == 0 {
		t.Error("nobody was told of a change")
	}
	want := catalog.ReplicaStatus{
		Model: "org/sim:1", Epoch: 7, Digest: "sha256:ab", Engine: "sim", Profile: "sim", State: catalog.ReplicaReady,
		Since: got.Since, Device: "cpu", Context: catalog.DefaultContext, Slots: 2, PID: got.PID,
		Lacks: engines.Sim{}.Lacks(catalog.Profile{}), LoadMS: got.LoadMS, LoadKnown: true,
	}
	if got.LoadMS < 30 { // load_ms
		t.Errorf("it took %d ms to load", got.LoadMS)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	target, release, err := r.Acquire("ORG/sim:1")
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Status()[0].InFlight; n != 1 {
		t.Errorf("%d in flight", n)
	}
	body, err := ask(t.Context(), target, `{"prompt":"x"}`)
	if err != nil || !strings.Contains(body, sim.Text(4)) {
		t.Errorf("%v: %s", err, body)
	}
	release()
	release()
	if n := r.Status()[0].InFlight; n != 0 {
		t.Errorf("%d in flight after two releases", n)
	}
	rec := r.pidfile()
	wantTarget := Target{
		URL: baseURL(rec.Port), Key: rec.Key, Model: "org/sim:1", Epoch: 7, Digest: "sha256:ab", Engine: "sim", Upstream: "Org/Sim:1",
	}
	if diff := cmp.Diff(wantTarget, target); diff != "" {
		t.Error(diff)
	}
	if _, err := ask(t.Context(), Target{URL: target.URL, Key: "other"}, `{"prompt":"x"}`); err == nil {
		t.Error("engine takes any key")
	}
}

func TestKeyIsNowhereButInPidfileAndEnvironment(t *testing.T) {
	t.Setenv("OF_THE_DAEMON", "not for engines")
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	pid := r.ready().PID
	rec := r.pidfile()
	if info, err := os.Stat(filepath.Join(r.replicaDir(), pidfileName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("pidfile: %v, %v", info.Mode(), err)
	}
	argv, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(r.replicaDir(), logName))
	if err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(r.Status())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"argv": argv, "log": log, "status": status} {
		if len(text) == 0 || strings.Contains(string(text), rec.Key) {
			t.Errorf("%s: key in %q", name, text)
		}
	}
	env, err := os.ReadFile(procPath(pid, "environ"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range strings.Split(strings.Trim(string(env), "\x00"), "\x00") {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"HOME", "LANG", "LLAMA_API_KEY", runVariable, "PATH", "TMPDIR"}, names); diff != "" {
		t.Error(diff)
	}
	cwd, err := os.Readlink(procPath(pid, "cwd"))
	if entries, dirErr := os.ReadDir(cwd); err != nil || dirErr != nil || len(entries) != 0 {
		t.Errorf("working directory %s: %v %v %v", cwd, entries, err, dirErr)
	}
	if s, err := readStat(pid); err != nil || s.session != pid || s.pgrp != pid {
		t.Errorf("session %d, group %d of %d: %v", s.session, s.pgrp, pid, err)
	}
}

func TestConcurrentEnsureStartsOne(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1,"load_ms":20}`, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 5 {
				if err := r.Ensure(r.shard()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	pid := r.state(catalog.ReplicaReady).PID
	var found []int
	for _, p := range listPIDs() {
		b, err := os.ReadFile(procPath(p, "cmdline"))
		if err == nil && strings.Contains(string(b), r.weights) {
			found = append(found, p)
		}
	}
	if !slices.Equal(found, []int{pid}) {
		t.Errorf("processes %v, replica's is %d", found, pid)
	}
	if n := r.Status()[0].Restarts; n != 0 {
		t.Errorf("%d restarts", n)
	}
}

func TestEpochAloneKeepsTheProcess(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	pid := r.ready().PID
	newer := r.shard()
	newer.Epoch = 9
	r.ensure(newer)
	r.until("epoch 9", func() bool { return r.Status()[0].Epoch == 9 && r.pidfile().Epoch == 9 })
	older := r.shard()
	older.Epoch = 8
	older.Profile.Context = 512
	r.ensure(older)
	target, release, err := r.Acquire("org/sim:1")
	if err != nil {
		t.Fatal(err)
	}
	release()
	if got := r.Status()[0]; got.PID != pid || got.Epoch != 9 || target.Epoch != 9 || got.State != catalog.ReplicaReady {
		t.Errorf("%+v, target %+v", got, target)
	}
}

func TestChangedProfileReplacesTheProcess(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	before := r.ready()
	changed := r.shard()
	changed.Profile.Context = 512
	r.ensure(changed)
	r.until("new process with the new context", func() bool {
		s := r.Status()[0]
		return s.State == catalog.ReplicaReady && s.Context == 512 && s.PID != before.PID
	})
	r.dead(before.PID)
	if n := r.Status()[0].Restarts; n != 0 {
		t.Errorf("a wanted change counts as %d crashes", n)
	}
}

func TestTakenPortIsNotUsed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	t.Run("seen before the start", func(t *testing.T) {
		r := newRig(t, `{"llmgw_sim":1}`, func(c *Config) { c.Ports = [2]int{taken, taken + 20} })
		r.ready()
		if p := r.pidfile().Port; p <= taken {
			t.Errorf("port %d", p)
		}
	})
	t.Run("taken after the look", func(t *testing.T) {
		r := newRig(t, `{"llmgw_sim":1}`, func(c *Config) { c.Ports = [2]int{taken, taken + 20} })
		r.ports.free = func(p int) bool { return p == taken || systemFree(p) }
		if s := r.ready(); s.Restarts != 1 {
			t.Errorf("%d restarts", s.Restarts)
		}
	})
	t.Run("no other port", func(t *testing.T) {
		r := newRig(t, `{"llmgw_sim":1}`, func(c *Config) { c.Ports = [2]int{taken, taken} })
		r.ensure(r.shard())
		if s := r.state(catalog.ReplicaQuarantined); !strings.Contains(s.Reason, "no free port") {
			t.Errorf("reason %q", s.Reason)
		}
	})
}

func TestAdmissionIsBounded(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1,"slots":1}`, nil)
	r.ready()
	var releases []func()
	for range admissionPerSlot {
		_, release, err := r.Acquire("org/sim:1")
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	if _, _, err := r.Acquire("org/sim:1"); !errors.Is(err, ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
	if _, _, ok := r.Target("other"); ok {
		t.Error("a model that is not here has a target")
	}
	for _, release := range releases {
		release()
	}
	if _, release, ok := r.Target("org/sim:1"); !ok {
		t.Error("released replica takes nothing")
	} else {
		release()
	}
}

func TestTheLessBusySlotIsTaken(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	r.ensure(r.shard())
	second := r.shard()
	second.Slot = 1
	r.ensure(second)
	r.until("two ready", func() bool {
		list := r.Status()
		return len(list) == 2 && list[0].State == catalog.ReplicaReady && list[1].State == catalog.ReplicaReady
	})
	a, releaseA, _ := r.Target("org/sim:1")
	b, releaseB, _ := r.Target("org/sim:1")
	defer releaseA()
	defer releaseB()
	if a.Slot == b.Slot || a.URL == b.URL {
		t.Errorf("both requests went to slot %d", a.Slot)
	}
}

func TestMetricsFollowTheReplicas(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	r := newRig(t, `{"llmgw_sim":1,"cache_tokens":1000}`, func(c *Config) { c.Metrics = reg })
	r.ready()
	r.until("it told its load", func() bool { return r.Status()[0].LoadKnown })
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	want := []string{
		"llmgw_replica_crashes_total", "llmgw_replica_kv_clears_total", "llmgw_replica_kv_tokens", "llmgw_replica_kv_use_ratio",
		"llmgw_replica_requests_in_flight", "llmgw_replica_requests_waiting", "llmgw_replica_state",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"no directory": func(c *Config) { c.Dir = "" },
		"no adapters":  func(c *Config) { c.Adapters = nil },
		"no lookup":    func(c *Config) { c.Binary = nil },
		"port range":   func(c *Config) { c.Ports = [2]int{9000, 8000} },
		"directory is a file": func(c *Config) {
			c.Dir = filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(c.Dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		cfg := testConfig(t.TempDir())
		edit(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	if err := r.Ensure(catalog.Shard{}); err == nil {
		t.Error("an empty shard was taken")
	}
	if err := r.Close(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := r.Ensure(r.shard()); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

// shellAdapter runs the simulated engine below a shell, with a helper process
// that ignores what ends its parent.
type shellAdapter struct{ engines.Sim }

func (a shellAdapter) Commands(s catalog.Shard, at engines.Endpoint) ([]engines.Command, error) {
	c, err := a.Sim.Commands(s, at)
	if err != nil {
		return nil, err
	}
	script := `trap '' TERM HUP; setsid sh -c 'trap "" TERM; sleep 1000; :' & sleep 1000 & trap - TERM; "$0" "$@"; exit $?`
	c[0].Args = append([]string{"-c", script, c[0].Path}, c[0].Args...)
	c[0].Path = "/bin/sh"
	return c, nil
}

func withShell(c *Config) {
	c.Adapters = map[string]engines.Adapter{catalog.EngineSim: shellAdapter{}}
}
