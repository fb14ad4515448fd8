package lab

import (
	"bytes"
	"os"
	"path/filepath"
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

// TestLoadThatLlamaServerRefuses: a real engine and a file whose header is
// sound and names an architecture that nobody knows.
func TestLoadThatLlamaServerRefuses(t *testing.T) {
	s := joinedScene(t)
	Warm(t)
	s.b.CLI("engines", "install", "llamacpp")
	s.b.CLI("pull", SmolLM2, "--as", "whole")
	path := s.File("odd.gguf", string(otherArchitecture(t, weights(t, s.b))), 0o644)
	s.b.CLI("pull", "file:"+path, "--as", "odd")
	s.b.CLI("load", "odd")
	awaitProblem(t, s.atA(s.key()), "odd", "unknown model architecture")
}

// weights reads the one large file that the box has pulled.
func weights(t *testing.T, b *Box) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.StateDir(), "weights", "blobs", "sha256-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("want one weight file on %s, found %v, %v", b.Name, files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// otherArchitecture renames the value of general.architecture, a string with
// its length before it.
func otherArchitecture(t *testing.T, gguf []byte) []byte {
	t.Helper()
	const llama, zlama = "\x05\x00\x00\x00\x00\x00\x00\x00llama", "\x05\x00\x00\x00\x00\x00\x00\x00zlama"
	if !bytes.Contains(gguf[:4096], []byte(llama)) {
		t.Fatal("the header does not name its architecture")
	}
	return bytes.Replace(gguf, []byte(llama), []byte(zlama), 1)
}

// TestCutFileIsRefusedAtThePull: half a file is no model, whatever it begins with.
func TestCutFileIsRefusedAtThePull(t *testing.T) {
	l := New(t)
	Warm(t)
	b := l.Box("b")
	b.Start()
	b.CLI("pull", SmolLM2, "--as", "whole")
	path := l.File("cut.gguf", string(weights(t, b)[:60_000_000]), 0o644)
	if r := b.Try("pull", "file:"+path, "--as", "cut"); r.Code == 0 || !strings.Contains(r.Stderr, "cut.gguf") {
		t.Errorf("want a refusal that names the file:\n%s", r)
	}
	if n := len(JSON[ui.ModelList](b, "models").Models); n != 1 {
		t.Errorf("%d models are in the catalog", n)
	}
	weights(t, b) // and only one file is left
}
