package process

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"llmgw/mesh/catalog"
)

// realEngine finds llama.cpp and a model, or skips.
func realEngine(t *testing.T) (binary, model string) {
	t.Helper()
	binary, model = os.Getenv("LLMGW_TEST_LLAMA_SERVER"), os.Getenv("LLMGW_TEST_GGUF")
	if binary == "" || model == "" {
		if os.Getenv("LLMGW_CI") == "1" {
			t.Fatal("LLMGW_TEST_LLAMA_SERVER and LLMGW_TEST_GGUF are not set")
		}
		t.Skip("LLMGW_TEST_LLAMA_SERVER and LLMGW_TEST_GGUF are not set")
	}
	return binary, model
}

func realShard(model string) catalog.Shard {
	return catalog.Shard{
		Model: catalog.Model{
			ID: "org/sim:1", Name: "Org/Real:1",
			Source: catalog.Source{Digest: "sha256:cd", Format: catalog.FormatGGUF, Architecture: "llama", ContextTrain: 8192},
		},
		Profile: catalog.Profile{ID: "cpu", Engine: catalog.EngineLlamaCpp, Context: 1024, Parallel: 2, Embeddings: true},
		Epoch:   1, Weights: model,
		Devices: []catalog.Device{{ID: "cpu", Kind: catalog.DeviceCPU}},
	}
}

func realConfig(binary string) func(*Config) {
	return func(c *Config) {
		c.Binary = func(string, string) (string, bool) { return binary, true }
		c.Timing = Timing{}
	}
}

func TestRealEngineLivesThroughItAll(t *testing.T) {
	t.Parallel()
	binary, model := realEngine(t)
	r := newRig(t, `{}`, realConfig(binary))
	begun := time.Now()
	r.ensure(realShard(model))
	before := r.state(catalog.ReplicaReady)
	t.Logf("ready after %s", time.Since(begun).Round(time.Millisecond))
	if before.Context != 1024 || before.Slots != 2 {
		t.Errorf("%+v", before)
	}
	t.Run("answers with its key only", func(t *testing.T) {
		target, release, err := r.Acquire("org/sim:1")
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if body, err := ask(t.Context(), target, `{"prompt":"The sky is","max_tokens":4}`); err != nil || !strings.Contains(body, "Org/Real:1") {
			t.Errorf("%v: %s", err, body)
		}
		if _, err := ask(t.Context(), Target{URL: target.URL, Key: "x"}, `{"prompt":"x"}`); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("wrong key: %v", err)
		}
		if status, body := embed(t, target); status != http.StatusOK || !strings.Contains(body, `"embedding":[`) {
			t.Errorf("embeddings: %d %.200s", status, body)
		}
	})
	t.Run("hides its key", func(t *testing.T) {
		rec := r.pidfile()
		argv, err := os.ReadFile(procPath(before.PID, "cmdline"))
		if err != nil || strings.Contains(string(argv), rec.Key) {
			t.Errorf("argv %q: %v", argv, err)
		}
		log, err := os.ReadFile(filepath.Join(r.replicaDir(), logName))
		if err != nil || len(log) == 0 || strings.Contains(string(log), rec.Key) {
			t.Errorf("log of %d bytes: %v", len(log), err)
		}
	})
	t.Run("is adopted", func(t *testing.T) {
		if err := r.Close(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		r.open(realConfig(binary))
		if err := r.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list := r.Status(); len(list) != 1 || list[0].PID != before.PID || list[0].State != catalog.ReplicaReady {
			t.Fatalf("%+v", list)
		}
	})
	t.Run("comes back after SIGKILL", func(t *testing.T) {
		kill(t, before.PID, syscall.SIGKILL)
		r.until("another process is ready", func() bool {
			s := r.Status()[0]
			return s.State == catalog.ReplicaReady && s.PID != before.PID
		})
	})
	t.Run("ends on SIGTERM", func(t *testing.T) {
		group := r.pidfile().group()
		r.Release("org/sim:1", 0, "")
		r.until("forgotten", func() bool { return len(r.Status()) == 0 })
		if left := group.members(); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

func embed(t *testing.T, target Target) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, target.URL+"/v1/embeddings", strings.NewReader(`{"input":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+target.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestRealEngineSaysWhyItCannotLoad(t *testing.T) {
	t.Parallel()
	binary, model := realEngine(t)
	r := newRig(t, `{}`, realConfig(binary))
	b := make([]byte, 1<<20)
	f, err := os.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.ReadFull(f, b); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.gguf")
	if err := os.WriteFile(cut, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r.ensure(realShard(cut))
	s := r.state(catalog.ReplicaQuarantined)
	// llama-server writes its log by a thread and mostly loses its very last line on a
	// busy machine.
	if !slices.ContainsFunc(s.LastLines, func(l string) bool { return strings.Contains(l, "failed to load model") }) {
		t.Errorf("reason %q, last lines %q", s.Reason, s.LastLines)
	}
}
