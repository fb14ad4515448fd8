package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// namespaceDir is where iproute2 keeps named network namespaces.
const namespaceDir = "/run/netns"

// namespace is a named network namespace. It is held open, so that entering it
// costs no look-up and works until close even when its name is gone.
type namespace struct {
	name string
	file *os.File
}

func newNamespace(name string) (*namespace, error) {
	if _, err := tool("ip", "netns", "add", name); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(namespaceDir, name))
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", name, err)
	}
	return &namespace{name: name, file: f}, nil
}

func (n *namespace) close() error { return n.file.Close() }

// do calls fn on an OS thread that is inside the namespace. A socket or a
// process made by fn itself belongs to the namespace for ever; what a goroutine
// of fn makes does not, since goroutines run on other threads.
func (n *namespace) do(fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- n.enter(fn) }()
	return <-done
}

// enter runs on a goroutine of its own. When the way back fails the thread
// stays locked and ends with its goroutine, so no other code runs in the box.
func (n *namespace) enter(fn func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own namespace: %w", err)
	}
	defer home.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", n.name, err)
	}
	err = fn()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// identity names a namespace: the same for its file and for its processes. The
// device is part of it, since a name that lost its mount is a plain file.
type identity struct{ device, inode uint64 }

func identify(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return identity{device: st.Dev, inode: st.Ino}, nil
}

// processesIn lists the pids inside a namespace. Our own
// process is never one of them: only single threads of it visit.
func processesIn(ns identity) []int {
	var in []int
	for _, pid := range pids() {
		if pid != os.Getpid() && isIn(pid, ns) {
			in = append(in, pid)
		}
	}
	return in
}

func isIn(pid int, ns identity) bool {
	have, err := identify(fmt.Sprintf("/proc/%d/ns/net", pid))
	return err == nil && have == ns
}

// endTimeout is how long killed processes may take to leave a namespace.
const endTimeout = 10 * time.Second

// removeNamespace ends every process inside and removes the name. Links inside
// go with the namespace.
func removeNamespace(name string) error {
	path := filepath.Join(namespaceDir, name)
	errs := []error{endProcesses(path)}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("remove namespace: %w", err))
	}
	return errors.Join(errs...)
}

// endProcesses kills round by round, since a process may start another between
// the listing and its own end.
func endProcesses(path string) error {
	ns, err := identify(path)
	if err != nil {
		return err
	}
	host, err := identify("/proc/self/ns/net")
	if err != nil {
		return err
	}
	if ns == host {
		return fmt.Errorf("namespace %s is the machine's own: left alone", path)
	}
	for deadline := time.Now().Add(endTimeout); ; time.Sleep(2 * time.Millisecond) {
		in := processesIn(ns)
		if len(in) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("end processes in %s: %v are still there", path, in)
		}
		for _, pid := range in {
			_ = signalIf(pid, unix.SIGKILL, func() bool { return isIn(pid, ns) })
		}
	}
}
