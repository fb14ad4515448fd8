package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"llmgw/engines"
	"llmgw/engines/sim"
	"llmgw/mesh/catalog"
)

// TestMain makes this binary the simulated engine when it is called as one: its
// environment is built from empty, so the arguments must tell. As "test-daemon"
// it is a daemon that a test can kill.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case engines.SimVerb:
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			defer stop()
			// Not os.Exit: under the race detector it sleeps for a second.
			syscall.Exit(sim.Main(ctx, os.Args[2:], os.Environ(), os.Stdout, os.Stderr))
		case "test-daemon":
			os.Exit(testDaemon(os.Args[2], os.Args[3]))
		}
	}
	os.Exit(m.Run())
}

// rig is a supervisor with short times.
type rig struct {
	*Supervisor
	t       *testing.T
	dir     string
	weights string
}

// portsUsed gives each supervisor ports of its own: tests run side by side.
var portsUsed atomic.Int32

func testConfig(dir string) Config {
	first := 21000 + int(portsUsed.Add(20))
	return Config{
		Dir: dir, Ports: [2]int{first, first + 19}, Adapters: engines.Adapters(),
		Binary: func(string, string) (string, bool) {
			self, err := os.Executable()
			return self, err == nil
		},
		Timing: Timing{
			Poll: 5 * time.Millisecond, Health: 20 * time.Millisecond, Load: 20 * time.Millisecond, Probe: time.Second, Stall: 2 * time.Second,
			Hung: 150 * time.Millisecond, Drain: 10 * time.Second, Grace: 2 * time.Second, Kill: 5 * time.Second,
			Retry: 10 * time.Millisecond,
		},
		Restart: Policy{Base: 5 * time.Millisecond, Max: 20 * time.Millisecond, Window: time.Minute, Limit: 3, EarlyLimit: 2},
	}
}

// newRig opens a supervisor and stops everything at the end of the test.
func newRig(t *testing.T, params string, edit func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "engines"), weights: filepath.Join(t.TempDir(), "weights")}
	r.model(params)
	r.open(edit)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.Close(ctx, true); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// open opens a supervisor on the rig's directory, as a daemon that comes back
// does.
func (r *rig) open(edit func(*Config)) {
	r.t.Helper()
	cfg := testConfig(r.dir)
	if edit != nil {
		edit(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Supervisor = s
}

// reopen leaves the engines running and opens another supervisor.
func (r *rig) reopen() {
	r.t.Helper()
	if err := r.Close(r.t.Context(), false); err != nil {
		r.t.Fatal(err)
	}
	r.open(nil)
}

func (r *rig) model(params string) {
	r.t.Helper()
	if err := os.WriteFile(r.weights, []byte(params), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) shard() catalog.Shard { return simShard(r.weights) }

func simShard(weights string) catalog.Shard {
	return catalog.Shard{
		Model: catalog.Model{
			ID: "org/sim:1", Name: "Org/Sim:1",
			Source: catalog.Source{Digest: "sha256:ab", Format: catalog.FormatSim},
		},
		Profile: catalog.Profile{ID: "sim", Engine: catalog.EngineSim},
		Epoch:   7, Weights: weights,
		Devices: []catalog.Device{{ID: "cpu", Kind: catalog.DeviceCPU}},
	}
}

func (r *rig) ensure(s catalog.Shard) {
	r.t.Helper()
	if err := r.Ensure(s); err != nil {
		r.t.Fatal(err)
	}
}

// until waits for a condition that the supervisor brings about.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("never happened: %s; status %+v", what, r.Status())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// state waits until the one replica is in a state and gives it.
func (r *rig) state(want catalog.ReplicaState) catalog.ReplicaStatus {
	r.t.Helper()
	var got catalog.ReplicaStatus
	r.until("state "+string(want), func() bool {
		list := r.Status()
		if len(list) != 1 {
			return false
		}
		got = list[0]
		return got.State == want
	})
	return got
}

// ready starts the rig's shard and waits for it.
func (r *rig) ready() catalog.ReplicaStatus {
	r.t.Helper()
	r.ensure(r.shard())
	return r.state(catalog.ReplicaReady)
}

func (r *rig) replicaDir() string { return filepath.Join(r.dir, dirName(idOf(r.shard()))) }

func (r *rig) pidfile() record {
	r.t.Helper()
	rec, err := readPidfile(r.replicaDir())
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// dead waits for the end of a process.
func (r *rig) dead(pid int) {
	r.t.Helper()
	r.until(fmt.Sprintf("end of process %d", pid), func() bool {
		s, err := readStat(pid)
		return err != nil || !s.alive()
	})
}

// ask sends one request through a target.
func ask(ctx context.Context, t Target, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+t.Key)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(b), err
}

// testDaemon runs one engine until it is killed.
func testDaemon(dir, weights string) int {
	s, err := New(testConfig(dir))
	if err == nil {
		err = s.Ensure(simShard(weights))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for {
		if list := s.Status(); len(list) == 1 && list[0].State == catalog.ReplicaReady {
			fmt.Println("ready", list[0].PID)
			select {}
		}
		time.Sleep(2 * time.Millisecond)
	}
}
