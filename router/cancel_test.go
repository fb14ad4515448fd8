package router

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// leave starts a request whose context ends by the returned function.
func leave(t *testing.T, n *node, body string) (cancel func(), answer <-chan *http.Response) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	got := make(chan *http.Response, 1)
	go func() {
		defer close(got)
		req, err := http.NewRequestWithContext(ctx, "POST", n.url+chatPath, strings.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer good")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			got <- resp
		}
	}()
	return stop, got
}

// TestCancelReachesTheEngineInEachPhase sees from the engine's side that its
// connection ends when the client leaves.
func TestCancelReachesTheEngineInEachPhase(t *testing.T) {
	phases := map[string]struct {
		says  []string // before the engine falls silent
		flows bool     // the client has a part of the answer
	}{
		"before the head":   {nil, false},
		"after the head":    {[]string{""}, false},
		"in the stream":     {[]string{"data: {}\n\n", "data: {}\n\n"}, true},
		"within an event":   {[]string{"data: {}\n\n", "data: {"}, true},
		"before its end":    {[]string{"data: {}\n\n" + done[:len("data: [DON")]}, true},
		"behind the client": {[]string{"data: {}\n\n"}, true},
	}
	for name, c := range phases {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, remote bool) {
				busy, gone := make(chan struct{}), make(chan struct{})
				entry, holder := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if c.says != nil {
						event(w, c.says...)
					}
					close(busy)
					<-r.Context().Done()
					close(gone)
				})
				cancel, answer := leave(t, entry, chatBody)
				<-busy
				if c.flows {
					resp := <-answer
					if _, err := io.ReadFull(resp.Body, make([]byte, len("data: {}\n\n"))); err != nil {
						t.Errorf("read: %v", err)
					}
				}
				cancel()
				<-gone
				eventually(t, "the client's leaving is noted", func() bool { return entry.requestsCounted(t, "chat", "499") == 1 })
				if remote {
					served := holder.metrics.relays.WithLabelValues(kindServed, outcomeAborted)
					eventually(t, "the holder noted it", func() bool { return counted(served) == 1 })
				}
				entry.checkReleased(t)
			})
		})
	}
}

// TestCloseAfterTheTerminatorIsANormalEnd: SDKs close once they saw it.
func TestCloseAfterTheTerminatorIsANormalEnd(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		gone := make(chan struct{})
		entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			event(w, done)
			<-r.Context().Done() // an engine that is slow to end its answer
			close(gone)
		})
		cancel, answer := leave(t, entry, chatBody)
		resp := <-answer
		if _, err := io.ReadFull(resp.Body, make([]byte, len(done))); err != nil {
			t.Errorf("read: %v", err)
		}
		cancel()
		<-gone
		eventually(t, "the answer counts as whole", func() bool { return entry.requestsCounted(t, "chat", "200") == 1 })
	})
}

func TestCancelWhileThePeerDoesNotAnswer(t *testing.T) {
	entry := newNode(t)
	entry.catalog.set(view("m", Replica{Peer: "b", Epoch: 7}))
	busy, gone := make(chan struct{}), make(chan struct{})
	entry.mesh.set("b", stuckHolder(busy, gone))
	cancel, _ := leave(t, entry, chatBody)
	<-busy
	cancel()
	<-gone
}

// TestCancelsLeaveNoLoadBehind: a count that aborts leave raised sends all
// traffic elsewhere after a while.
func TestCancelsLeaveNoLoadBehind(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		entered := make(chan struct{})
		entry, holder := pair(t, remote, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			entered <- struct{}{}
			<-r.Context().Done()
		})
		for range 50 {
			cancel, _ := leave(t, entry, chatBody)
			<-entered
			cancel()
		}
		entry.checkReleased(t)
		holder.checkReleased(t)
	})
}

func TestClientThatLeavesWhileItSendsIsForgotten(t *testing.T) {
	n := newNode(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	head := "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: 99\r\n\r\n{"
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatalf("send: %v", err)
	}
	eventually(t, "the body is being read", func() bool { return n.bodies.held.Load() > 0 })
	if err := conn.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	eventually(t, "the client's leaving is noted", func() bool { return n.requestsCounted(t, "chat", "499") == 1 })
	n.checkReleased(t)
}

// TestClientThatReadsNothingIsGivenUp: it keeps its connection, but an engine
// must not compute for a reader that has stopped.
func TestClientThatReadsNothingIsGivenUp(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		gone := make(chan struct{})
		entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
			defer close(gone)
			_, _ = io.Copy(io.Discard, r.Body)
			large := "data: \"" + strings.Repeat("x", 8000) + "\"\n\n"
			for r.Context().Err() == nil {
				event(w, large)
			}
		})
		entry.cfg.Limits.Write = 50 * time.Millisecond
		conn, err := net.Dial("tcp", strings.TrimPrefix(entry.url, "http://"))
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		defer func() { _ = conn.Close() }()
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(chatBody), chatBody)
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatalf("send: %v", err)
		}
		<-gone
		entry.checkReleased(t)
	})
}

// TestHandlerWorksWithoutDeadlines: a recorder has none to set.
func TestHandlerWorksWithoutDeadlines(t *testing.T) {
	n := newNode(t)
	w := httptest.NewRecorder()
	n.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
	if w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("status %d, body %q", w.Code, w.Body)
	}
}
