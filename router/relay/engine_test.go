package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// counted is an engine that counts its connections.
func counted(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, &conns
}

func hello(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "hello")
}

func ask(t *testing.T, e *Engines, target Target) {
	t.Helper()
	x, err := e.Start(t.Context(), target, call("{}"), nil)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer x.Close()
	if got := readBody(t, x); got != "hello" {
		t.Fatalf("body %q", got)
	}
}

func TestConnectionsAreKeptOnlyWhereAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		keep bool
		want int64
	}{"kept": {true, 1}, "closed": {false, 5}} {
		t.Run(name, func(t *testing.T) {
			s, conns := counted(t, hello)
			e := NewEngines(quick())
			defer e.Close()
			for range 5 {
				ask(t, e, Target{URL: s.URL, KeepAlive: c.keep})
			}
			if got := conns.Load(); got != c.want {
				t.Errorf("%d connections", got)
			}
		})
	}
}

func TestDeadKeptConnectionIsReplaced(t *testing.T) {
	s, conns := counted(t, hello)
	e := NewEngines(quick())
	defer e.Close()
	ask(t, e, Target{URL: s.URL, KeepAlive: true})
	s.CloseClientConnections()
	ask(t, e, Target{URL: s.URL, KeepAlive: true})
	if got := conns.Load(); got != 2 {
		t.Errorf("%d connections", got)
	}
}

func TestUnfinishedConnectionIsNotKept(t *testing.T) {
	s, conns := counted(t, func(w http.ResponseWriter, r *http.Request) {
		hello(w, r)
		_, _ = w.Write(make([]byte, 1<<20))
	})
	e := NewEngines(quick())
	defer e.Close()
	for range 2 {
		x, err := e.Start(t.Context(), Target{URL: s.URL, KeepAlive: true}, call("{}"), nil)
		if err != nil {
			t.Fatalf("start: %v", err)
		}
		x.Close()
	}
	if got := conns.Load(); got != 2 {
		t.Errorf("%d connections", got)
	}
}

func TestEngineGetsItsOwnKey(t *testing.T) {
	seen := make(chan http.Header, 1)
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header; hello(w, r) })
	e := NewEngines(quick())
	defer e.Close()
	ask(t, e, Target{URL: s.URL, Key: "engine-key"})
	if got := (<-seen)["Authorization"]; len(got) != 1 || got[0] != "Bearer engine-key" {
		t.Errorf("authorization is %q", got)
	}
}

func TestUnreachableEngines(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	gone := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	for name, url := range map[string]string{
		"nobody there": gone, "no port": "http://127.0.0.1", "no URL": "::", "other scheme": "https://127.0.0.1:1",
	} {
		t.Run(name, func(t *testing.T) {
			e := NewEngines(quick())
			if _, err := e.Start(t.Context(), Target{URL: url}, call("{}"), nil); stageOf(err) != StageConnect {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestCancelEndsConnecting(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	e := NewEngines(quick())
	e.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel(reason)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if _, err := e.Start(ctx, Target{URL: "http://127.0.0.1:1"}, call("{}"), nil); !errors.Is(err, reason) {
		t.Errorf("error is %v", err)
	}
}
