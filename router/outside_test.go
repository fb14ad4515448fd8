package router

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/keys"
)

// Keys of providers in these tests; no output may hold one.
const (
	keyOne = "sk-outside-one-0123456789abcdef"
	keyTwo = "sk-outside-two-0123456789abcdef"
)

// outsideCatalog is a node's catalog with providers.
type outsideCatalog struct {
	*fakeCatalog
	mu        sync.Mutex
	providers []*catalog.Provider
}

func (c *outsideCatalog) known() []*catalog.Provider {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.providers
}

func (c *outsideCatalog) Resolve(name string) (ModelView, bool) {
	if v, ok := c.fakeCatalog.Resolve(name); ok {
		return WithProviders(v, c.known()), true
	}
	return OutsideView(name, c.known())
}

// abroad is a node with providers, and all that it says.
type abroad struct {
	*node
	outside *outsideCatalog
	log     *lockedBuffer
	said    bytes.Buffer // to clients
	clock   *testClock
}

// lockedBuffer takes log lines of many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testClock goes by itself and can be put on.
type testClock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func newAbroad(t *testing.T, providers ...*catalog.Provider) *abroad {
	t.Helper()
	return newAbroadWith(t, func(*Config) {}, providers...)
}

func newAbroadWith(t *testing.T, change func(*Config), providers ...*catalog.Provider) *abroad {
	t.Helper()
	a := &abroad{log: &lockedBuffer{}, clock: &testClock{}}
	a.node = newNode(t, func(c *Config) {
		a.outside = &outsideCatalog{fakeCatalog: c.Catalog.(*fakeCatalog), providers: providers}
		c.Catalog, c.Now, c.Via = a.outside, a.clock.now, func() string { return "llmgw-test" }
		c.Log = slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		change(c)
	})
	t.Cleanup(func() { a.checkSecrets(t) })
	return a
}

// checkSecrets looks for keys in all that was said and logged, metrics too.
func (a *abroad) checkSecrets(t *testing.T) {
	t.Helper()
	families, err := a.registry.Gather()
	if err != nil {
		t.Error(err)
	}
	all := a.log.String() + a.said.String() + fmt.Sprint(families)
	for _, p := range a.outside.known() {
		all += fmt.Sprintf("%v %+v", p, p)
	}
	for _, key := range []string{keyOne, keyTwo, keyOne[10:], keyTwo[10:]} {
		if strings.Contains(all, key) {
			t.Errorf("a key is shown in: %s", all)
		}
	}
}

// ask sends a request and keeps what came.
func (a *abroad) ask(t *testing.T, body string, change ...func(*http.Request)) (*http.Response, string) {
	t.Helper()
	resp := send(t, a.node, "POST", chatPath, body, change...)
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read answer: %v (got %q)", err, got)
	}
	fmt.Fprintln(&a.said, resp.Header, string(got))
	return resp, string(got)
}

// refused sends a request that must fail.
func (a *abroad) refused(t *testing.T, body string, status int, code string, change ...func(*http.Request)) errorObject {
	t.Helper()
	resp, got := a.ask(t, body, change...)
	var e errorObject
	if err := json.Unmarshal([]byte(got), &e); err != nil || resp.StatusCode != status || e.code() != code {
		t.Fatalf("status %d, body %s; want %d %s", resp.StatusCode, got, status, code)
	}
	if resp.Header.Get("Www-Authenticate") != "" {
		t.Error("a client is asked for another key")
	}
	return e
}

// asked is what a provider was sent.
type asked struct {
	header http.Header
	path   string
	body   string
	host   string
}

// service is a provider that notes what it is sent.
type service struct {
	*httptest.Server
	mu   sync.Mutex
	seen []asked
}

func (s *service) requests() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// keys are the credentials of the requests so far.
func (s *service) keys() []string {
	var out []string
	for _, r := range s.requests() {
		out = append(out, strings.TrimPrefix(r.header.Get("Authorization"), "Bearer "))
	}
	return out
}

func newService(t *testing.T, h http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, asked{r.Header.Clone(), r.URL.Path, string(body), r.Host})
		s.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// as makes a provider of a service.
func (s *service) as(id string, change ...func(*catalog.Provider)) *catalog.Provider {
	p := &catalog.Provider{
		ID: id, URL: s.URL, Private: true, Keys: catalog.KeysOf([]string{keyOne}),
		CA:     string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
		Models: []catalog.ProviderModel{{Pattern: "fast", Theirs: "vendor/fast-v2"}, {Pattern: "gpt-*"}},
	}
	for _, c := range change {
		c(p)
	}
	if err := p.Check(); err != nil {
		panic(err)
	}
	return p
}

func twoKeys(p *catalog.Provider) { p.Keys = catalog.KeysOf([]string{keyOne, keyTwo}) }

const (
	gptBody   = `{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}`
	gptStream = `{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`
	gptAnswer = `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`
)

func answers(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, gptAnswer)
}

// fails answers with a status, and headers as name and value by turns.
func fails(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestAProviderAnswersForWhatTheMeshHasNot(t *testing.T) {
	s := newService(t, answers)
	a := newAbroad(t, s.as("vendor"))
	for _, c := range []struct{ name, asks, theirs string }{
		{"by a pattern", "gpt-4o", "gpt-4o"}, {"as the client spells it", "GPT-4o-Mini", "GPT-4o-Mini"},
		{"by another name", "fast", "vendor/fast-v2"}, {"in any case", "FAST", "vendor/fast-v2"}, {"at the provider by name", "gpt-4o@vendor", "gpt-4o"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, got := a.ask(t, strings.Replace(gptBody, "gpt-4o", c.asks, 1))
			if resp.StatusCode != 200 || got != gptAnswer {
				t.Fatalf("status %d, body %s", resp.StatusCode, got)
			}
			last := s.requests()[len(s.requests())-1]
			if last.path != "/v1/chat/completions" || last.body != strings.Replace(gptBody, "gpt-4o", c.theirs, 1) {
				t.Errorf("the provider got %s %s", last.path, last.body)
			}
		})
	}
	before := len(s.requests())
	for _, name := range []string{"gp", "faster", "gpt-4o@nowhere"} {
		if resp, got := a.ask(t, strings.Replace(gptBody, "gpt-4o", name, 1)); resp.StatusCode < 400 {
			t.Errorf("%s was answered: %s", name, got)
		}
	}
	if len(s.requests()) != before {
		t.Error("a name that does not fit went out")
	}
}

func TestWhatAProviderGetsOfAClient(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"X-Ratelimit-Remaining-Requests": "1", "Openai-Organization": "acme", "Set-Cookie": "a=b", "Www-Authenticate": "Bearer", "Server": "x",
			"X-Llmgw-Model": "evil", "Retry-After": "9", "Location": "https://elsewhere.example", "Access-Control-Allow-Origin": "*", "X-Request-Id": "theirs",
		} {
			w.Header().Set(name, value)
		}
		answers(w, r)
	})
	a := newAbroad(t, s.as("vendor"))
	resp, _ := a.ask(t, gptBody, func(r *http.Request) {
		for name, value := range map[string]string{
			"X-Api-Key": "good", "Api-Key": "good", "Cookie": "a=b", "X-Llmgw-Model": "m", "X-Llmgw-Explain": "0", "X-Session-Id": "s", "X-Custom-Token": "good",
			"User-Agent": "client/1", "X-Forwarded-For": "10.0.0.1", "X-Stainless-Os": "Linux", "Openai-Organization": "me", "Openai-Beta": "x=1", "Proxy-Authorization": "good",
			"X-Request-Id": "req-7", "Anthropic-Beta": "b", "Host-Name": "attic",
		} {
			r.Header.Set(name, value)
		}
	})
	got := s.requests()[0]
	want := http.Header{
		"Authorization": {"Bearer " + keyOne}, "Content-Type": {"application/json"}, "User-Agent": {"llmgw"}, "Accept-Encoding": {"identity"},
		"Openai-Beta": {"x=1"}, "Anthropic-Beta": {"b"}, "X-Request-Id": {"req-7"}, "Via": {"1.1 llmgw-test"},
		"Content-Length": got.header["Content-Length"],
	}
	for name, values := range got.header {
		if !slices.Equal(values, want[name]) {
			t.Errorf("the provider got %s: %q", name, values)
		}
	}
	if len(got.header) != len(want) {
		t.Errorf("the provider got %v", got.header)
	}
	for _, name := range []string{"X-Ratelimit-Remaining-Requests", "Openai-Organization", "Set-Cookie", "Www-Authenticate", "Server", "Retry-After", "Location", "Access-Control-Allow-Origin"} {
		if v := resp.Header.Get(name); v != "" {
			t.Errorf("the client got %s: %q", name, v)
		}
	}
	if resp.Header.Get("X-Llmgw-Model") != "gpt-4o" || resp.Header.Get("X-Request-Id") != "req-7" {
		t.Errorf("the client got %v", resp.Header)
	}
}

func TestStreamsOfProvidersStayAsTheyAre(t *testing.T) {
	said := "data: {\"choices\":[{\"delta\":{\"content\":\"h\\u00e4 \xf0\x9f\x98\x80 data: [DONE]\"}}]}\r\n\r\n: note\n\ndata:{\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n"
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range len(said) {
			event(w, said[i:i+1]) // each byte by itself
		}
	})
	a := newAbroad(t, s.as("vendor"))
	resp, got := a.ask(t, gptStream)
	if got != said || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("status %d, got %q", resp.StatusCode, got)
	}
}

func TestAStreamOfAProviderThatBreaksOff(t *testing.T) {
	first := "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	for name, play := range map[string]http.HandlerFunc{
		"cut":            func(w http.ResponseWriter, _ *http.Request) { event(w, first, "data: {\"cho"); die() },
		"ended too soon": func(w http.ResponseWriter, _ *http.Request) { event(w, first) },
	} {
		t.Run(name, func(t *testing.T) {
			s, other := newService(t, play), newService(t, answers)
			a := newAbroad(t, s.as("vendor", func(p *catalog.Provider) { p.Priority = 1 }), other.as("other"))
			_, got := a.ask(t, gptStream)
			if !strings.HasPrefix(got, first+"data: {\"error\"") || !strings.HasSuffix(got, done) || !strings.Contains(got, `the provider \"vendor\" failed before`) {
				t.Errorf("got %q", got)
			}
			if len(other.requests()) > 0 {
				t.Error("another was asked after the first byte")
			}
		})
	}
}

func TestTheClientLeavesAProviderAsWell(t *testing.T) {
	gone := make(chan struct{})
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		event(w, "data: {}\n\n")
		<-r.Context().Done()
		close(gone)
	})
	a := newAbroad(t, s.as("vendor", func(p *catalog.Provider) { p.Parallel = 1 }))
	resp := send(t, a.node, "POST", chatPath, gptStream)
	buf := make([]byte, 8)
	if _, err := io.ReadFull(resp.Body, buf); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Fatal("the provider still works")
	}
	eventually(t, "its place is free", func() bool { _, n := a.Cooling(a.outside.known()[0]); return n == 0 })
}

func TestWhatTheMeshHoldsStaysInside(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answers(w, r)
	}))
	defer engine.Close()
	dead := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { die() }))
	defer dead.Close()
	everything := func(use catalog.HeldUse) func(*catalog.Provider) {
		return func(p *catalog.Provider) { p.Models, p.Held = []catalog.ProviderModel{{Pattern: "*"}}, use }
	}
	for _, c := range []struct {
		name    string
		use     catalog.HeldUse
		serves  string // engine's URL; empty: not loaded
		state   catalog.ModelState
		status  int
		outside int
	}{
		{"never, and ready", catalog.HeldNever, engine.URL, catalog.ModelServed, 200, 0},
		{"never, and not loaded", catalog.HeldNever, "", catalog.ModelServed, 503, 0},
		{"never, and its engine dies", catalog.HeldNever, dead.URL, catalog.ModelServed, 502, 0},
		{"last, and ready", catalog.HeldLast, engine.URL, catalog.ModelServed, 200, 0},
		{"last, and not loaded", catalog.HeldLast, "", catalog.ModelServed, 200, 1},
		{"last, and its engine dies", catalog.HeldLast, dead.URL, catalog.ModelServed, 200, 1},
		{"last, but stopped", catalog.HeldLast, "", catalog.ModelStopped, 503, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t, answers)
			a := newAbroad(t, s.as("vendor", everything(c.use)))
			v := view("Gpt-4o")
			if c.serves != "" {
				v = view("Gpt-4o", a.serveLocally("gpt-4o", c.serves))
			}
			v.Model.State = c.state
			a.catalog.set(v)
			resp, got := a.ask(t, gptBody)
			if resp.StatusCode != c.status || len(s.requests()) != c.outside {
				t.Errorf("status %d, %d requests outside: %s", resp.StatusCode, len(s.requests()), got)
			}
		})
	}
}

func TestARouteGoesBeforeAPattern(t *testing.T) {
	s := newService(t, answers)
	a := newAbroad(t, s.as("vendor", func(p *catalog.Provider) { p.Models = []catalog.ProviderModel{{Pattern: "*"}} }))
	a.catalog.routes = []catalog.Route{{ID: "chat", Name: "chat", Targets: []string{"m", "claude-x"}, Rule: catalog.RuleLoaded}}
	a.catalog.set(view("m"))
	if resp, got := a.ask(t, `{"model":"chat","messages":[]}`); resp.StatusCode != 200 || !strings.Contains(s.requests()[0].body, `"claude-x"`) {
		t.Errorf("status %d: %s", resp.StatusCode, got)
	}
}

func TestKeysThatMayNotGoOutside(t *testing.T) {
	s := newService(t, answers)
	a := newAbroadWith(t, func(c *Config) {
		auth := c.Auth.(fakeAuth)
		auth["good-models"] = keys.Info{ID: "k3", Scopes: []string{keys.ScopeInfer}, Models: []string{"fast"}}
		auth["good-nodes"] = keys.Info{ID: "k4", Scopes: []string{keys.ScopeInfer}, Nodes: catalog.Selector{Require: map[string]string{"zone": "eu"}}}
	}, s.as("vendor"))
	with := func(key string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) }
	}
	a.refused(t, gptBody, 403, "model_not_allowed", with("good-models"))
	a.refused(t, gptBody, 403, "node_not_allowed", with("good-nodes"))
	if len(s.requests()) > 0 {
		t.Error("it went out")
	}
	if resp, got := a.ask(t, `{"model":"fast","messages":[]}`, with("good-models")); resp.StatusCode != 200 {
		t.Errorf("status %d: %s", resp.StatusCode, got)
	}
}

func TestWhatGoesOutIsCountedByProvider(t *testing.T) {
	s := newService(t, answers)
	a := newAbroad(t, s.as("vendor"))
	_, book := limited(t, a.node, catalog.RateLimits{catalog.MetricRequests: 100})
	a.ask(t, gptBody)
	r := book.last(t, 1)
	if r.Provider != "vendor" || r.Node != "" || r.Model != "gpt-4o" || r.Usage.Input != 9 || r.Usage.Output != 3 || r.Status != 200 {
		t.Errorf("recorded %+v", r)
	}
	view, _ := a.outside.Resolve("gpt-4o")
	if got := view.provider(); got != "vendor" {
		t.Errorf("the estimate is for %q", got)
	}
}

func TestNamesOfClientsAreNoLabels(t *testing.T) {
	s := newService(t, answers)
	a := newAbroad(t, s.as("vendor"))
	for i := range 50 {
		a.ask(t, strings.Replace(gptBody, "gpt-4o", fmt.Sprint("gpt-made-up-", i), 1))
	}
	families, err := a.registry.Gather()
	if err != nil || strings.Contains(fmt.Sprint(families), "made-up") || !strings.Contains(fmt.Sprint(families), "gpt-*") {
		t.Errorf("metrics: %v %v", families, err)
	}
	if n := a.picker.Stats().Replicas; n != 1 {
		t.Errorf("the picker knows %d replicas of one provider", n)
	}
}

func TestProvidersThatSpeakOtherAPIs(t *testing.T) {
	const messages = `{"model":"gpt-4o","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
	for name, native := range map[string][]catalog.Ability{"chat alone": nil, "messages too": {catalog.AbilityMessages}} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/messages" {
					_, _ = io.WriteString(w, `{"type":"message","content":[]}`)
					return
				}
				answers(w, r)
			})
			a := newAbroad(t, s.as("vendor", func(p *catalog.Provider) { p.Native = native }))
			got := text(t, send(t, a.node, "POST", "/v1/messages", messages))
			seen := s.requests()[0]
			if native == nil {
				if seen.path != "/v1/chat/completions" || !strings.Contains(got, `"text":"hello"`) || seen.header.Get("X-Api-Key") != "" {
					t.Errorf("%s %v was asked and answered %s", seen.path, seen.header, got)
				}
				return
			}
			if seen.path != "/v1/messages" || seen.header.Get("X-Api-Key") != keyOne || seen.header.Get("Authorization") != "" || seen.header.Get("Anthropic-Version") == "" || seen.body != messages {
				t.Errorf("%s %v was asked %s", seen.path, seen.header, seen.body)
			}
		})
	}
}

func TestListedNamesOfProviders(t *testing.T) {
	s := newService(t, answers)
	got := OutsideNames([]*catalog.Provider{s.as("a"), s.as("b", func(p *catalog.Provider) {
		p.Models = []catalog.ProviderModel{{Pattern: "FAST"}, {Pattern: "slow"}, {Pattern: "*"}}
	})})
	if want := []string{"fast", "slow"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
