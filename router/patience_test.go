package router

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"llmgw/router/keys"
	"llmgw/router/openai"
	"llmgw/router/relay"

	"github.com/prometheus/client_golang/prometheus"
)

// These tests run in made-up time, hence over connections in memory.

type pipeStream struct{ net.Conn }

func (s pipeStream) Reset() error      { return s.Conn.Close() }
func (s pipeStream) CloseWrite() error { return nil }
func (s pipeStream) Peer() string      { return "peer" }

// scripted is a mesh whose peers read a request, wait and say something.
type scripted map[string]struct {
	wait time.Duration
	says string
}

func (m scripted) Open(_ context.Context, peer, _ string) (relay.Stream, error) {
	script, ok := m[peer]
	if !ok {
		return nil, errors.New("no such peer")
	}
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = theirs.Close() }()
		req, err := http.ReadRequest(bufio.NewReader(theirs))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = theirs.Read(make([]byte, 1))
		}()
		select {
		case <-gone:
		case <-time.After(script.wait):
			_, _ = io.WriteString(theirs, script.says)
		}
	}()
	return pipeStream{ours}, nil
}

// newPatient is a router whose time is made up.
func newPatient(c *fakeCatalog, m scripted, change ...func(*Config)) *Router {
	cfg := Config{
		Catalog: c, Mesh: m, Metrics: prometheus.NewRegistry(), Node: "box-a",
		Auth: fakeAuth{"good": {ID: "k1", Scopes: []string{keys.ScopeInfer}}},
	}
	for _, f := range change {
		f(&cfg)
	}
	return New(cfg)
}

// ask runs one request.
func ask(ctx context.Context, r *Router, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(ctx, "POST", chatPath, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer good")
	for _, f := range change {
		f(req)
	}
	r.Handler().ServeHTTP(w, req)
	return w
}

// patient runs one request in made-up time and tells how long it took.
func patient(c *fakeCatalog, m scripted, body string, change ...func(*Config)) (*httptest.ResponseRecorder, time.Duration) {
	r := newPatient(c, m, change...)
	began := time.Now()
	return ask(context.Background(), r, body), time.Since(began)
}

func answered(kind, body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
}

const plainBody = `{"model":"m"}`

func TestLongPromptsAreWaitedFor(t *testing.T) {
	comments := func(n int) string { return strings.Repeat(openai.KeepAlive, n) }
	refused := strings.Replace(answered("application/json", `{"error":{"message":"too long"}}`), "200 OK", "400 Bad", 1)
	cases := map[string]struct {
		body   string
		wait   time.Duration
		says   string
		status int
		want   string // prefix
	}{
		"a stream gets comments":       {chatBody, 50 * time.Second, answered("text/event-stream", done), 200, comments(3) + done},
		"a short wait gets none":       {chatBody, 14 * time.Second, answered("text/event-stream", done), 200, done},
		"JSON waits in silence":        {plainBody, 50 * time.Second, answered("application/json", "{}"), 200, "{}"},
		"an early error is a status":   {chatBody, 14 * time.Second, refused, 400, `{"error":{"message":"too long"}}`},
		"a late error is a frame":      {chatBody, 50 * time.Second, refused, 200, comments(3) + "data: {\"error\":{\"message\":\"too long\""},
		"a late death is a frame":      {chatBody, 50 * time.Second, "", 200, comments(3) + "data: {\"error\":"},
		"a wait without end is a 504":  {plainBody, time.Hour, "", 504, `{"error":{"message":"the model \"m\" did not answer in time"`},
		"a stream's one ends in frame": {chatBody, time.Hour, "", 200, comments(19) + "data: {\"error\":"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				catalog := &fakeCatalog{}
				catalog.set(view("m", Replica{Peer: "b"}))
				w, took := patient(catalog, scripted{"b": {c.wait, c.says}}, c.body)
				if w.Code != c.status || !strings.HasPrefix(w.Body.String(), c.want) {
					t.Errorf("status %d, body %q", w.Code, w.Body)
				}
				if want := min(c.wait, 5*time.Minute); took < want || took > want+2*time.Second {
					t.Errorf("took %v", took)
				}
				if c.body == chatBody && w.Code == 200 && !strings.HasSuffix(w.Body.String(), done) {
					t.Errorf("no terminator: %q", w.Body)
				}
			})
		})
	}
}

func TestHolderThatVanishesIsLeftAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		catalog := &fakeCatalog{}
		b, c := Replica{Peer: "b"}, Replica{Peer: "c", InFlight: 1}
		catalog.set(view("m", b, c))
		time.AfterFunc(20*time.Second, func() { catalog.set(view("m", c)) })
		mesh := scripted{"b": {time.Hour, ""}, "c": {0, answered("text/event-stream", done)}}
		w, took := patient(catalog, mesh, chatBody)
		if got := w.Body.String(); got != openai.KeepAlive+done || took > 22*time.Second {
			t.Errorf("got %q after %v", got, took)
		}
	})
}

func TestOnlyHolderMayVanishFromPresenceAndAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		catalog := &fakeCatalog{}
		catalog.set(view("m", Replica{Peer: "b"}))
		time.AfterFunc(time.Second, func() { catalog.set(view("m")) })
		w, _ := patient(catalog, scripted{"b": {10 * time.Second, answered("text/event-stream", done)}}, chatBody)
		if got := w.Body.String(); got != done {
			t.Errorf("got %q", got)
		}
	})
}

func TestBoxThatFallsSilentIsNotWaitedFor(t *testing.T) {
	for name, others := range map[string][]Replica{"the only holder": nil, "one of two": {{Peer: "c", InFlight: 1}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				catalog := &fakeCatalog{}
				catalog.set(view("m", append([]Replica{{Peer: "b", Node: "shed"}}, others...)...))
				began := time.Now()
				silent := func(cfg *Config) {
					cfg.Alive = func(peer string) bool { return peer != "b" || time.Since(began) < 4*time.Second }
				}
				mesh := scripted{"b": {time.Hour, ""}, "c": {0, answered("application/json", "{}")}}
				w, took := patient(catalog, mesh, plainBody, silent)
				if took > 7*time.Second {
					t.Errorf("took %v", took)
				}
				if others != nil && w.Code != 200 {
					t.Errorf("not tried elsewhere: %d %s", w.Code, w.Body)
				}
				if others == nil && (w.Code != 503 || !strings.Contains(w.Body.String(), "shed") || w.Header().Get("Retry-After") == "") {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

func TestNewEpochOfTheSameReplicaIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		catalog := &fakeCatalog{}
		other := Replica{Peer: "c", InFlight: 5}
		catalog.set(view("m", Replica{Peer: "b", Epoch: 1}, other))
		time.AfterFunc(time.Second, func() { catalog.set(view("m", Replica{Peer: "b", Epoch: 2}, other)) })
		mesh := scripted{"b": {5 * time.Second, answered("application/json", `"b"`)}, "c": {0, answered("application/json", `"c"`)}}
		if w, _ := patient(catalog, mesh, plainBody); w.Body.String() != `"b"` {
			t.Errorf("got %q", w.Body)
		}
	})
}

func TestDeathAfterCommentsIsTriedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		catalog := &fakeCatalog{}
		catalog.set(view("m", Replica{Peer: "b"}, Replica{Peer: "c", InFlight: 1}))
		mesh := scripted{"b": {20 * time.Second, ""}, "c": {0, answered("text/event-stream", done)}}
		if w, _ := patient(catalog, mesh, chatBody); w.Body.String() != openai.KeepAlive+done {
			t.Errorf("got %q", w.Body)
		}
	})
}
