package lab

import (
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// TestDaemonThatDiesFindsItsEngineAgain: kill -9 of b's daemon leaves the
// engine; the daemon that comes back adopts it, and a follows.
func TestDaemonThatDiesFindsItsEngineAgain(t *testing.T) {
	for name, tc := range engineCases() {
		t.Run(name, func(t *testing.T) {
			s := joinedScene(t)
			tc.serve(s)
			at := s.atA(s.key())
			engine := s.b.Await(tc.word, startTimeout)
			st := stream(t, seconds(t, 60), at, tc.model, tc.more)
			read(t, st, 5)
			s.b.Kill()
			if tale, err := st.Rest(); err != nil || !tale.Done || len(tale.Failure) != 1 {
				t.Errorf("the stream of a killed holder: want an error frame, then [DONE]; got %+v, %v", tale, err)
			}
			got, err := at.Ask(seconds(t, 20), "POST", "/v1/chat/completions", Chat(tc.model, "Hi", false, nil))
			if err != nil || got.Status != 503 || got.Header.Get("Retry-After") == "" {
				t.Errorf("while b is away: want 503 with Retry-After; got %v, %v", got, err)
			}
			s.b.Start()
			began := time.Now()
			Eventually(t, 30*time.Second, "a knows the adopted replica as ready", func() (bool, string) {
				r, ok := s.a.Replica(tc.model)
				return ok && r.State == string(catalog.ReplicaReady) && r.Adopted, s.a.CLI("ps", "--json")
			})
			t.Logf("a knows the adopted replica %v after b's API answered", time.Since(began).Round(time.Millisecond))
			if same := s.b.Await(tc.word, time.Second); same.PID != engine.PID || same.Start != engine.Start {
				t.Errorf("engine %d was replaced by %d", engine.PID, same.PID)
			}
			s.a.Sees(s.b, 15*time.Second, ui.NodeLive)
			again, err := at.Stream(seconds(t, 30), "/v1/chat/completions", Chat(tc.model, "Hi", true, map[string]any{"max_tokens": 4}))
			if err != nil {
				t.Fatal(err)
			}
			if tale, err := again.Rest(); err != nil || !tale.Done || tale.Chunks == 0 || len(tale.Failure) > 0 {
				t.Errorf("the next request: %+v, %v", tale, err)
			}
		})
	}
}

// TestStoppedDaemonStopsItsEngines: SIGTERM is a clean end, and the membership
// outlives it.
func TestStoppedDaemonStopsItsEngines(t *testing.T) {
	s := joinedScene(t)
	s.serveSim("sim", Sim{Tokens: 3})
	took := s.b.Stop()
	t.Logf("stopped in %v", took)
	if left := s.b.Processes(""); len(left) != 0 {
		t.Errorf("still there after SIGTERM: %+v", left)
	}
	s.b.Start()
	s.a.Sees(s.b, 15*time.Second, ui.NodeLive)
	s.a.AwaitReplica("sim", string(catalog.ReplicaReady), 30*time.Second)
}

// TestEngineThatDiedWithItsDaemonIsStartedAgain: the pidfile of an engine that
// is gone must not be believed.
func TestEngineThatDiedWithItsDaemonIsStartedAgain(t *testing.T) {
	s := joinedScene(t)
	s.serveSim("sim", Sim{Tokens: 3})
	engine := s.b.Engine(SimEngine)
	s.b.Kill()
	if err := s.b.Signal(engine.PID, 9); err != nil {
		t.Fatal(err)
	}
	s.b.Gone(engine.Process, 5*time.Second)
	s.b.Start()
	r := s.a.AwaitReplica("sim", string(catalog.ReplicaReady), 30*time.Second)
	if r.Adopted {
		t.Errorf("an engine that was gone counts as adopted: %+v", r)
	}
}
