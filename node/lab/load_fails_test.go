package lab

import (
	"strings"
	"testing"
	"time"

	"llmgw/ui"
)

// awaitProblem waits until a request at `at` is answered with 503 that tells
// these words, and returns the answer.
func awaitProblem(t *testing.T, at *API, model string, words ...string) Answer {
	t.Helper()
	var got Answer
	Eventually(t, 60*time.Second, "503 tells "+strings.Join(words, ", "), func() (bool, string) {
		var err error
		got, err = at.Ask(seconds(t, 10), "POST", "/v1/chat/completions", Chat(model, "Hi", true, nil))
		if err != nil || got.Status != 503 {
			return false, got.String()
		}
		for _, w := range words {
			if !strings.Contains(got.Body, w) {
				return false, got.String()
			}
		}
		return true, ""
	})
	if got.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", got)
	}
	return got
}

// TestModelThatIsNotLoadedSaysHowTo: known, and nobody asked to serve it.
func TestModelThatIsNotLoadedSaysHowTo(t *testing.T) {
	s := joinedScene(t)
	s.b.PullSim("sim", Sim{Tokens: 1})
	awaitProblem(t, s.atA(s.key()), "sim", "llmgw load sim")
}

func TestLoadThatFailsTellsTheEnginesLastLines(t *testing.T) {
	s := joinedScene(t)
	s.b.PullSim("broken", Sim{Tokens: 1, Fail: "load"})
	s.b.CLI("load", "broken")
	key := s.key()
	var lines []string
	Eventually(t, 60*time.Second, "ps shows the engine's last lines", func() (bool, string) {
		r, _ := s.a.Replica("broken")
		lines = r.LastLines
		return len(lines) > 0, s.a.CLI("ps")
	})
	got := awaitProblem(t, s.atA(key), "broken", lines[len(lines)-1])
	t.Log(got)
	if out := s.a.CLI("models"); !strings.Contains(out, "broken:") {
		t.Errorf("llmgw models does not tell the problem:\n%s", out)
	}
	if st := JSON[ui.Status](s.a, "status"); st.Verdict != ui.VerdictDegraded {
		t.Errorf("status says %s", st.Verdict)
	}
	if r := s.a.Try("load", "broken", "--wait", "--timeout", "30s"); r.Code == 0 {
		t.Errorf("load --wait took a broken model for loaded:\n%s", r)
	}
	s.a.CLI("unload", "broken")
	Eventually(t, 15*time.Second, "the broken replica goes away", func() (bool, string) {
		_, there := s.a.Replica("broken")
		return !there, s.a.CLI("ps")
	})
}

// TestBrokenGGUFIsRefusedOrTold: a real engine, a file that begins well.
func TestBrokenGGUFTellsLlamaServersWords(t *testing.T) {
	Warm(t)
	s := joinedScene(t)
	s.b.CLI("engines", "install", "llamacpp")
	s.b.CLI("pull", SmolLM2, "--as", "whole")
	path := s.File("cut.gguf", "", 0o644)
	r, err := s.b.Run(seconds(t, 30), "sh", "-c", `head -c 60000000 "$(find "$1" -name 'sha256-*' -size +90M | head -n1)" > "$2"`, "sh", s.b.StateDir(), path)
	if err != nil || r.Code != 0 {
		t.Fatalf("%v %s", err, r)
	}
	if r := s.b.Try("pull", "file:"+path, "--as", "cut"); r.Code != 0 {
		t.Logf("refused at once, which is as good: %s", r.Stderr)
		return
	}
	s.b.CLI("load", "cut")
	awaitProblem(t, s.atA(s.key()), "cut", "tensor")
}
