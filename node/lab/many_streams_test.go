package lab

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestManyStreamsAreAllComplete: 16 clients, 5,000 streams, an engine that
// answers at once, through a to b; not one may miss its [DONE].
func TestManyStreamsAreAllComplete(t *testing.T) {
	const clients, streams, tokens = 16, 5000, 64
	s := joinedScene(t)
	s.serveSim("sim", Sim{Tokens: tokens})
	at := s.atA(s.key())
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var next atomic.Int64
	var failed sync.Map
	var wg sync.WaitGroup
	began := time.Now()
	for range clients {
		wg.Go(func() {
			for i := next.Add(1); i <= streams && ctx.Err() == nil; i = next.Add(1) {
				if err := oneStream(ctx, at, tokens); err != nil {
					failed.Store(i, err)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	n := 0
	failed.Range(func(i, err any) bool {
		if n++; n <= 10 {
			t.Errorf("stream %v: %v", i, err)
		}
		return true
	})
	if n > 0 || ctx.Err() != nil {
		t.Errorf("%d of %d streams failed in %v, %v", n, streams, took, ctx.Err())
	}
	t.Logf("%d streams of %d tokens in %v: %.0f/s", streams, tokens, took.Round(time.Millisecond), streams/took.Seconds())
	e := s.b.Engine(SimEngine)
	if aborted, running := e.Metric("llmgw_sim_streams_aborted_total"), e.Metric("llmgw_sim_streams_running"); aborted != 0 || running != 0 {
		t.Errorf("the engine counts %v aborted and %v running", aborted, running)
	}
}

func oneStream(ctx context.Context, at *API, tokens int) error {
	st, err := at.Stream(ctx, "/v1/chat/completions", Chat("sim", "Hi", true, nil))
	if err != nil {
		return err
	}
	defer st.Close()
	tale, err := st.Rest()
	if err != nil {
		return err
	}
	if !tale.Done || len(tale.Failure) > 0 || tale.Chunks != tokens {
		return fmt.Errorf("got %d chunks, done %v, failures %v", tale.Chunks, tale.Done, tale.Failure)
	}
	return nil
}
