package sim

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"llmgw/engines/kvevents"
)

// prompt has whole blocks only, none of which another one has.
func prompt(i, blocks int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%04d", i), blocks*blockBytes/4)
}

// TestEventsOverSockets: what a follower counts is what the cache holds, in both
// forms, also for what was stored before it came.
func TestEventsOverSockets(t *testing.T) {
	for form, array := range map[string]bool{"maps": false, "arrays": true} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			src := kvevents.Source{Live: filepath.Join(dir, "kv"), Replay: filepath.Join(dir, "replay")}
			p := &publisher{array: array, shared: map[uint64]int{}}
			c := promptCache{limit: 10 * blockTokens, events: p}
			if err := p.listen(t.Context(), src.Live, src.Replay); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.close)
			for i := range 20 {
				c.computed(prompt(i, 2))
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			states := make(chan kvevents.State, 100)
			go kvevents.Follow(ctx, src, func(s kvevents.State) { states <- s })
			until := func(what string, ok func(kvevents.State) bool) {
				t.Helper()
				var last kvevents.State
				for i := 100; ; i++ {
					c.computed(prompt(i, 1)) // until it listens
					select {
					case last = <-states:
						if ok(last) {
							return
						}
					case <-time.After(100 * time.Millisecond):
					}
					if i == 300 {
						t.Fatalf("%s: %+v", what, last)
					}
				}
			}
			until("a full cache", func(s kvevents.State) bool {
				return s.Complete && s.Held == 10*blockTokens && s.Room >= 9*blockTokens && s.Room <= 10*blockTokens
			})
			c.clear()
			until("an empty cache", func(s kvevents.State) bool { return s.Complete && s.Cleared == 1 && s.Held <= 2*blockTokens })
		})
	}
}
