package crdt

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// HLC is a stamp of the hybrid logical clock: 48 bits of milliseconds since the epoch, then 16 bits of counter.
// A counter that overflows carries into the milliseconds, so stamps are ordered as integers.
type HLC uint64

const (
	counterBits = 16

	// followLimit is how far ahead of the wall clock a remote stamp may pull the local clock: beyond the skew of
	// boxes that keep time at all, and short of one bad clock dragging every stamp of the mesh with it.
	followLimit = 60 * time.Second

	// ceilingStep is how far ahead the persisted ceiling is moved, so that a busy writer saves it each 10 s at most.
	ceilingStep = 10 * time.Second
)

// StampOf returns the first stamp of t's millisecond. Times before the epoch give 0.
func StampOf(t time.Time) HLC {
	return HLC(max(t.UnixMilli(), 0)) << counterBits
}

// Time returns the wall-clock part of the stamp.
func (h HLC) Time() time.Time { return time.UnixMilli(int64(h >> counterBits)) }

// Add returns the stamp a duration of 0 or more later, the last stamp of all when that is beyond the range.
func (h HLC) Add(d time.Duration) HLC {
	sum := h + HLC(d.Milliseconds())<<counterBits
	if sum < h {
		return math.MaxUint64
	}
	return sum
}

// Clock issues stamps that never repeat and never go back, across restarts too, whatever the wall clock does.
//
// Before it issues a stamp above the ceiling it has a higher ceiling saved; a restarted clock goes on above
// the saved one. Methods may be called from any goroutine; save is called with the clock locked.
type Clock struct {
	now  func() time.Time
	save func(ceiling HLC) error

	mu      sync.Mutex
	last    HLC // highest stamp issued or followed
	ceiling HLC // highest stamp that may be issued without saving
}

// NewClock starts above ceiling, the value last given to save (0 for a new store). save MUST have made the ceiling
// durable when it returns nil, or do so before a stamp is used; see Unsave.
func NewClock(now func() time.Time, ceiling HLC, save func(ceiling HLC) error) *Clock {
	return &Clock{now: now, save: save, last: ceiling, ceiling: ceiling}
}

// Now issues a stamp above all that the clock issued or followed. It fails only when the ceiling cannot be saved.
func (c *Clock) Now() (HLC, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp := max(StampOf(c.now()), c.last+1)
	if stamp > c.ceiling {
		ceiling := stamp.Add(ceilingStep)
		if err := c.save(ceiling); err != nil {
			return 0, fmt.Errorf("save clock ceiling: %w", err)
		}
		c.ceiling = ceiling
	}
	c.last = stamp
	return stamp, nil
}

// Unsave says that of the ceilings given to save only those up to ceiling are durable, and that no stamp above them is in use.
func (c *Clock) Unsave(ceiling HLC) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ceiling = min(c.ceiling, ceiling)
}

// After issues a stamp for a cell that holds existing: above existing and above the clock. A stamp from the far future
// can therefore always be overwritten, and the clock itself does not follow it there.
func (c *Clock) After(existing HLC) (HLC, error) {
	if existing == math.MaxUint64 {
		return 0, fmt.Errorf("stamp after %d: %w", uint64(existing), ErrExhausted)
	}
	stamp, err := c.Now()
	if err != nil {
		return 0, err
	}
	return max(stamp, existing+1), nil
}

// Observe lets the clock follow a remote stamp up to 60 s ahead of the wall clock. Beyond, the clock stays where it
// is and Observe returns false: the writer of that stamp has a bad clock.
func (c *Clock) Observe(remote HLC) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if remote > StampOf(c.now()).Add(followLimit) {
		return false
	}
	c.last = max(c.last, remote)
	return true
}

// Reference is the time as far as this node can tell: the wall clock, corrected by how much it is known to be behind, or
// the highest stamp that was issued or followed, whichever is later.
func (c *Clock) Reference(behind time.Duration) HLC {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(StampOf(c.now().Add(behind)), c.last)
}

// Lead is how far a stamp lies ahead of the wall clock; negative when it lies behind.
func (c *Clock) Lead(stamp HLC) time.Duration { return stamp.Time().Sub(c.now()) }
