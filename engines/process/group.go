package process

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// runVariable is in the environment of each process of a run and inherited by
// its children: what bears it is ours, whatever its number or group.
const runVariable = "LLMGW_RUN"

// group is everything that one run of an engine started.
type group struct {
	leader int    // pid, process group and session
	start  uint64 // of the leader
	run    string // marker
	cgroup string // empty: none
}

// members are the living processes of the group.
//
// A process belongs to it when it is the leader by number and start time, when
// it bears the run's marker, when it is in the run's cgroup, or when it is in
// the leader's session while the leader lives: then the session's number cannot
// have gone to somebody else. Nothing older than the leader can be a member,
// which spares reading most environments.
func (g group) members() []procStat {
	in := cgroupPIDs(g.cgroup)
	leaderLives := runs(g.leader, g.start)
	var out []procStat
	for _, pid := range listPIDs() {
		s, err := readStat(pid)
		if err != nil || !s.alive() || s.start < g.start {
			continue
		}
		switch {
		case pid == g.leader && s.start == g.start,
			slices.Contains(in, pid),
			leaderLives && (s.session == g.leader || s.pgrp == g.leader),
			g.run != "" && hasEnv(pid, runVariable+"="+g.run):
			out = append(out, s)
		}
	}
	return out
}

// signal sends sig to each member.
func (g group) signal(members []procStat, sig unix.Signal) {
	for _, m := range members {
		signalExactly(m.pid, m.start, sig)
	}
}

// signalExactly sends sig to the process with pid and start. The descriptor is
// taken before the start time is compared, so the number cannot change hands in
// between.
func signalExactly(pid int, start uint64, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer unix.Close(fd)
		if runs(pid, start) {
			_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it may have ended: then there is nothing to do
		}
		return
	}
	if err == unix.ENOSYS && runs(pid, start) {
		_ = unix.Kill(pid, sig)
	}
}

// stop ends the group: SIGTERM, grace, SIGKILL, and a look that nothing is
// left. hurry cuts the grace short. It returns an error that names survivors
// after limit; those are stuck in the kernel, and their memory is still held.
func (g group) stop(grace, limit time.Duration, hurry <-chan struct{}) error {
	g.signal(g.members(), unix.SIGTERM)
	if g.gone(grace, hurry, nil) {
		return nil
	}
	kill := func(members []procStat) {
		cgroupKill(g.cgroup)
		g.signal(members, unix.SIGKILL)
	}
	if g.gone(limit, nil, kill) {
		return nil
	}
	if left := g.members(); len(left) > 0 {
		return fmt.Errorf("stop engine: process %d does not die", left[0].pid)
	}
	return nil
}

// kill ends the group at once.
func (g group) kill(limit time.Duration) error {
	now := make(chan struct{})
	close(now)
	return g.stop(0, limit, now)
}

// gone waits until no member lives. each is called on every look with those
// that do: a member may have forked since the last one.
func (g group) gone(limit time.Duration, hurry <-chan struct{}, each func([]procStat)) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		members := g.members()
		if len(members) == 0 {
			cgroupRemove(g.cgroup)
			return true
		}
		if each != nil {
			each(members)
		}
		select {
		case <-look.C:
		case <-hurry:
			return false
		case <-deadline.C:
			return false
		}
	}
}

// owns tells whether a member listens on port.
func (g group) owns(port int) bool {
	inodes := listeningInodes(g.leader, port)
	if len(inodes) == 0 {
		return false
	}
	if ownsSocket(g.leader, inodes) {
		return true
	}
	return slices.ContainsFunc(g.members(), func(s procStat) bool { return ownsSocket(s.pid, inodes) })
}
