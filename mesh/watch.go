package mesh

import (
	"sync"
	"time"
)

// Watch tells that something changed. C holds at most one notice, however often
// that happened since it was last taken. It is never closed.
type Watch struct {
	C <-chan struct{}

	c  chan struct{}
	of *notifier
}

// Close ends the watch. It may be called more than once.
func (w *Watch) Close() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.watches, w)
}

// notifier wakes its watches and never blocks. Its zero value is ready.
type notifier struct {
	mu      sync.Mutex
	watches map[*Watch]struct{}
}

func (n *notifier) watch() *Watch {
	c := make(chan struct{}, 1)
	w := &Watch{C: c, c: c, of: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watches == nil {
		n.watches = map[*Watch]struct{}{}
	}
	n.watches[w] = struct{}{}
	return w
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watches {
		wake(w.c)
	}
}

// wake puts a notice into a channel of capacity one unless one is there.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tracker counts work in progress. Unlike a WaitGroup it may be entered while
// close waits, and then says no. Its zero value is ready.
type tracker struct {
	mu     sync.Mutex
	wg     sync.WaitGroup
	closed bool
}

func (t *tracker) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Add(1)
	return true
}

func (t *tracker) leave() { t.wg.Done() }

// closeWait bounds the wait for handlers whose streams were just reset: one that
// hangs in something else must not hold up the end of the daemon.
const closeWait = 5 * time.Second

// close lets nobody in any more and waits for those inside; it tells whether all
// of them left in time.
func (t *tracker) close() bool {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	left := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(left)
	}()
	select {
	case <-left:
		return true
	case <-time.After(closeWait):
		return false
	}
}
