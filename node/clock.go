//go:build !lab

package node

import "time"

// wallClock is the clock that every part of the node is given.
func wallClock() func() time.Time { return time.Now }
