package router

import (
	"sync"
	"sync/atomic"
	"time"
)

// budget counts the bytes of all bodies that the node holds.
type budget struct {
	limit int64
	held  atomic.Int64
}

// take reserves n bytes, or none.
func (b *budget) take(n int64) bool {
	if b.held.Add(n) > b.limit {
		b.held.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.held.Add(-n) }

// load counts the requests that this node has chosen each replica for and that
// have not ended: what presence tells of them comes up to a second late.
type load struct {
	mu    sync.Mutex
	count map[replicaKey]int
}

// replicaKey tells replicas apart over the mesh.
type replicaKey struct {
	peer  string
	model string
	slot  int
}

func (r Replica) key() replicaKey { return replicaKey{r.Peer, r.Model, r.Slot} }

func newLoad() *load { return &load{count: make(map[replicaKey]int)} }

func (l *load) of(k replicaKey) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[k]
}

// take counts one request; the returned function ends it, once however often
// it is called.
func (l *load) take(k replicaKey) func() {
	l.mu.Lock()
	l.count[k]++
	l.mu.Unlock()
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.count[k]--; l.count[k] == 0 {
			delete(l.count, k)
		}
	})
}

// limiter lets one log line through in each interval.
type limiter struct {
	every time.Duration
	mu    sync.Mutex
	next  time.Time
}

func (l *limiter) allow(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		return false
	}
	l.next = now.Add(l.every)
	return true
}
