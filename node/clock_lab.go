//go:build lab

package node

import (
	"os"
	"time"
)

// wallClock is the clock that every part of the node is given. In the lab it is
// wrong by the duration in LLMGW_LAB_CLOCK_OFFSET, such as "-3h", for a whole
// run: spans are measured as ever, only the time of day is off.
func wallClock() func() time.Time {
	offset, err := time.ParseDuration(os.Getenv("LLMGW_LAB_CLOCK_OFFSET"))
	if err != nil {
		return time.Now
	}
	return func() time.Time { return time.Now().Add(offset) }
}
