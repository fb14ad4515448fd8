package fetch

import (
	"context"
	"sync"

	"llmgw/mesh/catalog"
)

// job is one running pull and those who wait for it.
type job struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when source and err are set
	source catalog.Source
	err    error

	waiters int // guarded by Store.mu

	mu      sync.Mutex
	now     Progress
	changed chan struct{} // closed and replaced at each change of now
}

// Pull makes a source's file be here and tells what it is. It returns at once
// when a pinned digest, or what an unchanging source gave before, is on disk.
//
// Callers that ask for one source share one job. progress (may be nil) runs
// in the caller's goroutine, sees the newest state only, and sees "ready"
// before Pull returns without error. When ctx ends this caller leaves with
// its error; the job ends with its last waiter.
func (s *Store) Pull(ctx context.Context, source string, progress func(Progress)) (catalog.Source, error) {
	ref, err := parse(source)
	if err != nil {
		return catalog.Source{}, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	j := s.join(ctx, ref)
	defer s.leave(ref.key(), j)
	return j.wait(ctx, progress)
}

// key tells jobs apart: the same source with another pin is another question.
func (r reference) key() string { return r.text + "#" + r.digest }

// join adds a waiter to the source's job, or starts it.
func (s *Store) join(ctx context.Context, ref reference) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[ref.key()]; j != nil {
		j.waiters++
		return j
	}
	// The job lives as long as its waiters, not as long as the first of them.
	jobCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	j := &job{
		cancel: cancel, done: make(chan struct{}), waiters: 1,
		now: Progress{Phase: PhaseQueued}, changed: make(chan struct{}),
	}
	s.jobs[ref.key()] = j
	go s.run(jobCtx, ref, j)
	return j
}

// leave takes a waiter off a job and ends the job with the last one. It
// returns only after an ended job has cleaned up.
func (s *Store) leave(key string, j *job) {
	s.mu.Lock()
	j.waiters--
	last := j.waiters == 0
	if last && s.jobs[key] == j {
		delete(s.jobs, key) // who comes now starts afresh
	}
	s.mu.Unlock()
	if last {
		j.cancel()
		<-j.done
	}
}

func (s *Store) run(ctx context.Context, ref reference, j *job) {
	defer j.cancel()
	defer close(j.done)
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		j.err = ctx.Err()
		return
	}
	j.source, j.err = s.pull(ctx, ref, j.report)
	if j.err == nil {
		j.report(Progress{Phase: PhaseReady, Done: j.source.SizeBytes, Total: j.source.SizeBytes})
	}
}

// report takes a state over and tells the waiters.
func (j *job) report(p Progress) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p = p.after(j.now); p == j.now {
		return
	}
	j.now = p
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *job) state() (Progress, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.now, j.changed
}

// wait shows each new state until the job ends or the caller leaves.
func (j *job) wait(ctx context.Context, progress func(Progress)) (catalog.Source, error) {
	for {
		now, changed := j.state()
		progress(now)
		select {
		case <-ctx.Done():
			return catalog.Source{}, ctx.Err()
		case <-changed:
		case <-j.done:
			if last, _ := j.state(); j.err == nil && last != now {
				progress(last)
			}
			return j.source, j.err
		}
	}
}
