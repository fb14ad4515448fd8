package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"llmgw/engines/sim"
	"llmgw/mesh/catalog"
)

// streaming starts a request that goes on for a while and waits until the
// engine has it.
func (r *rig) streaming(tokens int) <-chan error {
	r.t.Helper()
	target, release, err := r.Acquire("org/sim:1")
	if err != nil {
		r.t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		defer release()
		body, err := ask(context.Background(), target, `{"prompt":"x","stream":false}`)
		if err == nil && !strings.Contains(body, sim.Text(tokens)) {
			err = errors.New("incomplete: " + body)
		}
		result <- err
	}()
	r.until("request in flight", func() bool { return r.Status()[0].InFlight == 1 })
	return result
}

func TestReleaseDrainsThenStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1,"tokens":30,"interval_ms":10}`, nil)
	pid := r.ready().PID
	group := r.pidfile().group()
	result := r.streaming(30)
	r.Release("org/sim:1", 0, "unloaded")
	if s := r.state(catalog.ReplicaStopping); s.Reason != "unloaded" || s.PID != pid {
		t.Errorf("%+v", s)
	}
	if _, _, err := r.Acquire("org/sim:1"); !errors.Is(err, ErrStopping) {
		t.Errorf("acquire while stopping: %v", err)
	}
	if err := <-result; err != nil {
		t.Errorf("request was cut: %v", err)
	}
	r.until("forgotten", func() bool { return len(r.Status()) == 0 })
	if left := group.members(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
	if _, err := os.Stat(filepath.Join(r.replicaDir(), pidfileName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pidfile is left: %v", err)
	}
}

func TestDrainHasAnEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1,"tokens":10000,"interval_ms":10}`, func(c *Config) { c.Timing.Drain = 50 * time.Millisecond })
	r.ready()
	result := r.streaming(10000)
	r.Release("org/sim:1", 0, "unloaded")
	r.until("forgotten", func() bool { return len(r.Status()) == 0 })
	if err := <-result; err == nil {
		t.Error("request outlived its engine")
	}
}

func TestWantedAgainWhileStoppingStartsAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1,"tokens":20,"interval_ms":10}`, nil)
	pid := r.ready().PID
	result := r.streaming(20)
	r.Release("org/sim:1", 0, "unloaded")
	r.state(catalog.ReplicaStopping)
	r.ensure(r.shard())
	if err := <-result; err != nil {
		t.Errorf("request was cut: %v", err)
	}
	r.until("another process is ready", func() bool {
		list := r.Status()
		return len(list) == 1 && list[0].State == catalog.ReplicaReady && list[0].PID != pid
	})
}

func TestStopEscalatesAndVerifies(t *testing.T) {
	t.Parallel()
	t.Run("engine ignores SIGTERM", func(t *testing.T) {
		r := newRig(t, `{"llmgw_sim":1,"fail":"ignore_term"}`, func(c *Config) { c.Timing.Grace = 50 * time.Millisecond })
		pid := r.ready().PID
		r.Release("org/sim:1", 0, "")
		r.until("forgotten", func() bool { return len(r.Status()) == 0 })
		r.dead(pid)
	})
	for _, cgroup := range []string{"", "none"} {
		t.Run("children ignore SIGTERM, cgroup "+cgroup, func(t *testing.T) {
			r := newRig(t, `{"llmgw_sim":1}`, func(c *Config) {
				withShell(c)
				c.CgroupRoot = cgroup
				c.Timing.Grace = 50 * time.Millisecond
			})
			r.ready()
			rec := r.pidfile()
			group := rec.group()
			if n := len(group.members()); n < 4 {
				t.Fatalf("only %d processes", n)
			}
			r.Release("org/sim:1", 0, "")
			r.until("forgotten", func() bool { return len(r.Status()) == 0 })
			if left := group.members(); len(left) != 0 {
				t.Errorf("left: %+v", left)
			}
			if _, err := os.Stat(rec.Cgroup); rec.Cgroup != "" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("cgroup is left: %v", err)
			}
		})
	}
}

func TestCloseWithStopIsHurriedByItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1,"tokens":10000,"interval_ms":10}`, nil)
	pid := r.ready().PID
	result := r.streaming(10000)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := r.Close(ctx, true); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if s, err := readStat(pid); err == nil && s.alive() {
		t.Error("engine lives")
	}
	if err := <-result; err == nil {
		t.Error("request outlived its engine")
	}
}

func TestReleaseWhileLoading(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1,"fail":"stall"}`, nil)
	r.ensure(r.shard())
	pid := r.state(catalog.ReplicaLoading).PID
	r.Release("org/sim:1", 0, "changed my mind")
	r.until("forgotten", func() bool { return len(r.Status()) == 0 })
	r.dead(pid)
}
