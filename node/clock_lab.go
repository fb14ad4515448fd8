//go:build lab

package node

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// wallClock is the clock that every part of the node is given. In the lab it
// runs ahead or behind by the seconds that stand in the file named by
// LLMGW_LAB_CLOCK, read anew each time, so that a test can step it. Monotonic
// readings stay: a stepped wall clock must not disturb what measures spans.
func wallClock() func() time.Time {
	path := os.Getenv("LLMGW_LAB_CLOCK")
	if path == "" {
		return time.Now
	}
	return func() time.Time {
		raw, err := os.ReadFile(path)
		if err != nil {
			return time.Now()
		}
		seconds, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil {
			return time.Now()
		}
		return time.Now().Add(time.Duration(seconds) * time.Second)
	}
}
