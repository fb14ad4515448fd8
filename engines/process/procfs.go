package process

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// procStat is what /proc/PID/stat tells and we need.
type procStat struct {
	pid     int
	state   byte // 'Z' and 'X': the first thread is dead
	pgrp    int
	session int
	threads int
	start   uint64 // clock ticks after boot: with pid and boot, a process's identity
}

// alive is false once nothing of the process runs. The first thread may be dead
// while others are still giving memory back.
func (s procStat) alive() bool { return s.state != 'Z' && s.state != 'X' || s.threads > 1 }

func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(pid, b)
}

// parseStat reads the fields after the command name, which is in parentheses
// and may itself hold spaces and parentheses.
func parseStat(pid int, b []byte) (procStat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return procStat{}, errors.New("read process state: no command name")
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 || len(f[0]) != 1 { // fields 3 to 22
		return procStat{}, errors.New("read process state: too few fields")
	}
	pgrp, err1 := strconv.Atoi(f[2])
	session, err2 := strconv.Atoi(f[3])
	threads, err3 := strconv.Atoi(f[17])
	start, err4 := strconv.ParseUint(f[19], 10, 64)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return procStat{}, fmt.Errorf("read process state: %w", err)
	}
	return procStat{pid: pid, state: f[0][0], pgrp: pgrp, session: session, threads: threads, start: start}, nil
}

func procPath(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}

// runs tells whether the process that had pid and start still lives.
func runs(pid int, start uint64) bool {
	s, err := readStat(pid)
	return err == nil && s.alive() && s.start == start
}

// errNoArgv means that the kernel shows no command line: a program that was
// called this very moment has none yet, a dead one none any more.
var errNoArgv = errors.New("read command line: it is empty")

// argvHash is the digest of a process's command line as the kernel shows it.
func argvHash(pid int) (string, error) {
	b, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil {
		return "", err
	}
	if len(b) == 0 {
		return "", errNoArgv
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// argvHashOfNew waits for the command line of a process that was just started:
// a call of exec counts as done a little before the kernel has laid it out. A
// process that ends meanwhile has none, and needs none.
func argvHashOfNew(pid int, ended <-chan struct{}) (string, error) {
	for {
		hash, err := argvHash(pid)
		if !errors.Is(err, errNoArgv) {
			return hash, err
		}
		select {
		case <-ended:
			return "", nil
		case <-time.After(time.Millisecond):
		}
	}
}

// bootID changes with each boot of the machine.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// residentBytes is a process's resident memory; 0 when unknown.
func residentBytes(pid int) int64 {
	b, err := os.ReadFile(procPath(pid, "statm"))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// listPIDs gives the processes of this machine.
func listPIDs() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	pids := make([]int, 0, len(names))
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// hasEnv tells whether a process was started with entry (NAME=value).
func hasEnv(pid int, entry string) bool {
	b, err := os.ReadFile(procPath(pid, "environ"))
	if err != nil {
		return false
	}
	for _, e := range bytes.Split(b, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}

// listeningInodes are the sockets that listen on port in the network namespace
// of pid.
func listeningInodes(pid, port int) map[string]bool {
	inodes := make(map[string]bool)
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		b, err := os.ReadFile(procPath(pid, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if inode, ok := listening(line, port); ok {
				inodes[inode] = true
			}
		}
	}
	return inodes
}

// listening reads one line of /proc/net/tcp: slot, local address, remote
// address, state (0A listens), ..., inode as the tenth field.
func listening(line string, port int) (inode string, ok bool) {
	f := strings.Fields(line)
	if len(f) < 10 || f[3] != "0A" {
		return "", false
	}
	_, hexPort, found := strings.Cut(f[1], ":")
	n, err := strconv.ParseUint(hexPort, 16, 16)
	if !found || err != nil || int(n) != port {
		return "", false
	}
	return f[9], true
}

// ownsSocket tells whether pid has one of the sockets open.
func ownsSocket(pid int, inodes map[string]bool) bool {
	dir := procPath(pid, "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		link, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		if inode, ok := strings.CutPrefix(link, "socket:["); ok && inodes[strings.TrimSuffix(inode, "]")] {
			return true
		}
	}
	return false
}
