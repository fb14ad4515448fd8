package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"llmgw/mesh/catalog"
)

// giveUp ends a process that is of no use, which counts as a crash.
func (r *replica) giveUp(reason string) step {
	r.log.Warn("engine given up", slog.String("reason", reason))
	r.enter(catalog.ReplicaStopping, reason)
	return r.crashed(reason)
}

// exitReason tells how the process ended, in words for a person.
func (r *replica) exitReason(when string) string {
	e := r.engine
	if cgroupOOM(e.record.ownCgroup()) > 0 {
		return "engine was killed by the kernel " + when + ": out of memory"
	}
	return fmt.Sprintf("engine ended %s (%s)", when, e.watch.how)
}

// crashed clears away what is left of the run and decides what follows.
func (r *replica) crashed(reason string) step {
	grace := r.sup.cfg.Timing.Grace
	if r.engine != nil && r.status().State != catalog.ReplicaStopping {
		// Unrouted before anything else: whoever asks now must not be sent to
		// a dead process. What it leaves behind has nothing to finish.
		r.showEnd()
		r.enter(catalog.ReplicaBackoff, reason)
		grace = 0
	}
	if !r.clear(grace, nil) {
		return nil
	}
	var d Decision
	r.history, d = r.sup.cfg.Restart.Crashed(r.history, r.sup.cfg.Now())
	r.update(func(v *catalog.ReplicaStatus) { v.Restarts++ })
	if d.Quarantine {
		r.log.Error("replica quarantined", slog.String("reason", reason), slog.Int("crashes", d.Count))
		r.enter(catalog.ReplicaQuarantined, fmt.Sprintf("%s; given up after %d times", reason, d.Count))
		return r.quarantine
	}
	r.log.Warn("engine ended by itself", slog.String("reason", reason), slog.Duration("delay", d.Delay))
	r.enter(catalog.ReplicaBackoff, reason)
	return r.backoff(d.Delay)
}

// clear ends what lives of the run, keeps its last lines, and frees its port
// and pidfile. It is false when the goroutine shall end with a survivor left.
func (r *replica) clear(grace time.Duration, hurry <-chan struct{}) bool {
	e := r.engine
	if e == nil {
		return true
	}
	if !r.bury(e.record.group(), grace, hurry) {
		return false
	}
	e.watch.stop()
	r.showEnd()
	r.sup.ports.release(e.record.Port, r.sup.cfg.Now())
	if err := removePidfile(r.dir); err != nil {
		r.log.Warn("pidfile not removed", slog.Any("error", err))
	}
	r.engine = nil
	return true
}

// showEnd takes the process out of the view and leaves its last lines there.
func (r *replica) showEnd() {
	r.followLog()
	lines := r.engine.tail.last()
	r.update(func(v *catalog.ReplicaStatus) { v.PID, v.Adopted, v.LastLines = 0, false, lines })
}

// bury stops a group until nothing of it lives. A process that even SIGKILL
// does not end still holds its memory: nothing is started beside it, and the
// replica says so. It is false when the daemon ends first; the pidfile stays
// for the next one.
func (r *replica) bury(g group, grace time.Duration, hurry <-chan struct{}) bool {
	for {
		err := g.stop(grace, r.sup.cfg.Timing.Kill, hurry)
		if err == nil {
			return true
		}
		r.log.Error("engine does not end", slog.Any("error", err))
		r.enter(catalog.ReplicaStopping, err.Error())
		w := r.wishes()
		if w.leave || w.hurry != nil {
			r.mu.Lock()
			r.stuck = err
			r.mu.Unlock()
			return false
		}
		grace = 0
		time.Sleep(time.Second)
	}
}

// followLog reads the log on and keeps the file small.
func (r *replica) followLog() {
	_, err := r.engine.tail.poll()
	if err = errors.Join(err, r.engine.tail.cap()); err != nil {
		r.log.Warn("engine log not readable", slog.Any("error", err))
	}
}

// stopping drains the replica and ends its process.
func (r *replica) stopping(reason string) step {
	return func() step {
		r.enter(catalog.ReplicaStopping, reason)
		if !r.drain() {
			r.engine.watch.stop()
			return nil
		}
		if !r.clear(r.sup.cfg.Timing.Grace, r.wishes().hurry) {
			return nil
		}
		r.log.Info("engine stopped", slog.String("reason", reason))
		r.history = History{}
		return r.launch
	}
}

// drain waits for the requests in flight. It is false when the daemon leaves
// the process as it is.
func (r *replica) drain() bool {
	limit := time.NewTimer(r.sup.cfg.Timing.Drain)
	defer limit.Stop()
	for {
		w := r.wishes()
		if w.leave {
			return false
		}
		if r.busy() == 0 {
			return true
		}
		select {
		case <-r.kick:
		case <-r.engine.watch.exited:
			return true
		case <-w.hurry:
			return true
		case <-limit.C:
			r.log.Warn("requests cut off", slog.Int("requests", r.busy()))
			return true
		}
	}
}

// gone forgets the replica, unless it is wanted again.
func (r *replica) gone() step {
	if !r.sup.forget(r) {
		return r.launch
	}
	r.sup.cfg.OnChange()
	return nil
}

// backoff waits before the next start.
func (r *replica) backoff(delay time.Duration) step {
	return func() step {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		before := r.wishes()
		for {
			select {
			case <-timer.C:
				return r.launch
			case <-r.kick:
			}
			if next, ok := r.roused(before); ok {
				return next
			}
		}
	}
}

// quarantine waits for a change or an admin.
func (r *replica) quarantine() step {
	before := r.wishes()
	for {
		<-r.kick
		if next, ok := r.roused(before); ok {
			return next
		}
	}
}

// roused tells what a resting replica does about a wish: end, or start anew
// when somebody asked for a retry or for something else than before.
func (r *replica) roused(before wish) (next step, ok bool) {
	w := r.wishes()
	switch {
	case w.leave:
		return nil, true
	case w.shard == nil:
		return r.gone, true
	case !w.retry && before.shard != nil && w.shard.Epoch == before.shard.Epoch && sameRun(*w.shard, *before.shard):
		return nil, false
	}
	r.mu.Lock()
	r.wish.retry = false
	r.mu.Unlock()
	r.history = History{}
	return r.launch, true
}

// sameRun tells whether two shards would run the same process. What cannot be
// compared counts as different.
func sameRun(a, b catalog.Shard) bool {
	x, err1 := fingerprint(a)
	y, err2 := fingerprint(b)
	return err1 == nil && err2 == nil && x == y && a.Weights == b.Weights
}

// failed waits until what kept the replica from starting is gone. Looking costs
// little and starts nothing, so it needs no back-off; an engine that is
// installed later is found without anybody asking.
func (r *replica) failed(cause error) step {
	return func() step {
		r.enter(catalog.ReplicaFailed, cause.Error())
		retry := time.NewTimer(r.sup.cfg.Timing.Retry)
		defer retry.Stop()
		select {
		case <-retry.C:
		case <-r.kick:
		}
		w := r.wishes()
		switch {
		case w.leave:
			return nil
		case w.shard == nil:
			return r.gone
		}
		if _, err := r.prepare(context.Background(), *w.shard); err != nil {
			return r.failed(err)
		}
		return r.launch
	}
}
