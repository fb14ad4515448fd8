package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of CPU and start times in /proc: USER_HZ, which is 100
// on every architecture that Linux runs on today.
const clockTick = 10 * time.Millisecond

// Process is one running process, as /proc tells.
type Process struct {
	PID   int
	Start uint64 // clock ticks after boot; with PID it names a process for ever
	State byte   // R, S, D, T (stopped), Z (ended, not yet reaped) ...
	Args  []string
	CPU   time.Duration // user + system, its own threads, without children
}

// Program is the base name of what runs.
func (p Process) Program() string {
	if len(p.Args) == 0 {
		return ""
	}
	return filepath.Base(p.Args[0])
}

// ReadProcess reads one process; the error is os.ErrNotExist when it is gone.
func ReadProcess(pid int) (Process, error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	p, err := parseStat(stat)
	if err != nil {
		return Process{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Process{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	if s := strings.TrimRight(string(line), "\x00"); s != "" {
		p.Args = strings.Split(s, "\x00")
	}
	return p, nil
}

// parseStat reads /proc/PID/stat. The name in parentheses may hold anything,
// so fields are counted from the last parenthesis (proc(5): field 3 is next).
func parseStat(stat []byte) (Process, error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return Process{}, fmt.Errorf("stat %q has no name", stat)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(stat[:open])))
	if err != nil {
		return Process{}, fmt.Errorf("stat pid: %w", err)
	}
	fields := strings.Fields(string(stat[end+1:]))
	const state, utime, stime, start = 0, 11, 12, 19 // fields 3, 14, 15 and 22
	if len(fields) <= start {
		return Process{}, fmt.Errorf("stat %q is short", stat)
	}
	var ticks [3]uint64
	for i, f := range []int{utime, stime, start} {
		if ticks[i], err = strconv.ParseUint(fields[f], 10, 64); err != nil {
			return Process{}, fmt.Errorf("stat field %d: %w", f+3, err)
		}
	}
	return Process{
		PID: pid, State: fields[state][0], Start: ticks[2],
		CPU: time.Duration(ticks[0]+ticks[1]) * clockTick,
	}, nil
}

// alive tells whether the process that once had this pid and start time lives.
func alive(pid int, start uint64) bool {
	p, err := ReadProcess(pid)
	return err == nil && p.Start == start && p.State != 'Z'
}

// Environ returns a process's environment as it was at its start.
func (p Process) Environ() (map[string]string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
	if err != nil {
		return nil, fmt.Errorf("read environment of %d: %w", p.PID, err)
	}
	env := map[string]string{}
	for line := range strings.SplitSeq(string(raw), "\x00") {
		if k, v, ok := strings.Cut(line, "="); ok {
			env[k] = v
		}
	}
	return env, nil
}

// RSS is the resident memory in bytes.
func (p Process) RSS() (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID))
	if err != nil {
		return 0, fmt.Errorf("read memory of %d: %w", p.PID, err)
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read memory of %d: %q", p.PID, raw)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read memory of %d: %w", p.PID, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// ListenPorts returns the TCP ports that the process itself listens on.
func (p Process) ListenPorts() ([]int, error) {
	inodes, err := socketInodes(p.PID)
	if err != nil {
		return nil, err
	}
	var ports []int
	for _, table := range []string{"tcp", "tcp6"} {
		raw, err := readProc(p.PID, "net/"+table)
		if err != nil {
			continue // no IPv6 in this kernel
		}
		ports = append(ports, listening(raw, inodes)...)
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// listening picks the ports of the sockets in inodes that are in state LISTEN.
func listening(table string, inodes map[string]bool) []int {
	const local, state, inode, listen = 1, 3, 9, "0A"
	var ports []int
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) <= inode || f[state] != listen || !inodes[f[inode]] {
			continue
		}
		_, hex, _ := strings.Cut(f[local], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
			ports = append(ports, int(port))
		}
	}
	return ports
}

func socketInodes(pid int) (map[string]bool, error) {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil, fmt.Errorf("list files of %d: %w", pid, err)
	}
	inodes := map[string]bool{}
	for _, l := range links {
		target, err := os.Readlink(l)
		if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes, nil
}

func readProc(pid int, file string) (string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	return string(raw), err
}

// pids lists all processes of the machine.
func pids() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// signalIf sends sig to pid when check still holds for it. The pidfd is taken
// before the check, so a pid that was given to another process is never hit.
func signalIf(pid int, sig unix.Signal, check func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open pid %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !check() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return fmt.Errorf("signal pid %d: %w", pid, err)
	}
	return nil
}
