package lab

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"llmgw/node"

	"golang.org/x/sys/unix"
)

// namePrefix begins the name of everything a lab makes outside its namespaces.
const namePrefix = "llmgwlab-"

// owner is the process that made a lab, as its names tell.
type owner struct {
	pid   int
	start uint64
}

func self() (owner, error) {
	p, err := ReadProcess(os.Getpid())
	return owner{pid: p.PID, start: p.Start}, err
}

func (o owner) prefix() string { return fmt.Sprintf("%s%d-%d-", namePrefix, o.pid, o.start) }

// ownerOf reads a name's owner; false for a name that is not ours.
func ownerOf(name string) (owner, bool) {
	rest, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return owner{}, false
	}
	parts := strings.SplitN(rest, "-", 3)
	if len(parts) != 3 {
		return owner{}, false
	}
	pid, err := strconv.Atoi(parts[0])
	if err != nil || pid <= 0 {
		return owner{}, false
	}
	start, err := strconv.ParseUint(parts[1], 10, 64)
	return owner{pid: pid, start: start}, err == nil
}

// sweepDead removes what dead test processes left. What a living one owns, and
// every name that is not ours, stays as it is.
func sweepDead() error {
	return sweep(func(name string) bool {
		o, ok := ownerOf(name)
		return ok && !alive(o.pid, o.start)
	})
}

// sweepPrefix removes one lab.
func sweepPrefix(prefix string) error {
	if _, ok := ownerOf(prefix); !ok {
		return fmt.Errorf("sweep %q: not the name of a lab", prefix)
	}
	return sweep(func(name string) bool { return strings.HasPrefix(name, prefix) })
}

func sweep(ours func(name string) bool) error {
	var errs []error
	for _, name := range namesIn(namespaceDir, ours) {
		errs = append(errs, removeNamespace(name))
	}
	for _, name := range namesIn(os.TempDir(), ours) {
		removeSockets(filepath.Join(os.TempDir(), name))
		errs = append(errs, removeDir(filepath.Join(os.TempDir(), name)))
	}
	return errors.Join(errs...)
}

func namesIn(dir string, ours func(string) bool) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // no such directory: nothing of ours in it
	}
	var names []string
	for _, e := range entries {
		if ours(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// removeSockets removes the admin sockets of killed daemons, which lie in the
// machine's runtime directory under a hash of the state directory.
func removeSockets(dir string) {
	states, _ := filepath.Glob(filepath.Join(dir, "*", stateName))
	for _, state := range append(states, dir) { // a warmer's state is the directory itself
		if socket, err := node.SocketPath(state); err == nil {
			_ = os.Remove(socket)
		}
	}
}

// removeDir unmounts whatever a test mounted under dir before it removes it:
// removing through a mount would empty somebody else's file system.
func removeDir(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	for _, m := range mountsUnder(string(mounts), dir) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove lab directory: %w", err)
	}
	return nil
}

// mountsUnder lists the mount points below dir, the deepest first.
func mountsUnder(mountinfo, dir string) []string {
	var under []string
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			under = append(under, f[4])
		}
	}
	slices.SortFunc(under, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return under
}

// reapVariable tells a re-executed test binary to be a reaper; see Main.
const reapVariable = "LLMGW_LAB_REAP"

// reaper is a child process that removes the lab once its standard input ends,
// which the kernel sees to however the test process dies.
type reaper struct {
	cmd  *exec.Cmd
	hold io.Closer
}

func startReaper(prefix string) (*reaper, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	// Should the binary's TestMain not call Main, this runs no test and ends.
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), reapVariable+"="+prefix)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // a signal to our group spares it
	cmd.Stderr = os.Stderr
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	return &reaper{cmd: cmd, hold: hold}, nil
}

// release lets the reaper do its work and waits for it.
func (r *reaper) release() error {
	_ = r.hold.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("reaper: %w", err)
	}
	return nil
}

// reap is the reaper's whole life.
func reap(prefix string, hold io.Reader) int {
	_, _ = io.Copy(io.Discard, hold)
	if err := sweepPrefix(prefix); err != nil {
		fmt.Fprintln(os.Stderr, "lab reaper:", err)
		return 1
	}
	return 0
}
