package router

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/router/keys"
	"llmgw/router/limits"
	"llmgw/router/openai"
)

// ledger keeps usage records in memory.
type ledger struct {
	mu      sync.Mutex
	records []limits.Record
}

func (l *ledger) RecordUsage(u store.Usage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := limits.DecodeRecord(u.Record)
	l.records = append(l.records, r)
	return err
}

func (l *ledger) Spent(crdt.Account) uint64 { return 0 }

func (l *ledger) last(t *testing.T, n int) limits.Record {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests are recorded", n), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.records) == n
	})
	return l.records[n-1]
}

func (*ledger) Project(string) (catalog.Project, bool)     { return catalog.Project{}, false }
func (*ledger) Tenant(string) (catalog.Tenant, bool)       { return catalog.Tenant{}, false }
func (*ledger) Price(string, string) (catalog.Price, bool) { return catalog.Price{}, false }

// limited makes an entry node's key a limited one.
func limited(t *testing.T, n *node, rules catalog.RateLimits) (*limits.Limiter, *ledger) {
	t.Helper()
	book := &ledger{}
	l := limits.New(limits.Config{Self: crdt.Incarnation{Replica: 1, Boot: 1}, Peer: "a", Book: book, Ledger: book})
	n.cfg.Quotas = l
	n.cfg.Auth = fakeAuth{"good": {ID: "k1", Name: "laptop", Scopes: []string{keys.ScopeInfer}, Rules: catalog.Rules{Limits: rules}},
		"good-metrics": {ID: "k9", Scopes: []string{keys.ScopeMetrics}}}
	t.Cleanup(func() {
		eventually(t, "all grants have ended", func() bool { return l.Stats().InFlight == 0 })
		l.Close()
	})
	return l, book
}

func TestUsageIsAskedForAndNotShown(t *testing.T) {
	const chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n"
	const usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n"
	asks := `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`
	for name, c := range map[string]struct{ body, want string }{
		"the client did not ask": {chatBody, chunk + done},
		"the client asked":       {asks, chunk + usage + done},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, remote bool) {
				entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if !strings.Contains(string(body), `"include_usage":true`) {
						t.Errorf("the engine is not asked for usage: %s", body)
					}
					event(w, chunk, usage, done)
				})
				_, book := limited(t, entry, catalog.RateLimits{catalog.MetricTokens: 1 << 20})
				resp := send(t, entry, "POST", chatPath, c.body)
				if got := text(t, resp); got != c.want {
					t.Errorf("got %q", got)
				}
				if resp.Header.Get("X-Ratelimit-Limit-Tokens") != "1048576" || resp.Header.Get("X-Ratelimit-Remaining-Tokens") == "" {
					t.Errorf("headers %v", resp.Header)
				}
				r := book.last(t, 1)
				if got := text(t, send(t, entry, "GET", "/metrics", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer good-metrics") })); !strings.Contains(got, `llmgw_time_per_output_token_seconds_count{model="m"} 1`) {
					t.Error("the time of a token is not counted")
				}
				if want := (openai.Usage{Input: 7, Output: 2, Source: openai.UsageEngine}); r.Usage != want || r.Model != "m" || r.Status != 200 {
					t.Errorf("recorded %+v", r)
				}
			})
		})
	}
}

func TestWhatIsUsedIsChargedHoweverItEnds(t *testing.T) {
	const chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n"
	cases := map[string]struct {
		engine http.HandlerFunc
		status int // recorded; 0: nothing is charged
		output uint64
		source openai.UsageSource
	}{
		"an engine that tells nothing": {func(w http.ResponseWriter, _ *http.Request) { event(w, chunk, chunk, done) }, 200, 2, openai.UsageCounted},
		"an answer that breaks off":    {func(w http.ResponseWriter, _ *http.Request) { event(w, chunk); die() }, 502, 1, openai.UsageCounted},
		"a client's mistake":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, 400, 0, openai.UsageEngine},
		"an engine's failure":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 0, 0, ""},
		"an engine that dies early":    {func(http.ResponseWriter, *http.Request) { die() }, 0, 0, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			entry, _ := pair(t, false, c.engine)
			l, book := limited(t, entry, catalog.RateLimits{catalog.MetricRequests: 100})
			_, _ = io.Copy(io.Discard, send(t, entry, "POST", chatPath, chatBody).Body)
			if c.status == 0 {
				eventually(t, "the grant is given back", func() bool { return l.Stats().Released == 1 })
				return
			}
			r := book.last(t, 1)
			if r.Status != c.status || r.Usage.Output != c.output || r.Usage.Source != c.source {
				t.Errorf("recorded %+v", r)
			}
			if (r.Usage.Input > 0) != (c.output > 0) {
				t.Errorf("%d tokens of prompt", r.Usage.Input)
			}
		})
	}
}

func TestALimitIsA429ThatNamesItsLevel(t *testing.T) {
	entry, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) { event(w, done) })
	limited(t, entry, catalog.RateLimits{catalog.MetricRequests: 1})
	text(t, send(t, entry, "POST", chatPath, chatBody))
	resp := send(t, entry, "POST", chatPath, chatBody)
	e := wantError(t, resp, 429, "rate_limit_exceeded")
	if !strings.Contains(e.Error.Message, `key "laptop"`) || !strings.Contains(e.Error.Message, "try again in ") {
		t.Errorf("message %q", e.Error.Message)
	}
	if resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Ratelimit-Remaining-Requests") != "0" {
		t.Errorf("headers %v", resp.Header)
	}
}

// Nothing is held when clients leave at any moment.
func TestCancelsAtRandomLeaveNothingHeld(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 200
	}
	entry, holder := pair(t, true, func(w http.ResponseWriter, r *http.Request) {
		for range 20 {
			event(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n")
			select {
			case <-r.Context().Done():
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
		event(w, done)
	})
	l, _ := limited(t, entry, catalog.RateLimits{catalog.MetricParallel: 10_000, catalog.MetricTokens: 1 << 40})
	random := rand.New(rand.NewPCG(1, 2))
	var clients sync.WaitGroup
	slots := make(chan struct{}, 16)
	for range n {
		slots <- struct{}{}
		wait := time.Duration(random.IntN(6000)) * time.Microsecond
		clients.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "POST", entry.url+chatPath, strings.NewReader(chatBody))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer good")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	clients.Wait()
	eventually(t, "all grants have ended", func() bool { return l.Stats().InFlight == 0 })
	entry.checkReleased(t)
	holder.checkReleased(t)
}

func TestMessagesTellLimitsAsTheirClientsKnowThem(t *testing.T) {
	entry, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"type":"message"}`) })
	limited(t, entry, catalog.RateLimits{catalog.MetricRequests: 1})
	for _, status := range []int{200, 429} {
		resp := send(t, entry, "POST", "/v1/messages", messagesBody+"}")
		text(t, resp)
		reset, err := time.Parse(time.RFC3339, resp.Header.Get("Anthropic-Ratelimit-Requests-Reset"))
		if resp.StatusCode != status || resp.Header.Get("Anthropic-Ratelimit-Requests-Limit") != "1" ||
			resp.Header.Get("Anthropic-Ratelimit-Requests-Remaining") != "0" || err != nil || time.Until(reset) < -time.Minute {
			t.Errorf("status %d, headers %v", resp.StatusCode, resp.Header)
		}
	}
}

func TestEstimatesDoNotWrap(t *testing.T) {
	i := &inference{t: &request{route: route{streams: true}}}
	i.own.form = form{path: chatPath, dialect: openai.Chat}
	for _, body := range []string{`{"max_tokens":4611686018427387904,"n":4}`, `{"n":9223372036854775807,"max_tokens":9223372036854775807}`} {
		var err error
		if i.own.req, err = openai.Scan([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if u, e := i.estimate(ModelView{}); e != nil || u.Output < 1<<40 {
			t.Errorf("%s: %+v, %v", body, u, e)
		}
	}
}
