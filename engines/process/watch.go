package process

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watch follows one process to its end.
type watch struct {
	exited chan struct{}
	how    string // valid once exited is closed
	quit   chan struct{}
	once   sync.Once
}

// stop ends the watching of a process that stays. A child is still waited for:
// only its parent can take its number back.
func (w *watch) stop() { w.once.Do(func() { close(w.quit) }) }

// watchChild follows a process that we started.
func watchChild(cmd *exec.Cmd) *watch {
	w := &watch{exited: make(chan struct{}), quit: make(chan struct{})}
	go func() {
		defer close(w.exited)
		w.how = describeExit(cmd.Wait(), cmd.ProcessState)
	}()
	return w
}

func describeExit(err error, state *os.ProcessState) string {
	if state == nil {
		return "lost: " + err.Error()
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return "signal: " + ws.Signal().String()
	}
	return state.String()
}

// watchStranger follows a process whose parent we are not: an engine that a
// former daemon started. How it ends cannot be learnt.
func watchStranger(pid int, start uint64) *watch {
	w := &watch{exited: make(chan struct{}), quit: make(chan struct{}), how: "exit status unknown: it was adopted"}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		fd = -1 // an old kernel: the start time is polled
	}
	go func() {
		if fd >= 0 {
			defer unix.Close(fd)
		}
		for runs(pid, start) {
			select {
			case <-w.quit:
				return
			default:
				waitForEnd(fd)
			}
		}
		close(w.exited)
	}()
	return w
}

// waitForEnd returns when the process behind fd ends, at the latest after a
// moment, so that the watcher sees that it shall quit.
func waitForEnd(fd int) {
	const moment = 200 * time.Millisecond
	if fd < 0 {
		time.Sleep(moment)
		return
	}
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(moment/time.Millisecond))
	if err != nil && !errors.Is(err, unix.EINTR) {
		time.Sleep(moment)
	}
}
