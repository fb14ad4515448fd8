package relay

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"llmgw/mesh/catalog"
)

// abroad is a provider that counts its connections.
func abroad(t *testing.T, h http.HandlerFunc, plain bool) (*catalog.Provider, *httptest.Server, *atomic.Int64) {
	t.Helper()
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	p := &catalog.Provider{ID: "p", Private: true}
	if plain {
		s.Start()
	} else {
		s.StartTLS()
		p.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	}
	p.URL = s.URL
	t.Cleanup(s.Close)
	return p, s, &conns
}

func askAbroad(t *testing.T, o *Outside, p *catalog.Provider) {
	t.Helper()
	x, err := o.Start(t.Context(), p, "k", "", call("{}"), nil)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer x.Close()
	if got := readBody(t, x); got != "hello" {
		t.Fatalf("body %q", got)
	}
}

func (o *Outside) kept() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, list := range o.idle {
		n += len(list)
	}
	return n
}

func TestConnectionsToProvidersAreKeptForAWhile(t *testing.T) {
	for name, plain := range map[string]bool{"TLS": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			p, s, conns := abroad(t, hello, plain)
			o := NewOutside(quick())
			defer o.Close()
			for range 5 {
				askAbroad(t, o, p)
			}
			if n := conns.Load(); n != 1 || o.kept() != 1 {
				t.Errorf("%d connections, %d kept", n, o.kept())
			}
			s.CloseClientConnections()
			askAbroad(t, o, p)
			if n := conns.Load(); n != 2 {
				t.Errorf("a dead one was not replaced: %d connections", n)
			}
			other := *p
			other.CA, other.Insecure = "", true
			askAbroad(t, o, &other)
			if n := conns.Load(); n != 3 {
				t.Errorf("one made under other settings was used: %d connections", n)
			}
		})
	}
}

func TestKeptConnectionsToProvidersEnd(t *testing.T) {
	p, _, _ := abroad(t, hello, false)
	o := NewOutside(quick())
	o.idleFor = 10 * time.Millisecond
	askAbroad(t, o, p)
	patience := time.After(30 * time.Second)
	for o.kept() > 0 {
		select {
		case <-patience:
			t.Fatal("it is kept for ever")
		case <-time.After(time.Millisecond):
		}
	}
	o.idleFor = time.Hour
	askAbroad(t, o, p)
	o.Close()
	if o.kept() != 0 {
		t.Error("Close keeps connections")
	}
	askAbroad(t, o, p)
	if o.kept() != 0 {
		t.Error("connections are kept after Close")
	}
}

func TestUnfinishedConnectionsToProvidersAreNotKept(t *testing.T) {
	gone := make(chan struct{}, 1)
	p, _, _ := abroad(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				gone <- struct{}{}
				return
			}
		}
	}, false)
	o := NewOutside(quick())
	defer o.Close()
	x, err := o.Start(t.Context(), p, "", "", call("{}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Fatal("the provider was not told")
	}
	if o.kept() != 0 {
		t.Error("it is kept")
	}
}

func TestAnErrorIsHeldAndGivenAgain(t *testing.T) {
	for name, size := range map[string]int{"short": 10, "at the bound": 100, "over it": 101, "far over it": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			p, _, conns := abroad(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(400)
				_, _ = io.WriteString(w, strings.Repeat("e", size))
			}, false)
			o := NewOutside(quick())
			defer o.Close()
			for range 2 {
				x, err := o.Start(t.Context(), p, "", "", call("{}"), nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := x.Hold(100)
				if size > 100 {
					if !errors.Is(err, ErrLongError) {
						t.Errorf("error is %v", err)
					}
					x.Close()
					continue
				}
				if err != nil || len(body) != size {
					t.Fatalf("held %d bytes: %v", len(body), err)
				}
				x.Replace([]byte("other"))
				if got := readBody(t, x); got != "other" || x.Length != 5 {
					t.Errorf("then %q of %d bytes", got, x.Length)
				}
				x.Close()
			}
			if size <= 100 && conns.Load() != 1 {
				t.Errorf("%d connections", conns.Load())
			}
		})
	}
}

func TestPathsAtProviders(t *testing.T) {
	for _, c := range []struct{ url, path, want string }{
		{"https://a.example", "/v1/chat/completions", "/v1/chat/completions"},
		{"https://a.example/v1", "/v1/chat/completions", "/v1/chat/completions"},
		{"https://a.example/v1/", "/v1/messages", "/v1/messages"},
		{"https://a.example/api/v1", "/v1/embeddings", "/api/v1/embeddings"},
		{"https://a.example/openai", "/v1/embeddings", "/openai/embeddings"},
		{"https://a.example/api/v1", "/tokenize", "/api/tokenize"},
		{"https://a.example", "/v2/rerank", "/v2/rerank"},
	} {
		got, err := outsideCall(&catalog.Provider{URL: c.url}, "", "", &Call{Path: c.path})
		if err != nil || got.Path != c.want || got.Host != "a.example" {
			t.Errorf("%s below %s: %s at %s, %v", c.path, c.url, got.Path, got.Host, err)
		}
	}
}

func TestPlainHTTPIsForPrivateAddresses(t *testing.T) {
	o := NewOutside(quick())
	for name, c := range map[string]struct {
		p    catalog.Provider
		want string
	}{
		"plain at a public address": {catalog.Provider{URL: "http://192.88.99.1", Private: true}, "plain http is for private"},
		"private and not allowed":   {catalog.Provider{URL: "https://10.255.255.1"}, "--allow-private"},
		"loopback":                  {catalog.Provider{URL: "https://localhost"}, "--allow-private"},
		"link-local":                {catalog.Provider{URL: "https://169.254.169.254", Private: true}, "no address of a service"},
		"metadata":                  {catalog.Provider{URL: "https://[fd00:ec2::254]", Private: true}, "no address of a service"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := o.Start(t.Context(), &c.p, "key-of-provider", "", call("{}"), nil)
			var address *AddressError
			if !errors.As(err, &address) || !strings.Contains(address.Why, c.want) || strings.Contains(err.Error(), "key-of-provider") {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestAProviderThatNeverShakesHands(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	limits := quick()
	limits.Connect = 50 * time.Millisecond
	o := NewOutside(limits)
	_, err = o.Start(t.Context(), &catalog.Provider{ID: "p", URL: "https://" + l.Addr().String(), Private: true}, "", "", call("{}"), nil)
	if stageOf(err) != StageConnect || !IsTimeout(err) {
		t.Errorf("error is %v", err)
	}
}
