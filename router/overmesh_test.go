package router

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"llmgw/crdt/store"
	"llmgw/mesh"
)

// member is one box of a real mesh.
func member(t *testing.T, name string) *mesh.Mesh {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatalf("make key: %v", err)
	}
	s, err := store.Open(t.TempDir(), store.Options{Now: time.Now})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	m, err := mesh.Open(mesh.Config{Key: key, Name: name, Version: "test", Listen: "127.0.0.1:0", Store: s})
	if err != nil {
		t.Fatalf("open mesh: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); _ = m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ran
		_ = m.Close()
		_ = s.Close()
	})
	return m
}

// realPair is a node pair as of pair, connected by a real mesh.
func realPair(t *testing.T, h http.HandlerFunc) (entry, holder *node) {
	t.Helper()
	engine := httptest.NewServer(h)
	t.Cleanup(engine.Close)
	a, b := member(t, "a"), member(t, "b")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	token, err := b.NewToken(ctx, mesh.TokenOptions{})
	if err != nil {
		t.Fatalf("make token: %v", err)
	}
	if _, err := a.Join(ctx, token, false); err != nil {
		t.Fatalf("join: %v", err)
	}
	holder = newNode(t, func(c *Config) { c.Node = "box-b" })
	b.Handle(mesh.ProtocolInfer, holder.ServeInfer)
	entry = newNode(t, func(c *Config) { c.Mesh = a })
	replica := holder.serveLocally("m", engine.URL)
	replica.Peer, replica.Local = b.Self(), false
	entry.catalog.set(view("m", replica))
	return entry, holder
}

// TestOverARealMesh runs what the streams in memory stand for.
func TestOverARealMesh(t *testing.T) {
	long := `{"model":"m","x":"` + strings.Repeat("x", 4<<20) + `"}`
	gone := make(chan struct{}, 1)
	slow := 1500 * time.Millisecond // longer than one tick of the wait
	entry, holder := realPair(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.Header.Get("X-Test") {
		case "length":
			_, _ = fmt.Fprint(w, len(body))
		case "slow":
			time.Sleep(slow)
			event(w, done)
		case "die":
			event(w, "data: {}\n\n")
			die()
		case "hang", "hang early":
			if r.Header.Get("X-Test") == "hang" {
				event(w, "data: {}\n\n")
			}
			gone <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		default:
			event(w, "data: {}\n\n", done)
		}
	})
	as := func(test string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Test", test) }
	}

	t.Run("a stream", func(t *testing.T) {
		for range 100 {
			if got := text(t, send(t, entry, "POST", chatPath, chatBody)); got != "data: {}\n\n"+done {
				t.Fatalf("got %q", got)
			}
		}
	})
	t.Run("a stream leaves nothing behind", func(t *testing.T) {
		before := runtime.NumGoroutine()
		for range 100 {
			text(t, send(t, entry, "POST", chatPath, chatBody))
			send(t, entry, "POST", chatPath, `{"model":"m"}`).Body.Close()
		}
		eventually(t, "the goroutines of 200 relays ended", func() bool { return runtime.NumGoroutine() < before+50 })
	})
	t.Run("a long body", func(t *testing.T) {
		if got := text(t, send(t, entry, "POST", chatPath, long, as("length"))); got != fmt.Sprint(len(long)) {
			t.Errorf("engine got %s bytes", got)
		}
	})
	t.Run("a long prompt", func(t *testing.T) {
		if got := text(t, send(t, entry, "POST", chatPath, chatBody, as("slow"))); got != done {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a death", func(t *testing.T) {
		got := text(t, send(t, entry, "POST", chatPath, chatBody, as("die")))
		if !strings.HasPrefix(got, "data: {}\n\ndata: {\"error\":") || !strings.HasSuffix(got, done) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a refusal of a long body", func(t *testing.T) {
		target := holder.local.targets["m"]
		stale := target
		stale.Epoch = 8
		holder.local.targets["m"] = stale
		wantError(t, send(t, entry, "POST", chatPath, long), 503, "model_moving")
		holder.local.targets["m"] = target
	})
	for _, phase := range []string{"hang early", "hang"} {
		t.Run("cancel: "+phase, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "POST", entry.url+chatPath, strings.NewReader(chatBody))
			if err != nil {
				t.Fatalf("make request: %v", err)
			}
			req.Header.Set("Authorization", "Bearer good")
			req.Header.Set("X-Test", phase)
			go func() {
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			<-gone
			left := time.Now()
			cancel()
			<-gone
			t.Logf("the engine's connection ended after %v", time.Since(left))
		})
	}
}
