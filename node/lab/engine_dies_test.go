package lab

import (
	"testing"
	"time"

	"llmgw/mesh/catalog"

	"golang.org/x/sys/unix"
)

// engineCase is one engine that a fault is tried on.
type engineCase struct {
	model, word string
	more        map[string]any // added to a request, to make it long
	serve       func(scene)
}

func engineCases() map[string]engineCase {
	return map[string]engineCase{
		"simulated": {
			model: "sim", word: SimEngine,
			serve: func(s scene) { s.serveSim("sim", Sim{Tokens: 2000, IntervalMS: 5}) },
		},
		"llama.cpp": {
			model: "smollm2", word: LlamaServer, more: map[string]any{"max_tokens": 3000, "ignore_eos": true},
			serve: func(s scene) { s.serveSmolLM2() },
		},
	}
}

func TestEngineThatDiesMidStream(t *testing.T) {
	for name, tc := range engineCases() {
		t.Run(name, func(t *testing.T) {
			s := joinedScene(t)
			tc.serve(s)
			key := s.key()
			for _, at := range []*API{s.atA(key), s.atB(key)} { // over the mesh, then at the holder
				killMidStream(t, s, at, tc)
			}
		})
	}
}

func killMidStream(t *testing.T, s scene, at *API, tc engineCase) {
	t.Helper()
	died := s.b.Await(tc.word, startTimeout)
	st := stream(t, seconds(t, 60), at, tc.model, tc.more)
	read(t, st, 5)
	if err := s.b.Signal(died.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	tale, err := st.Rest()
	if err != nil {
		t.Fatalf("the stream was cut: %v", err)
	}
	if len(tale.Failure) != 1 || tale.Failure[0].Error.Message == "" || !tale.Done {
		t.Errorf("want one error frame, then [DONE]; got %+v", tale)
	}
	t.Logf("told after %v: %+v", time.Since(began).Round(time.Millisecond), tale.Failure)
	s.b.Gone(died, 5*time.Second)
	back := s.b.Await(tc.word, readyWithin)
	if back.PID == died.PID {
		t.Fatal("no new engine was started")
	}
	Eventually(t, readyWithin, "a knows the new engine as ready", func() (bool, string) {
		r, ok := s.a.Replica(tc.model)
		return ok && r.State == string(catalog.ReplicaReady) && r.PID != nil && *r.PID == back.PID, s.a.CLI("ps")
	})
	short := Chat(tc.model, "Hi", true, map[string]any{"max_tokens": 4})
	next, err := at.Stream(seconds(t, 30), "/v1/chat/completions", short)
	if err != nil {
		t.Fatalf("the next request: %v", err)
	}
	if tale, err = next.Rest(); err != nil || !tale.Done || len(tale.Failure) > 0 || tale.Chunks == 0 {
		t.Errorf("the next request: %+v, %v", tale, err)
	}
}
