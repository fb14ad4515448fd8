package process

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"llmgw/mesh/catalog"
)

// recoverRig opens a supervisor on the same directory and recovers.
func (r *rig) recover() {
	r.t.Helper()
	r.reopen()
	if err := r.Recover(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func TestEngineIsAdopted(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1,"tokens":3}`, nil)
	before := r.ready()
	r.recover()
	list := r.Status()
	if len(list) != 1 || list[0].State != catalog.ReplicaReady || list[0].PID != before.PID || !list[0].Adopted ||
		list[0].Epoch != 7 || list[0].Slots != before.Slots || list[0].Context != before.Context {
		t.Fatalf("right after recovery: %+v", list)
	}
	target, release, err := r.Acquire("org/sim:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t.Context(), target, `{"prompt":"x"}`); err != nil {
		t.Error(err)
	}
	release()

	t.Run("and kept for the same shard", func(t *testing.T) {
		same := r.shard()
		same.Epoch = 8
		r.ensure(same)
		r.until("epoch 8", func() bool { return r.pidfile().Epoch == 8 })
		if s := r.Status()[0]; s.PID != before.PID || s.State != catalog.ReplicaReady {
			t.Errorf("%+v", s)
		}
	})
	t.Run("and restarted when it ends", func(t *testing.T) {
		kill(t, before.PID, syscall.SIGKILL)
		r.until("another process is ready", func() bool {
			s := r.Status()[0]
			return s.State == catalog.ReplicaReady && s.PID != before.PID && !s.Adopted
		})
	})
}

func TestAdoptedEngineIsReplacedWhenItsProfileChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	before := r.ready()
	r.recover()
	changed := r.shard()
	changed.Profile.Context = 100
	r.ensure(changed)
	r.until("replaced", func() bool { s := r.Status()[0]; return s.State == catalog.ReplicaReady && s.Context == 100 })
	r.dead(before.PID)
}

func TestAdoptedEngineIsReleased(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	before := r.ready()
	r.recover()
	r.Release("org/sim:1", 0, "")
	r.until("forgotten", func() bool { return len(r.Status()) == 0 })
	r.dead(before.PID)
}

func TestLoadGoesOnOverARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1,"load_ms":600}`, nil)
	r.ensure(r.shard())
	pid := r.state(catalog.ReplicaLoading).PID
	r.recover()
	if s := r.state(catalog.ReplicaReady); s.PID != pid || !s.Adopted || s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
}

// TestDaemonIsKilled is the case for which adoption exists: the engine's parent
// is gone without a word.
func TestDaemonIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	daemon := exec.Command(os.Args[0], "test-daemon", r.dir, r.weights)
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = daemon.Wait() // killed: its status says nothing
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "ready ")))
	if err != nil {
		t.Fatal(err)
	}
	r.recover()
	if list := r.Status(); len(list) != 1 || list[0].PID != pid || list[0].State != catalog.ReplicaReady {
		t.Fatalf("engine %d, status %+v", pid, list)
	}
	kill(t, pid, syscall.SIGKILL)
	r.until("restarted", func() bool { s := r.Status()[0]; return s.State == catalog.ReplicaReady && s.PID != pid })
}

// bystander is a process that has nothing to do with us.
func bystander(t *testing.T, env ...string) (pid int, start uint64) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be what the test ended
		_ = cmd.Wait()
	})
	// Its environment can be read no sooner than its command line.
	if _, err := argvHashOfNew(cmd.Process.Pid, nil); err != nil {
		t.Fatal(err)
	}
	s, err := readStat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, s.start
}

func alive(pid int) bool {
	s, err := readStat(pid)
	return err == nil && s.alive()
}

func TestStalePidfileHarmsNobody(t *testing.T) {
	t.Parallel()
	good := func(r *rig) record {
		print, err := fingerprint(r.shard())
		if err != nil {
			t.Fatal(err)
		}
		return record{Boot: r.boot, Run: "feedfacefeedface", Port: 21999, Key: "k", Fingerprint: print, Ready: true, Shard: r.shard()}
	}
	for _, tc := range []struct {
		name string
		edit func(rec *record, pid int, start uint64)
	}{
		{"number was given to another process", func(rec *record, pid int, start uint64) { rec.PID, rec.Start = pid, start-1 }},
		{"same number and time, other command line", func(rec *record, pid int, start uint64) {
			rec.PID, rec.Start, rec.ArgvHash = pid, start, strings.Repeat("0", 64)
		}},
		{"other boot", func(rec *record, pid int, start uint64) {
			rec.PID, rec.Start, rec.Boot = pid, start, "another"
			rec.ArgvHash, _ = argvHash(pid)
		}},
		{"process is gone", func(rec *record, _ int, _ uint64) { rec.PID, rec.Start = 1<<22-1, 1 }},
		{"foreign cgroup", func(rec *record, pid int, start uint64) {
			rec.PID, rec.Start, rec.Cgroup = pid, start-1, "/sys/fs/cgroup"
		}},
		{"never started", func(*record, int, uint64) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, `{"llmgw_sim":1}`, nil)
			pid, start := bystander(t, "A=b")
			rec := good(r)
			tc.edit(&rec, pid, start)
			if err := os.MkdirAll(r.replicaDir(), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := writePidfile(r.replicaDir(), rec); err != nil {
				t.Fatal(err)
			}
			r.recover()
			if !alive(pid) {
				t.Error("a stranger was ended")
			}
			if list := r.Status(); len(list) != 0 {
				t.Errorf("adopted %+v", list)
			}
			if _, err := os.Stat(filepath.Join(r.replicaDir(), pidfileName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("pidfile is left: %v", err)
			}
		})
	}
}

func TestEngineWithAnotherKeyIsEnded(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	pid := r.ready().PID
	rec := r.pidfile()
	rec.Key = "not the one"
	if err := writePidfile(r.replicaDir(), rec); err != nil {
		t.Fatal(err)
	}
	r.recover()
	if list := r.Status(); len(list) != 0 {
		t.Errorf("adopted %+v", list)
	}
	r.dead(pid)
}

func TestProcessOfAHalfWrittenStartIsFound(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	pid, _ := bystander(t, runVariable+"=0123456789abcdef")
	other, _ := bystander(t, runVariable+"=0123456789abcde0")
	if err := os.MkdirAll(r.replicaDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writePidfile(r.replicaDir(), record{Boot: r.boot, Run: "0123456789abcdef", Shard: r.shard()}); err != nil {
		t.Fatal(err)
	}
	r.recover()
	if alive(pid) || !alive(other) {
		t.Errorf("ours lives: %v, the other lives: %v", alive(pid), alive(other))
	}
}

func TestChildrenOfADeadEngineAreReaped(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"llmgw_sim":1}`, withShell)
	pid := r.ready().PID
	group := r.pidfile().group()
	if err := r.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	kill(t, pid, syscall.SIGKILL)
	r.dead(pid)
	if len(group.members()) == 0 {
		t.Fatal("no child is left to reap")
	}
	r.open(func(c *Config) { c.Timing.Grace = c.Timing.Poll })
	if err := r.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := group.members(); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestPidfileOfANewerVersionIsLeftAlone(t *testing.T) {
	r := newRig(t, `{"llmgw_sim":1}`, nil)
	if err := os.MkdirAll(r.replicaDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.replicaDir(), pidfileName)
	if err := os.WriteFile(path, []byte(`{"version":99,"pid":"?"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Recover(t.Context()); !errors.Is(err, errNewerPidfile) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("pidfile: %v", err)
	}
}

func TestBrokenPidfileIsDropped(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"version":1}`, `{"version":1,"run":"x","pid":1,"shard":{"Model":{"id":"m"}}}`} {
		r := newRig(t, `{"llmgw_sim":1}`, nil)
		if err := os.MkdirAll(r.replicaDir(), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(r.replicaDir(), pidfileName)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Recover(t.Context()); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: pidfile is left", text)
		}
		r.ready()
	}
}
