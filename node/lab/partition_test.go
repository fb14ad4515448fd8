package lab

import (
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// TestCutBoxIsNotRoutedToAndComesBack: suspect, then dead, then live again;
// clients hear 503 soon instead of waiting.
func TestCutBoxIsNotRoutedToAndComesBack(t *testing.T) {
	for name, tc := range map[string]struct{ cut, heal func(b *Box) }{
		"cut":       {(*Box).Cut, (*Box).Heal},
		"unplugged": {(*Box).Unplug, (*Box).Heal},
		"mute":      {(*Box).Mute, (*Box).Heal},
		"deaf":      {(*Box).Deafen, (*Box).Heal},
		"frozen":    {(*Box).Pause, (*Box).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := joinedScene(t)
			s.serveSim("sim", Sim{Tokens: 4})
			at := s.atA(s.key())
			tc.cut(s.b)
			began := time.Now()
			s.a.Sees(s.b, 10*time.Second, ui.NodeSuspect, ui.NodeDead)
			t.Logf("suspected after %v", time.Since(began).Round(time.Millisecond))
			asked := time.Now()
			got, err := at.Ask(seconds(t, 30), "POST", "/v1/chat/completions", Chat("sim", "Hi", false, nil))
			if err != nil || got.Status != 503 {
				t.Errorf("while b is away: %v, %v", got, err)
			}
			if took := time.Since(asked); took > 5*time.Second {
				t.Errorf("the 503 took %v", took)
			}
			s.a.Sees(s.b, 25*time.Second, ui.NodeDead)
			tc.heal(s.b)
			began = time.Now()
			s.a.Sees(s.b, 20*time.Second, ui.NodeLive)
			t.Logf("live again after %v", time.Since(began).Round(time.Millisecond))
			s.a.AwaitReplica("sim", string(catalog.ReplicaReady), 20*time.Second)
			if r, _ := s.a.Replica("sim"); r.Restarts != 0 {
				t.Errorf("the cut restarted the engine: %+v", r)
			}
			got, err = at.Ask(seconds(t, 20), "POST", "/v1/chat/completions", Chat("sim", "Hi", false, nil))
			if err != nil || got.Status != 200 {
				t.Errorf("after the cut: %v, %v", got, err)
			}
		})
	}
}

// TestStreamOfACutBoxEndsWithAnError: a stream that broke off mid-way is told,
// also when nothing tells the entry that the other end is gone.
func TestStreamOfACutBoxEndsWithAnError(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	s.serveSim("sim", Sim{Tokens: 100_000, IntervalMS: 5})
	st := stream(t, seconds(t, 90), s.atA(s.key()), "sim", nil)
	read(t, st, 5)
	s.b.Cut()
	began := time.Now()
	tale, err := st.Rest()
	if err != nil || !tale.Done || len(tale.Failure) != 1 {
		t.Errorf("want an error frame, then [DONE]; got %+v, %v", tale.Failure, err)
	}
	if took := time.Since(began); took > 70*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestRequestOutlivesAShortCut: a cut too short for a box to be given up delays what
// was asked in it and breaks nothing.
func TestRequestOutlivesAShortCut(t *testing.T) {
	t.Parallel()
	s := joinedScene(t)
	s.serveSim("sim", Sim{Tokens: 4})
	at := s.atA(s.key())
	for _, streamed := range []bool{false, true} {
		s.b.Cut()
		cut := time.AfterFunc(2200*time.Millisecond, s.b.Heal)
		got, err := at.Ask(seconds(t, 30), "POST", "/v1/chat/completions", Chat("sim", "Hi", streamed, nil))
		if err != nil || got.Status != 200 || streamed && !strings.Contains(string(got.Body), "[DONE]") {
			t.Errorf("streamed %v: %v, %v", streamed, got, err)
		}
		if cut.Stop() {
			t.Error("it was answered during the cut")
		}
		s.a.Sees(s.b, 20*time.Second, ui.NodeLive)
	}
}
