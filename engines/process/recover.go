package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"llmgw/engines"
	"llmgw/mesh/catalog"
)

// adoptLimit is how long an engine that was ready may take to answer a daemon
// that comes back. One that is too busy is adopted all the same and looked at
// again.
const adoptLimit = 2 * time.Second

// Recover takes over the engines that a former daemon left in the directory.
// One that is the process of its pidfile goes on as a replica, wanted as
// recorded until Ensure or Release says otherwise. One whose process is gone
// leaves nothing; one that does not know its key is ended. Directories without
// a pidfile and pidfiles of a newer version are left alone. It returns when
// each engine that was ready has answered or was given a moment to.
func (s *Supervisor) Recover(ctx context.Context) error {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("recover engines: %w", err)
	}
	s.cgroups.sweep(s.cfg.Now())
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := s.recoverOne(ctx, filepath.Join(s.cfg.Dir, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("recover engine in %s: %w", e.Name(), err))
		}
	}
	return errors.Join(errs...)
}

func (s *Supervisor) recoverOne(ctx context.Context, dir string) error {
	rec, err := readPidfile(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errNewerPidfile):
		return err
	case err != nil:
		s.cfg.Log.Warn("pidfile dropped", slog.Any("error", err))
		return removePidfile(dir)
	}
	a, known := s.cfg.Adapters[rec.Shard.Profile.Engine]
	if rec.Boot != s.boot {
		return removePidfile(dir) // the machine was restarted: nothing of it lives
	}
	if !known || !rec.same() || dir != filepath.Join(s.cfg.Dir, dirName(idOf(rec.Shard))) {
		return s.reap(dir, rec, "process of the pidfile is gone")
	}
	r := newReplica(s, rec.Shard)
	e := r.newEngine(a, rec, true)
	first, err := r.meet(ctx, e)
	if err != nil {
		return s.reap(dir, rec, err.Error())
	}
	return s.adopt(r, e, first)
}

// same tells whether the process of the pidfile still runs and is the same one.
func (r record) same() bool {
	if r.PID == 0 || !runs(r.PID, r.Start) {
		return false
	}
	hash, err := argvHash(r.PID)
	return err == nil && hash == r.ArgvHash
}

// reap ends what may be left of a run and drops its pidfile. A process that is
// not provably of the run is left alone.
func (s *Supervisor) reap(dir string, rec record, reason string) error {
	s.cfg.Log.Info("engine not adopted", slog.String("model", rec.Shard.Model.ID), slog.String("reason", reason))
	g := rec.group()
	if rec.PID != 0 && !rec.same() {
		// The number may be somebody else's: only the marker and the cgroup
		// tell who is ours.
		g.leader = 0
	}
	if err := g.stop(s.cfg.Timing.Grace, s.cfg.Timing.Kill, nil); err != nil {
		return err
	}
	return removePidfile(dir)
}

// meet asks a found engine how it is, and gives the state to begin with. An
// error means that it must not be kept.
func (r *replica) meet(ctx context.Context, e *engine) (step, error) {
	if !e.record.Ready {
		return r.load, nil // it was loading: its load goes on
	}
	ctx, cancel := context.WithTimeout(ctx, adoptLimit)
	defer cancel()
	health, err := e.ask.health(ctx)
	if err != nil || health != engines.HealthOK || !e.record.group().owns(e.record.Port) {
		return r.load, nil
	}
	e.props, err = e.ask.props(ctx)
	if errors.Is(err, errWrongKey) {
		return nil, err
	}
	if err != nil || e.ask.serves(ctx, e.record.Shard.Model.Name) != nil {
		return r.load, nil
	}
	r.history.Ready = true
	return r.serve, nil
}

// adopt registers a found engine and starts its goroutine.
func (s *Supervisor) adopt(r *replica, e *engine, first step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if _, ok := s.replicas[r.id]; ok {
		return errors.New("a replica of this model and slot runs already")
	}
	e.watch = watchStranger(e.record.PID, e.record.Start)
	s.ports.hold(e.record.Port)
	r.engine = e
	r.showRun(true)
	if e.props != (engines.Props{}) {
		// Ready before anybody can look: callers read Status right after.
		r.view.State = catalog.ReplicaReady
		e.tell(&r.view)
	}
	s.replicas[r.id] = r
	r.log.Info("engine adopted", slog.Int("pid", e.record.PID), slog.Int("port", e.record.Port))
	go r.run(first)
	return nil
}
