package lab

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// closedWithin is the promise: from the client's leaving to the end of our
// connection to the engine, which the engine notices at once.
const closedWithin = 200 * time.Millisecond

// untilIdle asks the engine itself until it works on nothing and returns how
// long that took: an upper bound, since asking takes time too.
func (e *Engine) untilIdle(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	for deadline := since.Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		n := e.Processing()
		if n == 0 {
			return time.Since(since)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the engine still works on %v requests 5 s after the client left", n)
		}
	}
}

// busy waits until the one request of the test is at the engine.
func (e *Engine) busy(t *testing.T) {
	t.Helper()
	Eventually(t, 10*time.Second, "a request is at the engine", func() (bool, string) {
		n := e.Processing()
		return n == 1, fmt.Sprintf("%v requests", n)
	})
}

func TestClientThatLeavesFreesTheEngine(t *testing.T) {
	s := joinedScene(t)
	s.serveSim("sim", Sim{Tokens: 2000, IntervalMS: 5})
	s.serveSim("slow", Sim{Tokens: 10, FirstMS: 3000}) // the supervisor's own test token takes as long
	key := s.key()
	for name, tc := range map[string]struct {
		at    *API
		model string
		leave func(*testing.T, *Engine, *API, string) time.Time
	}{
		"mid-stream, over the mesh":       {s.atA(key), "sim", leaveMidStream},
		"mid-stream, at the holder":       {s.atB(key), "sim", leaveMidStream},
		"before the first byte, mesh":     {s.atA(key), "slow", leaveBeforeFirstByte},
		"before the first byte, holder":   {s.atB(key), "slow", leaveBeforeFirstByte},
		"waiting for a whole answer":      {s.atA(key), "sim", leaveWholeAnswer},
		"stalled: reads nothing, leaves":  {s.atA(key), "sim", leaveStalled},
		"mid-stream again, over the mesh": {s.atA(key), "sim", leaveMidStream},
	} {
		t.Run(name, func(t *testing.T) {
			e := s.b.EngineOf(tc.model)
			began := e.Metric("llmgw_sim_streams_aborted_total")
			left := tc.leave(t, e, tc.at, tc.model)
			took := e.untilIdle(t, left)
			t.Logf("idle after %v", took.Round(100*time.Microsecond))
			if took > closedWithin {
				t.Errorf("the engine was idle %v after the client left, want at most %v", took, closedWithin)
			}
			Eventually(t, time.Second, "the engine counts one aborted request and runs none", func() (bool, string) {
				aborted, running := e.Metric("llmgw_sim_streams_aborted_total")-began, e.Metric("llmgw_sim_streams_running")
				return aborted == 1 && running == 0, fmt.Sprintf("%v aborted, %v running", aborted, running)
			})
		})
	}
}

func leaveMidStream(t *testing.T, e *Engine, at *API, model string) time.Time {
	st := stream(t, seconds(t, 30), at, model, nil)
	read(t, st, 5)
	e.busy(t)
	st.Close()
	return time.Now()
}

func leaveBeforeFirstByte(t *testing.T, e *Engine, at *API, model string) time.Time {
	return leavePending(t, e, at, Chat(model, "Hi", true, nil))
}

func leaveWholeAnswer(t *testing.T, e *Engine, at *API, model string) time.Time {
	return leavePending(t, e, at, Chat(model, "Hi", false, nil))
}

// leavePending leaves while no header of an answer has come.
func leavePending(t *testing.T, e *Engine, at *API, body any) time.Time {
	t.Helper()
	ctx, cancel := context.WithCancel(seconds(t, 30))
	ended := make(chan error, 1)
	go func() {
		got, err := at.Ask(ctx, "POST", "/v1/chat/completions", body)
		if err == nil {
			err = fmt.Errorf("an answer came: %v", got)
		}
		ended <- err
	}()
	e.busy(t)
	cancel()
	left := time.Now()
	if err := <-ended; ctx.Err() == nil {
		t.Fatal(err)
	}
	return left
}

// leaveStalled opens a stream, reads nothing for a second and leaves: bytes
// are then in flight on every hop.
func leaveStalled(t *testing.T, e *Engine, at *API, model string) time.Time {
	st := stream(t, seconds(t, 30), at, model, nil)
	e.busy(t)
	time.Sleep(time.Second)
	st.Close()
	return time.Now()
}

// TestClientThatLeavesStopsARealDecode: llama-server stops to compute.
func TestClientThatLeavesStopsARealDecode(t *testing.T) {
	s := joinedScene(t)
	s.serveSmolLM2()
	at := s.atA(s.key())
	e := s.b.Engine(LlamaServer)
	for range 3 {
		st := stream(t, seconds(t, 60), at, "smollm2", map[string]any{"max_tokens": 3000, "ignore_eos": true})
		read(t, st, 5)
		e.busy(t)
		st.Close()
		took := e.untilIdle(t, time.Now())
		t.Logf("llama-server was idle after %v", took.Round(100*time.Microsecond))
		if took > closedWithin {
			t.Errorf("llama-server was idle %v after the client left, want at most %v", took, closedWithin)
		}
		decoded := e.Metric("llamacpp:n_decode_total")
		Always(t, 300*time.Millisecond, "llama-server decodes no further", func() (bool, string) {
			now := e.Metric("llamacpp:n_decode_total")
			return now == decoded, fmt.Sprintf("%v decodes, then %v", decoded, now)
		})
	}
}
