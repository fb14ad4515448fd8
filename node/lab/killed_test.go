package lab

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// killScene has a model on boxes b and c; box a is asked.
func killScene(t *testing.T, sim Sim) (s scene, c *Box, at *API) {
	t.Helper()
	s = joinedScene(t)
	c = s.Box("c")
	c.Start()
	c.Join(s.a)
	s.b.PullSim("sim", sim)
	c.PullSim("sim", sim)
	knowWeights(t, 2, s.a, s.b, c)
	s.a.CLI("scale", "sim", "--replicas", "2")
	for _, b := range []*Box{s.b, c} {
		s.a.AwaitReplicaOn("sim", b, readyWithin)
	}
	at = s.atA(s.key())
	return s, c, at
}

// busy finds which of the boxes has a relay in its hands.
func busy(t *testing.T, boxes ...*Box) *Box {
	t.Helper()
	var found *Box
	Eventually(t, 20*time.Second, "a box has the request", func() (bool, string) {
		for _, b := range boxes {
			if e := b.EngineOf("sim"); e.Metric("llamacpp:requests_processing") > 0 {
				found = b
				return true, ""
			}
		}
		return false, "none has"
	})
	return found
}

// TestAHolderThatDiesBeforeItsFirstByteIsReplaced: the client gets a whole answer from
// the other replica, and knows nothing of it.
func TestAHolderThatDiesBeforeItsFirstByteIsReplaced(t *testing.T) {
	t.Parallel()
	s, c, at := killScene(t, Sim{Tokens: 8, FirstMS: 4000})
	for _, streams := range []bool{true, false} {
		type result struct {
			answer Answer
			err    error
		}
		got := make(chan result, 1)
		go func() {
			answer, err := at.Ask(seconds(t, 90), http.MethodPost, "/v1/chat/completions", Chat("sim", "Hi", streams, nil))
			got <- result{answer, err}
		}()
		holder := busy(t, s.b, c)
		holder.Kill()
		began := time.Now()
		r := <-got
		t.Logf("box %s was killed; the answer came %v later", holder.Name, time.Since(began).Round(time.Millisecond))
		if r.err != nil || r.answer.Status != http.StatusOK || r.answer.Failure().Error.Code != "" {
			t.Errorf("stream %v: %v, %v", streams, r.answer, r.err)
		}
		holder.Start()
		for _, b := range []*Box{s.b, c} {
			s.a.AwaitReplicaOn("sim", b, readyWithin)
		}
	}
}

// TestAHolderThatDiesAfterItsFirstByteEndsTheStream: what was said cannot be said
// again, so the client is told and the stream ends in form.
func TestAHolderThatDiesAfterItsFirstByteEndsTheStream(t *testing.T) {
	t.Parallel()
	s, c, at := killScene(t, Sim{Tokens: 100_000, IntervalMS: 5})
	st := stream(t, seconds(t, 90), at, "sim", nil)
	read(t, st, 5)
	busy(t, s.b, c).Kill()
	tale, err := st.Rest()
	if err != nil || !tale.Done || len(tale.Failure) != 1 {
		t.Errorf("want an error frame, then [DONE]; got %+v, %v", tale.Failure, err)
	}
}

// TestAnEntryThatDiesFreesTheEngine: nobody takes the answer any more.
func TestAnEntryThatDiesFreesTheEngine(t *testing.T) {
	t.Parallel()
	s, c, at := killScene(t, Sim{Tokens: 100_000, IntervalMS: 5})
	st := stream(t, seconds(t, 90), at, "sim", nil)
	read(t, st, 5)
	holder := busy(t, s.b, c)
	s.a.Kill()
	if _, err := st.Rest(); err == nil {
		t.Error("the client's stream ended in order")
	}
	e := holder.EngineOf("sim")
	Eventually(t, 30*time.Second, "the engine works for nobody", func() (bool, string) {
		n := e.Metric("llmgw_sim_streams_running")
		return n == 0, "streams are running"
	})
}

// TestAStalledClientIsNobodyElsesConcern: one client takes nothing of a long answer
// while fifty others get theirs as before.
func TestAStalledClientIsNobodyElsesConcern(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	s.b.PullSim("sim", Sim{Tokens: 40, IntervalMS: 5})
	s.load("sim", 15*time.Second)
	s.b.PullSim("flood", Sim{Tokens: 1 << 20})
	s.load("flood", 15*time.Second)
	at := s.atA(s.key())
	round := func() time.Duration {
		took := make([]time.Duration, 50)
		var clients sync.WaitGroup
		for i := range took {
			clients.Go(func() {
				began := time.Now()
				if err := oneStream(seconds(t, 60), at, 40); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
				took[i] = time.Since(began)
			})
		}
		clients.Wait()
		slices.Sort(took)
		return took[len(took)/2]
	}
	round() // connections are made
	before := round()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	stalled := stream(t, ctx, at, "flood", nil)
	read(t, stalled, 1)
	during := round()
	t.Logf("the middle one of 50 streams took %v, and %v beside a client that takes nothing", before, during)
	if during > 5*before {
		t.Errorf("the others took %v instead of %v", during, before)
	}
	leave()
	e := s.b.EngineOf("flood")
	Eventually(t, 60*time.Second, "the engine has stopped", func() (bool, string) {
		return e.Metric("llmgw_sim_streams_running") == 0, "it goes on"
	})
}
