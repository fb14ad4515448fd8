package router

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"llmgw/router/relay"
)

// stuckHolder takes a request and never answers; gone is closed when the entry
// node has given up.
func stuckHolder(busy, gone chan struct{}) func(relay.Stream) {
	return func(s relay.Stream) {
		br := bufio.NewReader(s)
		if req, err := http.ReadRequest(br); err == nil {
			_, _ = io.Copy(io.Discard, req.Body)
		}
		close(busy)
		_, _ = io.Copy(io.Discard, br)
		_ = s.Reset()
		close(gone)
	}
}

// dyingHolder takes a request, says what it is told and dies.
func dyingHolder(says string) func(relay.Stream) {
	return func(s relay.Stream) {
		if req, err := http.ReadRequest(bufio.NewReader(s)); err == nil {
			_, _ = io.Copy(io.Discard, req.Body)
		}
		_, _ = io.WriteString(s, says)
		if says == "" {
			_ = s.Reset()
			return
		}
		// A reset would overtake what was said; the end alone is as early.
		_ = s.Close()
	}
}

func TestEngineThatDiesMidStreamEndsWithAnErrorAndTheTerminator(t *testing.T) {
	whole := "data: {\"choices\":[]}\n\n"
	for name, says := range map[string]string{"between events": whole, "within an event": whole + "data: {\"choi"} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, remote bool) {
				entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					event(w, says)
					die()
				})
				got := text(t, send(t, entry, "POST", chatPath, chatBody))
				rest, ok := strings.CutPrefix(got, whole)
				rest, ended := strings.CutSuffix(rest, done)
				if !ok || !ended || !strings.HasPrefix(rest, `data: {"error":{"message":"the engine of \"m\" failed`) || strings.Count(rest, "\n") != 2 {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

func TestHolderThatDiesMidStreamEndsWithAnErrorAndTheTerminator(t *testing.T) {
	entry := newNode(t)
	entry.catalog.set(view("m", Replica{Peer: "b"}))
	entry.mesh.set("b", dyingHolder("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\na\r\ndata: {}\n\n\r\n"))
	got := text(t, send(t, entry, "POST", chatPath, chatBody))
	if !strings.HasPrefix(got, "data: {}\n\ndata: {\"error\":") || !strings.HasSuffix(got, done) {
		t.Errorf("got %q", got)
	}
	if entry.mesh.opened != 1 {
		t.Errorf("%d attempts after the first byte", entry.mesh.opened)
	}
}

func TestEngineThatDiesBeforeItsFirstByteIsABadGateway(t *testing.T) {
	plays := map[string]http.HandlerFunc{
		"before the head": func(http.ResponseWriter, *http.Request) { die() },
		"after the head of a stream": func(w http.ResponseWriter, _ *http.Request) {
			event(w, "")
			die()
		},
		"after the head of JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			die()
		},
	}
	for name, play := range plays {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, remote bool) {
				for _, body := range []string{chatBody, `{"model":"m"}`} {
					entry, _ := pair(t, remote, play)
					wantError(t, send(t, entry, "POST", chatPath, body), 502, "engine_failed")
				}
			})
		})
	}
}

func TestEngineThatDiesWithinJSONCutsTheConnection(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, `{"a"`)
			w.(http.Flusher).Flush()
			die()
		})
		resp := send(t, entry, "POST", chatPath, `{"model":"m"}`)
		if got, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("a cut answer looks whole: %q", got)
		}
	})
}

func TestEngineThatIsNotThereIsABadGateway(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	n := newNode(t)
	n.catalog.set(view("m", n.serveLocally("m", gone.URL)))
	wantError(t, send(t, n, "POST", chatPath, chatBody), 502, "engine_failed")
}

func TestEngineOfAnotherKeyIsNotBelieved(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":{"message":"Invalid API Key"}}`, http.StatusUnauthorized)
		})
		wantError(t, send(t, entry, "POST", chatPath, chatBody), 502, "engine_failed")
	})
}

// mended is a mesh of one entry and the holders b, which behaves as told, and
// c, which serves.
func mended(t *testing.T, b func(relay.Stream)) *node {
	t.Helper()
	entry, c := pair(t, true, func(w http.ResponseWriter, _ *http.Request) { event(w, done) })
	good := entry.catalog.List()[0].Replicas[0]
	good.Peer = "c"
	good.InFlight = 5 // b is asked first
	entry.mesh.set("c", c.ServeInfer)
	entry.mesh.set("b", b)
	entry.catalog.set(view("m", Replica{Peer: "b", Epoch: 7}, good))
	return entry
}

func TestFailuresBeforeTheFirstByteGoToAnotherHolder(t *testing.T) {
	cases := map[string]func(relay.Stream){
		"dies at once":       func(s relay.Stream) { _ = s.Reset() },
		"dies after reading": dyingHolder(""),
		"dies in the head":   dyingHolder("HTTP/1.1 200"),
		"dies after it":      dyingHolder("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"),
		"speaks no HTTP":     dyingHolder("\x13/multistream\n"),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			entry := mended(t, b)
			if got := text(t, send(t, entry, "POST", chatPath, chatBody)); got != done || entry.mesh.opened != 2 {
				t.Errorf("got %q after %d attempts", got, entry.mesh.opened)
			}
		})
	}
}

func TestRefusalsGoToAnotherHolderAndAreNeverShown(t *testing.T) {
	for _, kind := range []relay.RefusalKind{
		relay.RefusedStale, relay.RefusedNotHere, relay.RefusedBusy, relay.RefusedStopping, relay.RefusedEngine, "of_the_future",
	} {
		t.Run(string(kind), func(t *testing.T) {
			b := newNode(t, func(c *Config) { c.Node = "box-b" })
			b.local.refuse = &relay.Refusal{Kind: kind, Detail: "secret words"}
			entry := mended(t, b.ServeInfer)
			if got := text(t, send(t, entry, "POST", chatPath, chatBody)); got != done {
				t.Errorf("got %q", got)
			}
			if _, asked := b.local.state(); asked != 1 {
				t.Errorf("the refusing holder was asked %d times", asked)
			}
			if n := counted(b.metrics.refusals.WithLabelValues(string(kind))); n != 1 {
				t.Errorf("%v refusals are counted", n)
			}
		})
	}
}

func TestRefusedByAll(t *testing.T) {
	cases := map[relay.RefusalKind]struct {
		status int
		code   string
	}{
		relay.RefusedBusy:     {429, "rate_limit_exceeded"},
		relay.RefusedStale:    {503, "model_moving"},
		relay.RefusedNotHere:  {503, "model_moving"},
		relay.RefusedStopping: {503, "model_moving"},
		relay.RefusedEngine:   {502, "engine_failed"},
	}
	for kind, c := range cases {
		t.Run(string(kind), func(t *testing.T) {
			bothWays(t, func(t *testing.T, remote bool) {
				entry, holder := pair(t, remote, nil)
				holder.local.refuse = &relay.Refusal{Kind: kind, Detail: "secret words"}
				resp := send(t, entry, "POST", chatPath, chatBody)
				e := wantError(t, resp, c.status, c.code)
				if strings.Contains(e.Error.Message, "secret") || resp.Header.Get("X-Llmgw-Refusal") != "" {
					t.Errorf("the refusal shows: %+v, %v", e, resp.Header)
				}
				if resp.Header.Get("Retry-After") != "1" {
					t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
				}
			})
		})
	}
}

func TestAttemptsHaveOneBudget(t *testing.T) {
	entry := newNode(t)
	var replicas []Replica
	for i := range 10 {
		peer := fmt.Sprint("p", i)
		replicas = append(replicas, Replica{Peer: peer, Node: "shed", Epoch: 7})
		entry.mesh.set(peer, dyingHolder(""))
	}
	entry.catalog.set(view("m", replicas...))
	// The boxes are lost, not their engines: that is what the client is told.
	e := wantError(t, send(t, entry, "POST", chatPath, chatBody), 503, "node_unreachable")
	if !strings.Contains(e.Error.Message, "shed") {
		t.Errorf("the box is not named: %s", e.Error.Message)
	}
	if entry.mesh.opened != maxAttempts {
		t.Errorf("%d attempts", entry.mesh.opened)
	}
}

func TestReplicaThatMovedIsAskedUnderItsNewEpoch(t *testing.T) {
	entry, holder := pair(t, true, func(w http.ResponseWriter, _ *http.Request) { event(w, done) })
	fresh := entry.catalog.List()[0].Replicas[0]
	stale := fresh
	stale.Epoch = 6
	entry.catalog.set(view("m", stale))
	entry.mesh.set("b", func(s relay.Stream) {
		entry.catalog.set(view("m", fresh)) // presence comes meanwhile
		holder.ServeInfer(s)
	})
	if got := text(t, send(t, entry, "POST", chatPath, chatBody)); got != done {
		t.Errorf("got %q", got)
	}
}

func TestOtherWeightsAreRefused(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		entry, holder := pair(t, remote, nil)
		target := holder.local.targets["m"]
		target.Digest = "other"
		holder.local.targets["m"] = target
		wantError(t, send(t, entry, "POST", chatPath, chatBody), 503, "model_moving")
	})
}

func TestHolderServesOnlyTheEnginesPaths(t *testing.T) {
	var reached atomic.Int64
	_, holder := pair(t, true, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for _, path := range []string{"/metrics", "/slots", "/v1/models", "/chat/completions", "//v1/chat/completions", "/v1/chat/completions/../../slots"} {
		entry, far, err := streamPair()
		if err != nil {
			t.Fatalf("streams: %v", err)
		}
		served := make(chan struct{})
		go func() { defer close(served); holder.ServeInfer(far) }()
		hop := relay.Hop{Model: "m", Epoch: 7}
		_, err = relay.StartRemote(t.Context(), entry, &relay.Call{Path: path, Body: []byte("{}")}, hop, relay.DefaultLimits(), nil)
		if err == nil || !strings.Contains(err.Error(), string(relay.RefusedInvalid)) {
			t.Errorf("%s: %v", path, err)
		}
		<-served
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the engine was reached %d times", n)
	}
}

func TestHolderCountsTheBodiesOfOthersToo(t *testing.T) {
	entry, _ := pair(t, true, func(w http.ResponseWriter, _ *http.Request) { event(w, done) })
	holder := newNode(t, func(c *Config) { c.BodyBudget = 10 })
	holder.serveLocally("m", "http://127.0.0.1:1")
	entry.mesh.set("b", holder.ServeInfer)
	wantError(t, send(t, entry, "POST", chatPath, chatBody), 429, "rate_limit_exceeded")
}
