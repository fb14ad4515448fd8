package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"llmgw/mesh/catalog"
)

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

func TestKilledEngineComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	before := r.ready()
	first := r.pidfile()
	kill(t, before.PID, syscall.SIGKILL)
	r.until("another process is ready", func() bool {
		s := r.Status()[0]
		return s.State == catalog.ReplicaReady && s.PID != before.PID
	})
	got, second := r.Status()[0], r.pidfile()
	if got.Restarts != 1 || second.Key == first.Key || second.Port == first.Port {
		t.Errorf("restarts %d; key or port were used again", got.Restarts)
	}
}

func TestDeadEngineIsNotATarget(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, func(c *Config) { c.Restart.Base, c.Restart.Max = time.Hour, time.Hour })
	pid := r.ready().PID
	kill(t, pid, syscall.SIGKILL)
	s := r.state(catalog.ReplicaBackoff)
	if !strings.Contains(s.Reason, "signal: killed") || s.PID != 0 {
		t.Errorf("%+v", s)
	}
	if _, _, err := r.Acquire("org/sim:1"); !errors.Is(err, ErrNotHere) {
		t.Errorf("acquire: %v", err)
	}
}

func TestCrashLoopIsQuarantined(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1,"fail":"exit","exit_after_ms":60}`, func(c *Config) { c.Restart.EarlyLimit = c.Restart.Limit })
	r.ensure(r.shard())
	s := r.state(catalog.ReplicaQuarantined)
	if s.Restarts != 3 || !strings.Contains(s.Reason, "exit status 134") {
		t.Errorf("%+v", s)
	}
	if !slices.Contains(s.LastLines, "fatal error: simulated exit") {
		t.Errorf("last lines %q", s.LastLines)
	}
	if _, err := os.Stat(filepath.Join(r.replicaDir(), pidfileName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pidfile is left: %v", err)
	}

	r.model(`{"llmgw_sim":1}`)
	r.ensure(r.shard()) // the same wish changes nothing
	if s := r.Status()[0]; s.State != catalog.ReplicaQuarantined {
		t.Errorf("left quarantine by itself: %+v", s)
	}
	r.Retry("org/sim:1", 0)
	if s := r.state(catalog.ReplicaReady); len(s.LastLines) != 0 {
		t.Errorf("old lines are shown of a good engine: %q", s.LastLines)
	}
}

func TestQuarantineEndsWithAChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*catalog.Shard){
		"new epoch":   func(s *catalog.Shard) { s.Epoch++ },
		"new profile": func(s *catalog.Shard) { s.Profile.Context = 777 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, `{"llmgw_sim":1,"fail":"load"}`, nil)
			r.ensure(r.shard())
			s := r.state(catalog.ReplicaQuarantined)
			if s.Restarts != 2 || !slices.Contains(s.LastLines, "exiting due to model loading error") {
				t.Errorf("%+v", s)
			}
			r.model(`{"llmgw_sim":1}`)
			changed := r.shard()
			change(&changed)
			r.ensure(changed)
			r.state(catalog.ReplicaReady)
		})
	}
}

func TestQuarantinedReplicaCanBeReleased(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1,"fail":"load"}`, nil)
	r.ensure(r.shard())
	r.state(catalog.ReplicaQuarantined)
	r.Release("org/sim:1", 0, "not wanted")
	r.until("forgotten", func() bool { return len(r.Status()) == 0 })
}

func TestSlowLoadWithProgressIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1,"load_ms":1600}`, func(c *Config) { c.Timing.Stall = 500 * time.Millisecond })
	r.ensure(r.shard())
	r.state(catalog.ReplicaLoading)
	if s := r.state(catalog.ReplicaReady); s.Restarts != 0 {
		t.Errorf("%d restarts", s.Restarts)
	}
}

func TestStalledLoadIsEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1,"fail":"stall"}`, func(c *Config) { c.Timing.Stall = 200 * time.Millisecond })
	r.ensure(r.shard())
	pid := r.state(catalog.ReplicaLoading).PID
	s := r.state(catalog.ReplicaQuarantined)
	if !strings.Contains(s.Reason, "load stands still") {
		t.Errorf("reason %q", s.Reason)
	}
	r.dead(pid)
}

func TestHealthyIsNotReady(t *testing.T) {
	t.Parallel()
	for fault, reason := range map[string]string{
		"wrong_name": `engine serves ["Org/Sim:1-other"], not "Org/Sim:1"`,
		"token":      "ask for one token: status 500",
	} {
		t.Run(fault, func(t *testing.T) {
			r := newRig(t, `{"llmgw_sim":1,"fail":"`+fault+`"}`, nil)
			r.ensure(r.shard())
			if s := r.state(catalog.ReplicaQuarantined); !strings.Contains(s.Reason, reason) {
				t.Errorf("reason %q", s.Reason)
			}
		})
	}
}

func TestHungEngineIsReplacedUnlessBusy(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1}`, func(c *Config) {
		c.Timing.Probe = 30 * time.Millisecond
		c.Timing.Grace = 50 * time.Millisecond
	})
	pid := r.ready().PID
	_, release, err := r.Acquire("org/sim:1")
	if err != nil {
		t.Fatal(err)
	}
	kill(t, pid, syscall.SIGSTOP)
	time.Sleep(400 * time.Millisecond) // more than twice the limit: the claim is that nothing happens
	if s := r.Status()[0]; s.PID != pid || s.State != catalog.ReplicaReady {
		t.Errorf("a busy engine was touched: %+v", s)
	}
	release()
	r.until("replaced", func() bool { s := r.Status()[0]; return s.State == catalog.ReplicaReady && s.PID != pid })
	r.dead(pid)
}

func TestWhatCannotStartSaysWhyAndRecovers(t *testing.T) {
	missing := func(string, string) (string, bool) { return "", false }
	t.Run("engine not installed", func(t *testing.T) {
		r := newRig(t, `{"llmgw_sim":1}`, func(c *Config) { c.Binary = missing })
		r.ensure(r.shard())
		if s := r.state(catalog.ReplicaFailed); !strings.Contains(s.Reason, "llmgw engines install sim") {
			t.Errorf("reason %q", s.Reason)
		}
		r.Release("org/sim:1", 0, "")
		r.until("forgotten", func() bool { return len(r.Status()) == 0 })
	})
	t.Run("weights come later", func(t *testing.T) {
		r := newRig(t, `{"llmgw_sim":1}`, nil)
		if err := os.Rename(r.weights, r.weights+".away"); err != nil {
			t.Fatal(err)
		}
		r.ensure(r.shard())
		if s := r.state(catalog.ReplicaFailed); !strings.Contains(s.Reason, "find weights") || s.Restarts != 0 {
			t.Errorf("%+v", s)
		}
		if err := os.Rename(r.weights+".away", r.weights); err != nil {
			t.Fatal(err)
		}
		r.state(catalog.ReplicaReady)
	})
	for name, edit := range map[string]func(*catalog.Shard){
		"forbidden flag": func(s *catalog.Shard) { s.Profile.Args = []string{"--host", "0.0.0.0"} },
		"unknown engine": func(s *catalog.Shard) { s.Profile.Engine = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, `{"llmgw_sim":1}`, nil)
			s := r.shard()
			edit(&s)
			r.ensure(s)
			r.state(catalog.ReplicaFailed)
			s = r.shard()
			s.Epoch++
			r.ensure(s)
			r.state(catalog.ReplicaReady)
		})
	}
}

func TestCrashTakesTheEnginesChildrenAlong(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1}`, withShell)
	pid := r.ready().PID
	old := r.pidfile().group()
	if n := len(old.members()); n < 4 {
		t.Fatalf("only %d processes", n)
	}
	kill(t, pid, syscall.SIGKILL)
	r.until("another process is ready", func() bool { s := r.Status()[0]; return s.State == catalog.ReplicaReady && s.PID != pid })
	if left := old.members(); len(left) != 0 {
		t.Errorf("left of the old run: %+v", left)
	}
}

func TestEngineThatEndsAtOnceIsACrash(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, func(c *Config) {
		c.Binary = func(string, string) (string, bool) { return "/bin/false", true }
	})
	r.ensure(r.shard())
	if s := r.state(catalog.ReplicaQuarantined); !strings.Contains(s.Reason, "exit status 1") {
		t.Errorf("reason %q", s.Reason)
	}
}
