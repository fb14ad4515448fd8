package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Ports that the daemon takes unless told otherwise.
const (
	APIPort  = 8770
	MeshPort = 8771
)

// Box is one machine of the lab.
type Box struct {
	lab    *Lab
	tb     testing.TB
	number int
	home   Segment
	ns     *namespace
	daemon *daemon

	cut, unplugged, lossy bool // what Heal has to undo

	Name string
	Dir  string   // the box's own files: state/, home/, daemon.log
	Args []string // added to `llmgw up`
	Env  []string // added to the environment of everything run on the box

	mu   sync.Mutex
	idle []interface{ CloseIdleConnections() }
}

// daemon is one run of `llmgw up`.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it ended; cmd.ProcessState is set then
}

func (b *Box) open() error {
	b.Dir = filepath.Join(b.lab.dir, b.Name)
	for _, d := range []string{b.Dir, filepath.Join(b.Dir, "home"), filepath.Join(b.Dir, "tmp")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return fmt.Errorf("make box directory: %w", err)
		}
	}
	var err error
	if b.ns, err = newNamespace(b.lab.id + b.Name); err != nil {
		return err
	}
	return b.plugIn()
}

// close lets go of the namespace; the reaper ends what runs inside.
func (b *Box) close() {
	b.mu.Lock()
	for _, c := range b.idle {
		c.CloseIdleConnections()
	}
	b.mu.Unlock()
	if b.ns != nil {
		_ = b.ns.close()
	}
}

// StateDir is the daemon's --state-dir.
func (b *Box) StateDir() string { return filepath.Join(b.Dir, stateName) }

// stateName is where in a box's directory its daemon keeps its state.
const stateName = "state"

// URL is the box's public address, as other boxes reach it.
func (b *Box) URL() string { return fmt.Sprintf("http://%s:%d", b.IP(), APIPort) }

// MeshAddr is what another box gives to --peer.
func (b *Box) MeshAddr() string { return fmt.Sprintf("%s:%d", b.IP(), MeshPort) }

// startTimeout is far above what a daemon needs: the machine may be busy.
const startTimeout = 30 * time.Second

// stopTimeout is far above what a daemon may take for its streams and then for its
// engines, 30 s.
const stopTimeout = time.Minute

// Start runs `llmgw up` and waits until its API answers.
func (b *Box) Start() {
	b.tb.Helper()
	b.Launch()
	b.AwaitAPI()
}

// Launch runs `llmgw up` and returns at once.
func (b *Box) Launch() {
	b.tb.Helper()
	if b.Running() {
		b.tb.Fatalf("box %s runs already", b.Name)
	}
	log, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.tb.Fatalf("open log of box %s: %v", b.Name, err)
	}
	defer log.Close()
	argv := append([]string{Binary(b.tb), "up", "--state-dir", b.StateDir(), "--name", b.Name}, b.Args...)
	fmt.Fprintf(log, "--- %s\n", strings.Join(argv, " "))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log // a file: what it wrote is kept however it ends
	if err := b.start(cmd); err != nil {
		b.tb.Fatalf("start box %s: %v", b.Name, err)
	}
	b.daemon = &daemon{cmd: cmd, done: make(chan struct{})}
	go func(d *daemon) { _ = d.cmd.Wait(); close(d.done) }(b.daemon)
}

// AwaitAPI waits until the public port answers.
func (b *Box) AwaitAPI() {
	b.tb.Helper()
	client := b.Client()
	Eventually(b.tb, startTimeout, "the API of box "+b.Name+" answers", func() (bool, string) {
		if !b.Running() {
			b.tb.Fatalf("daemon of box %s ended: %v\n%s", b.Name, b.daemon.cmd.ProcessState, b.Report())
		}
		resp, err := client.Get(b.URL() + "/healthz")
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		return resp.StatusCode == 200, resp.Status
	})
}

// Running tells whether the daemon's process lives.
func (b *Box) Running() bool {
	if b.daemon == nil {
		return false
	}
	select {
	case <-b.daemon.done:
		return false
	default:
		return true
	}
}

// PID is the daemon's process.
func (b *Box) PID() int {
	b.tb.Helper()
	if b.daemon == nil {
		b.tb.Fatalf("box %s was never started", b.Name)
	}
	return b.daemon.cmd.Process.Pid
}

// Stop ends the daemon as a service manager does, by SIGTERM, and returns how
// long it took.
func (b *Box) Stop() time.Duration {
	b.tb.Helper()
	return b.end(unix.SIGTERM)
}

// Kill ends the daemon as a crash does, by SIGKILL. Its engines live on.
func (b *Box) Kill() {
	b.tb.Helper()
	b.end(unix.SIGKILL)
}

func (b *Box) end(sig unix.Signal) time.Duration {
	b.tb.Helper()
	if !b.Running() {
		b.tb.Fatalf("box %s does not run", b.Name)
	}
	began := time.Now()
	if err := b.daemon.cmd.Process.Signal(sig); err != nil {
		b.tb.Fatalf("signal box %s: %v", b.Name, err)
	}
	select {
	case <-b.daemon.done:
	case <-time.After(stopTimeout):
		_ = b.daemon.cmd.Process.Signal(unix.SIGQUIT) // its log then tells what it waits for
		time.Sleep(time.Second)
		b.tb.Fatalf("box %s did not end %v after %v", b.Name, stopTimeout, sig)
	}
	return time.Since(began)
}

// Pause freezes the whole box, as a hypervisor does: its connections stay open
// and nothing answers on them.
func (b *Box) Pause() { b.tb.Helper(); b.signalAll(unix.SIGSTOP) }

// Resume lets a paused box go on.
func (b *Box) Resume() { b.tb.Helper(); b.signalAll(unix.SIGCONT) }

func (b *Box) signalAll(sig unix.Signal) {
	b.tb.Helper()
	for _, p := range b.Processes("") {
		err := b.Signal(p.PID, sig)
		if gone := errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrNotExist); err != nil && !gone {
			b.tb.Fatalf("box %s: %v", b.Name, err)
		}
	}
}

// Signal sends sig to a process of this box and to no other.
func (b *Box) Signal(pid int, sig unix.Signal) error {
	ns, err := identify(filepath.Join(namespaceDir, b.ns.name))
	if err != nil {
		return err
	}
	if !isIn(pid, ns) {
		return fmt.Errorf("pid %d is not on box %s: %w", pid, b.Name, os.ErrNotExist)
	}
	return signalIf(pid, sig, func() bool { return isIn(pid, ns) })
}

// Processes lists what runs on the box; with a word, only those whose command
// line has an argument that contains it.
func (b *Box) Processes(word string) []Process {
	b.tb.Helper()
	ns, err := identify(filepath.Join(namespaceDir, b.ns.name))
	if err != nil {
		b.tb.Fatalf("box %s: %v", b.Name, err)
	}
	var out []Process
	for _, pid := range processesIn(ns) {
		p, err := ReadProcess(pid)
		if errors.Is(err, os.ErrNotExist) || err == nil && p.State == 'Z' {
			continue
		}
		if slices.ContainsFunc(p.Args, func(a string) bool { return strings.Contains(a, word) }) {
			out = append(out, p)
		}
	}
	return out
}

// Await waits for one process whose command line contains word.
func (b *Box) Await(word string, within time.Duration) Process {
	b.tb.Helper()
	var found Process
	Eventually(b.tb, within, fmt.Sprintf("box %s runs one %q", b.Name, word), func() (bool, string) {
		all := b.Processes(word)
		if len(all) == 1 {
			found = all[0]
		}
		return len(all) == 1, fmt.Sprintf("%d run", len(all))
	})
	return found
}
