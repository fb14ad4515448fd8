package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router/keys"
	"llmgw/router/relay"

	"github.com/prometheus/client_golang/prometheus"
)

// fakeCatalog serves the views it was given.
type fakeCatalog struct {
	mu     sync.Mutex
	views  []ModelView
	routes []catalog.Route
}

func (c *fakeCatalog) Route(name string) (catalog.Route, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return catalog.ResolveRoute(c.routes, name)
}

func (c *fakeCatalog) List() []ModelView {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.views)
}

func (c *fakeCatalog) Resolve(name string) (ModelView, bool) {
	id := catalog.FoldName(name)
	for _, v := range c.List() {
		if v.Model.ID == id || slices.Contains(v.Model.Aliases, id) {
			return v, true
		}
	}
	return ModelView{}, false
}

func (c *fakeCatalog) set(views ...ModelView) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.views = views
}

func view(name string, replicas ...Replica) ModelView {
	for i := range replicas {
		replicas[i].Model = catalog.FoldName(name)
	}
	return ModelView{
		Model:  catalog.Model{ID: catalog.FoldName(name), Name: name, State: catalog.ModelServed},
		Loaded: len(replicas) > 0, Replicas: replicas,
	}
}

// fakeLocal is a node's engines. It counts targets that were not released and
// fails the test for one that was released twice.
type fakeLocal struct {
	t       testing.TB
	mu      sync.Mutex
	targets map[string]relay.Target
	refuse  error
	active  int
	asked   int
}

func (l *fakeLocal) Target(model string, epoch uint64) (relay.Target, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	target, ok := l.targets[model]
	switch {
	case l.refuse != nil:
		return relay.Target{}, nil, l.refuse
	case !ok:
		return relay.Target{}, nil, &relay.Refusal{Kind: relay.RefusedNotHere, Detail: "secret words of the holder"}
	case target.Epoch != epoch:
		return relay.Target{}, nil, &relay.Refusal{Kind: relay.RefusedStale}
	}
	l.active++
	released := false
	return target, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if released {
			l.t.Error("target was released twice")
		}
		released = true
		l.active--
	}, nil
}

func (l *fakeLocal) state() (active, asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active, l.asked
}

// tcpStream has a mesh stream's ways of ending on a TCP connection.
type tcpStream struct {
	*net.TCPConn
	peer string
}

func (s tcpStream) Peer() string { return s.peer }

func (s tcpStream) Reset() error {
	if err := s.SetLinger(0); err != nil {
		return err
	}
	return s.TCPConn.Close()
}

func streamPair() (entry, holder tcpStream, err error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return entry, holder, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	a, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		return entry, holder, err
	}
	b, err := l.AcceptTCP()
	return tcpStream{a, "holder"}, tcpStream{b, "entry"}, err
}

// fakeMesh connects routers; what a peer does with a stream can be replaced.
type fakeMesh struct {
	mu      sync.Mutex
	holders map[string]func(relay.Stream)
	open    sync.WaitGroup // streams that a holder has not done with
	opened  int
}

func (m *fakeMesh) Open(_ context.Context, peer, protocol string) (relay.Stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	serve, ok := m.holders[peer]
	if protocol != mesh.ProtocolInfer {
		serve, ok = m.holders[peer+protocol]
	}
	if !ok {
		return nil, errors.New("no such peer or protocol")
	}
	entry, holder, err := streamPair()
	if err != nil {
		return nil, err
	}
	m.opened++
	m.open.Go(func() { serve(holder) })
	return entry, nil
}

func (m *fakeMesh) set(peer string, serve func(relay.Stream)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holders[peer] = serve
}

// fakeAuth knows keys by their text.
type fakeAuth map[string]keys.Info

func (a fakeAuth) CheckFrom(token string, client netip.Addr) (keys.Info, error) {
	if !client.IsValid() {
		return keys.Info{}, errors.New("no address")
	}
	info, ok := a[token]
	switch {
	case token == "broken-store":
		return keys.Info{}, errors.New("disk gone")
	case !strings.HasPrefix(token, "good"):
		return keys.Info{}, keys.ErrMalformed
	case !ok:
		return keys.Info{}, keys.ErrUnknown
	}
	return info, nil
}

func (a fakeAuth) Find(id string) (keys.Info, error) {
	for _, info := range a {
		if info.ID == id {
			return info, nil
		}
	}
	return keys.Info{}, keys.ErrNotFound
}

func (a fakeAuth) AllowsOrigin(origin string) bool {
	for _, info := range a {
		if info.AllowsOrigin(origin) {
			return true
		}
	}
	return false
}

// node is a router with what it stands on.
type node struct {
	*Router
	catalog  *fakeCatalog
	local    *fakeLocal
	mesh     *fakeMesh
	registry *prometheus.Registry
	url      string
}

func newNode(t testing.TB, change ...func(*Config)) *node {
	t.Helper()
	n := &node{
		catalog: &fakeCatalog{}, registry: prometheus.NewRegistry(),
		local: &fakeLocal{t: t, targets: make(map[string]relay.Target)},
		mesh:  &fakeMesh{holders: make(map[string]func(relay.Stream))},
	}
	cfg := Config{
		Catalog: n.catalog, Local: n.local, Mesh: n.mesh, Metrics: n.registry, Node: "box-a", Version: "1.2.3",
		Auth: fakeAuth{
			"good":         {ID: "k1", Name: "laptop", Scopes: []string{keys.ScopeInfer}},
			"good-metrics": {ID: "k2", Scopes: []string{keys.ScopeMetrics}},
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	n.Router = New(cfg)
	s := httptest.NewServer(n.Handler())
	t.Cleanup(func() {
		s.Close()
		n.mesh.open.Wait()
		n.Close()
		n.checkReleased(t)
	})
	n.url = s.URL
	return n
}

// checkReleased fails the test unless all that requests took was given back.
// The holder's side of a relay may end a moment after the client's.
func (n *node) checkReleased(t testing.TB) {
	eventually(t, "targets, load and bodies are released", func() bool {
		active, _ := n.local.state()
		return active == 0 && n.picker.Idle() && n.bodies.held.Load() == 0
	})
}

// serveLocally makes the node itself hold a model's replica.
func (n *node) serveLocally(name, engine string) Replica {
	n.local.targets[catalog.FoldName(name)] = relay.Target{URL: engine, Key: "engine-key", Epoch: 7, Digest: "d"}
	return Replica{Peer: "a", Local: true, Epoch: 7, Digest: "d"}
}

// pair is an entry node and a holder of one model, on two nodes or on one.
func pair(t testing.TB, remote bool, h http.HandlerFunc) (entry, holder *node) {
	t.Helper()
	engine := httptest.NewServer(h)
	t.Cleanup(engine.Close)
	entry = newNode(t)
	if !remote {
		entry.catalog.set(view("m", entry.serveLocally("m", engine.URL)))
		return entry, entry
	}
	holder = newNode(t, func(c *Config) { c.Node = "box-b" })
	replica := holder.serveLocally("m", engine.URL)
	replica.Peer, replica.Node, replica.Local = "b", "box-b", false
	entry.mesh.set("b", holder.ServeInfer)
	entry.catalog.set(view("m", replica))
	return entry, holder
}

// bothWays runs a test against a local engine and against one of a peer.
func bothWays(t *testing.T, test func(t *testing.T, remote bool)) {
	t.Helper()
	t.Run("local", func(t *testing.T) { test(t, false) })
	t.Run("remote", func(t *testing.T) { test(t, true) })
}

// send makes a request as a client does.
func send(t *testing.T, n *node, method, path, body string, change ...func(*http.Request)) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatalf("make request: %v", err)
	}
	req.Header.Set("Authorization", "Bearer good")
	req.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read answer: %v (got %q)", err, b)
	}
	return string(b)
}

// errorObject is the shape that every refusal has.
type errorObject struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
	LLMGW struct {
		Node, Hint string
		RequestID  string `json:"request_id"`
	}
}

func (e errorObject) code() string {
	if e.Error.Code == nil {
		return ""
	}
	return *e.Error.Code
}

func wantError(t *testing.T, resp *http.Response, status int, code string) errorObject {
	t.Helper()
	body := text(t, resp)
	var e errorObject
	d := json.NewDecoder(bytes.NewReader([]byte(body)))
	if err := d.Decode(&e); err != nil {
		t.Fatalf("status %d, body %q is no error object: %v", resp.StatusCode, body, err)
	}
	if resp.StatusCode != status || e.code() != code || e.Error.Message == "" || e.Error.Type == "" {
		t.Errorf("status %d, want %d; body %s, want code %q", resp.StatusCode, status, body, code)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	if e.LLMGW.RequestID == "" || e.LLMGW.RequestID != resp.Header.Get("X-Request-Id") || e.LLMGW.Node != "box-a" {
		t.Errorf("origin %+v, header %q", e.LLMGW, resp.Header.Get("X-Request-Id"))
	}
	return e
}

const (
	chatPath = "/v1/chat/completions"
	chatBody = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	done     = "data: [DONE]\n\n"
)

// event streams what an engine says, each piece by itself.
func event(w http.ResponseWriter, pieces ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, p := range pieces {
		if _, err := io.WriteString(w, p); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// die cuts an engine's connection as a crash does.
func die() { panic(http.ErrAbortHandler) }

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not so after 5 s: %s", what)
		case <-tick.C:
		}
	}
}
