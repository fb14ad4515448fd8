package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cgroups makes a cgroup per run below the daemon's own, where cgroup v2 is
// mounted and writable. Everything else works without.
type cgroups struct {
	base string // empty: none
}

// openCgroups finds where this process may make cgroups. root is the mount of
// cgroup v2; empty: the two usual places are tried.
func openCgroups(root string) cgroups {
	if root == "none" {
		return cgroups{}
	}
	roots := []string{root}
	if root == "" {
		roots = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
	}
	own, err := ownCgroup()
	if err != nil {
		return cgroups{}
	}
	for _, r := range roots {
		base := filepath.Join(r, own)
		if _, err := os.Stat(filepath.Join(base, "cgroup.procs")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(r, "cgroup.controllers")); err == nil {
			return cgroups{base: base}
		}
	}
	return cgroups{}
}

// ownCgroup is this process's path in the v2 hierarchy. A daemon that was
// itself started inside a run's group would nest; it never is.
func ownCgroup() (string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("no cgroup v2 membership")
}

// cgroupPrefix begins the name of every cgroup that is ours.
const cgroupPrefix = "llmgw-engine-"

// make creates the cgroup of a run; empty when that is not possible.
func (c cgroups) make(run string) string {
	if c.base == "" {
		return ""
	}
	path := filepath.Join(c.base, cgroupPrefix+run)
	if err := os.Mkdir(path, 0o755); err != nil {
		return ""
	}
	return path
}

// cgroupPIDs are the processes in a cgroup.
func cgroupPIDs(path string) []int {
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cgroupKill ends everything in a cgroup at once (Linux 5.14 and later).
func cgroupKill(path string) {
	if path != "" {
		// Where the file is missing, the group and each member get the signal.
		_ = os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0o200)
	}
}

// cgroupRemove drops an emptied cgroup. The kernel may count the last member a
// moment longer, so a busy answer is tried again, for a second at most.
func cgroupRemove(path string) {
	for range 100 {
		if path == "" {
			return
		}
		if err := os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// sweepAge is how old an empty cgroup must be to count as forgotten: a run's
// process is in its cgroup within milliseconds.
const sweepAge = time.Minute

// sweep removes empty cgroups of runs that nobody knows any more, such as those
// of a state directory that was deleted. One with a process in it cannot be
// removed.
func (c cgroups) sweep(now time.Time) {
	if c.base == "" {
		return
	}
	dirs, err := filepath.Glob(filepath.Join(c.base, cgroupPrefix+"*"))
	if err != nil {
		return
	}
	for _, d := range dirs {
		if info, err := os.Stat(d); err == nil && now.Sub(info.ModTime()) > sweepAge {
			_ = os.Remove(d) // busy: it has an owner
		}
	}
}

// cgroupOOM counts the members that the kernel killed for memory.
func cgroupOOM(path string) int {
	if path == "" {
		return 0
	}
	b, err := os.ReadFile(filepath.Join(path, "memory.events"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			kills, _ := strconv.Atoi(n)
			return kills
		}
	}
	return 0
}
