package crdt

import (
	"fmt"
	"math"
)

// MaxAmount bounds a count, so that sums of thousands of them stay within range.
const MaxAmount = math.MaxUint64 >> 16

// plus adds to a count that only grows.
func plus(a, b uint64) (uint64, error) {
	if b > MaxAmount || a > MaxAmount-b {
		return 0, fmt.Errorf("count %d + %d: %w", a, b, ErrExhausted)
	}
	return a + b, nil
}

// plusAtMost adds counts for reading. It ends at the largest number instead of beginning again.
func plusAtMost(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
