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
