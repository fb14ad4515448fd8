package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/mesh/catalog"
	"llmgw/router/affinity"
	"llmgw/router/keys"
	"llmgw/router/limits"
)

// priced is a ledger whose models or providers cost money.
type priced struct {
	ledger
	prices map[[2]string]catalog.Price
}

func (p *priced) Price(model, provider string) (catalog.Price, bool) {
	for _, k := range [][2]string{{model, provider}, {"", provider}, {model, ""}} {
		if v, ok := p.prices[k]; ok {
			return v, true
		}
	}
	return catalog.Price{}, false
}

type fakeRights struct {
	mu                    sync.Mutex
	left, taken, returned uint64
	calls                 int
}

func (f *fakeRights) Take(_ context.Context, _ crdt.Account, _, n uint64) (func(uint64), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if n > f.left {
		return nil, errors.New("none left")
	}
	f.left -= n
	f.taken += n
	return func(used uint64) { f.settle(n, used) }, nil
}

func (f *fakeRights) Spent(crdt.Account) {}

func (f *fakeRights) settle(amount, used uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left += amount - min(used, amount)
	f.returned += used
}

func budgeted(t *testing.T, n *node, book *priced, rights limits.Rights, rules catalog.Rules) *limits.Limiter {
	l := limits.New(limits.Config{Self: crdt.Incarnation{Replica: 1, Boot: 1}, Peer: "a", Book: book, Ledger: book, Rights: rights})
	n.cfg.Quotas = l
	n.cfg.Auth = fakeAuth{"good": {ID: "k1", Name: "laptop", Scopes: []string{keys.ScopeInfer}, Rules: rules}}
	t.Cleanup(l.Close)
	return l
}

// an embeddings request is reserved a whole context of output.
func TestEmbeddingsReserveNoOutput(t *testing.T) {
	n := newNode(t)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[],"usage":{"prompt_tokens":3,"total_tokens":3}}`)
	}))
	t.Cleanup(e.Close)
	r := n.serveLocally("m", e.URL)
	r.Context = 32768
	n.catalog.set(view("m", r))
	budgeted(t, n, &priced{}, nil, catalog.Rules{Budgets: []catalog.Budget{{Period: catalog.PeriodDay, Unit: catalog.UnitTokens, Amount: 10_000}}})
	resp := send(t, n, "POST", "/v1/embeddings", `{"model":"m","input":"hello world"}`)
	if resp.StatusCode != 200 {
		t.Errorf("an embedding of two words with 10000 tokens left: %d %s", resp.StatusCode, text(t, resp))
	}
}

// a request that spills over to a provider takes no rights of a hard budget.
func TestSpillTakesRights(t *testing.T) {
	s := newService(t, answers)
	a := newAbroad(t, s.as("vendor", func(p *catalog.Provider) { p.Held = catalog.HeldLast }))
	// A mesh replica that breaks, so the provider answers.
	e := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { die() }))
	t.Cleanup(e.Close)
	a.catalog.set(view("fast", a.serveLocally("fast", e.URL)))
	book := &priced{prices: map[[2]string]catalog.Price{{"", "vendor"}: {Micros: map[catalog.PriceKind]uint64{catalog.PriceInput: 1_000_000_000, catalog.PriceOutput: 1_000_000_000}}}}
	rights := &fakeRights{left: 0} // nothing is left of the budget
	l := budgeted(t, a.node, book, rights, catalog.Rules{Budgets: []catalog.Budget{{Period: catalog.PeriodDay, Unit: catalog.UnitMicros, Amount: 1_000_000, Hard: true}}})
	for i := range 3 {
		resp, got := a.ask(t, `{"model":"fast","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`)
		t.Log(resp.StatusCode, got, len(s.requests()))
		if resp.StatusCode == 200 {
			t.Errorf("request %d was served by the provider without rights: %s", i, got)
		}
	}
	l.Close()
	if len(book.records) > 0 {
		t.Errorf("spent %d micros; rights asked for %d times, told of %d micros", book.records[0].Micros, rights.calls, rights.returned)
	}
}

// n answers are reserved as one.
func TestSeveralAnswersAreReserved(t *testing.T) {
	n := newNode(t)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":12800}}`)
	}))
	t.Cleanup(e.Close)
	n.catalog.set(view("m", n.serveLocally("m", e.URL)))
	rights := &fakeRights{left: 1000}
	budgeted(t, n, &priced{}, rights, catalog.Rules{Budgets: []catalog.Budget{{Period: catalog.PeriodDay, Unit: catalog.UnitTokens, Amount: 1000, Hard: true}}})
	resp := send(t, n, "POST", chatPath, `{"model":"m","n":128,"max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`)
	if resp.StatusCode == 200 {
		t.Errorf("128 answers of 100 tokens were let through with a hard budget of 1000 tokens; reserved %d", rights.taken)
	}
}

// pictures have a price each, and nothing is reserved for them.
func TestPicturesAreReserved(t *testing.T) {
	n := newNode(t)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"created":1,"data":[`+strings.TrimSuffix(strings.Repeat(`{"b64_json":"aa"},`, 10), ",")+`]}`)
	}))
	t.Cleanup(e.Close)
	n.catalog.set(view("m", n.serveLocally("m", e.URL)))
	rights := &fakeRights{left: 100}
	book := &priced{prices: map[[2]string]catalog.Price{{"m", ""}: {Micros: map[catalog.PriceKind]uint64{catalog.PriceImage: 40_000}}}}
	l := budgeted(t, n, book, rights, catalog.Rules{Budgets: []catalog.Budget{{Period: catalog.PeriodDay, Unit: catalog.UnitMicros, Amount: 1000, Hard: true}}})
	resp := send(t, n, "POST", "/v1/images/generations", `{"model":"m","n":10,"prompt":"a cat"}`)
	if resp.StatusCode == 200 {
		text(t, resp)
		l.Close()
		t.Errorf("10 pictures for %d micros with a hard budget of 1000: reserved %d, told the escrow of %d", book.last(t, 1).Micros, rights.taken, rights.returned)
	}
}

// brokenPipe is a client whose connection takes nothing, and whose leaving is
// not known yet.
type brokenPipe struct{ *httptest.ResponseRecorder }

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// a waiting client whose write fails before its context ends.
func TestFailedWriteInWait(t *testing.T) {
	asked := &demands{}
	n := newNode(t, func(c *Config) {
		c.Demand = asked.want
		c.Limits.KeepAlive = 200 * time.Millisecond
		c.Limits.Write = time.Second
		c.Limits.FirstByte = time.Minute
		c.Limits.Idle = time.Minute
		c.Limits.Connect = time.Second
	})
	n.catalog.set(coming("m", "waiting"))
	l := budgeted(t, n, &priced{}, nil, catalog.Rules{Limits: catalog.RateLimits{catalog.MetricParallel: 1}})
	req := httptest.NewRequest("POST", chatPath, strings.NewReader(chatBody))
	req.Header.Set("Authorization", "Bearer good")
	func() {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panics: %v", p)
			}
		}()
		n.serve(brokenPipe{httptest.NewRecorder()}, req)
	}()
	if got := l.Stats().InFlight; got != 0 {
		t.Errorf("%d grants are never ended: the key's one parallel request is gone for good", got)
	}
}

// who waits sees a replica that came since.
func TestWaitersSeeNewReplicas(t *testing.T) {
	r := newNode(t)
	old := Replica{Peer: "b", Slots: 1}
	r.catalog.set(view("m", old))
	v, _ := r.catalog.Resolve("m")
	// It is full.
	for range 2 {
		_, ticket := r.pick(v.Replicas, nil, affinity.Query{Tokens: 1})
		t.Cleanup(func() { ticket.Done(time.Now()) })
	}
	i := &inference{t: &request{r: r.Router, out: newAnswer(httptest.NewRecorder(), r.cfg.Limits, time.Now())}, means: meaning{name: "m", targets: []string{"m"}}, asked: map[tried]bool{}}
	o, e := i.look()
	if e != nil {
		t.Fatal(e)
	}
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	go func() {
		p, e := i.queue(ctx, o)
		if p == nil {
			got <- fmt.Errorf("no pass: %v", e)
			return
		}
		p.end()
		got <- nil
	}()
	eventually(t, "it waits", func() bool { return r.queue.length() == 1 })
	r.catalog.set(view("m", old, Replica{Peer: "c", Slots: 8})) // scaled up, idle
	if err := <-got; err != nil {
		t.Errorf("5 s after an idle replica came the request still waits: %v", err)
	}
}

// one key's narrow choice does not close the line for others.
func TestRoomIsTheWaitersOwn(t *testing.T) {
	var q queue
	free := 0
	none, much := func() int { return 0 }, func() int { return free }
	_, narrow := q.enter("m", "narrow", bandNormal, time.Unix(1, 0), none) // may use a full node alone
	p, w := q.enter("m", "any", bandNormal, time.Unix(2, 0), much)         // others too, which are full as well
	if p != nil {
		t.Fatal("let through to nodes that are full")
	}
	_, narrow2 := q.enter("m", "narrow", bandNormal, time.Unix(3, 0), none)
	free = 8
	for range 100 {
		q.advance("m")
	}
	if p, _ := q.enter("m", "new", bandNormal, time.Unix(4, 0), much); p == nil {
		t.Error("8 places are free, and one who comes now waits behind those who may use a full node alone")
	}
	select {
	case <-w.ready:
	default:
		t.Error("8 places are free for it, and it waits as a key came that may use a full node alone")
	}
	for _, o := range []*waiter{narrow, narrow2} {
		select {
		case <-o.ready:
			t.Error("let through to a node that is full")
		default:
		}
	}
}

// conversations of a key that must keep to some nodes are handed over to others.
func TestHandOverKeepsToNodes(t *testing.T) {
	var here, there bodies
	a, b := newNode(t), newNode(t)
	own := a.serveLocally("m", here.engine(t))
	own.Labels = map[string]string{"zone": "eu"}
	other := b.serveLocally("m", there.engine(t))
	other.Peer, other.Local, other.Labels = "b", false, map[string]string{"zone": "us"}
	a.mesh.set("b", b.ServeInfer)
	nodes := catalog.Selector{Require: map[string]string{"zone": "eu"}}
	a.cfg.Auth = fakeAuth{"good": {ID: "k1", Name: "eu only", Scopes: []string{keys.ScopeInfer}, Nodes: nodes}}
	a.catalog.set(view("m", own, other))
	body := `{"model":"m","messages":[{"role":"user","content":"secret of the eu` + strings.Repeat(" lighthouse", 200) + `"}]}`
	text(t, send(t, a, "POST", chatPath, body))
	a.HandOver(t.Context(), "m", 0)
	if got := there.all(); len(got) > 0 {
		t.Errorf("a node in the us, which the key may not use, got its prompt: %.80s", got[0])
	}
}

// a bound that the engine does not know stands for the model's own.
func TestBoundsOfOtherAPIs(t *testing.T) {
	for path, bodies := range map[string][]string{
		chatPath: {`{"model":"m","max_output_tokens":1,"messages":[]}`, `{"model":"m","n_predict":1,"messages":[]}`},
	} {
		for _, body := range bodies {
			n := newNode(t)
			var got string
			e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				got = string(b)
				_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":100000}}`)
			}))
			t.Cleanup(e.Close)
			v := view("m", n.serveLocally("m", e.URL))
			v.Model.Limits.MaxOutput = 100
			n.catalog.set(v)
			rights := &fakeRights{left: 1000}
			budgeted(t, n, &priced{}, rights, catalog.Rules{Budgets: []catalog.Budget{{Period: catalog.PeriodDay, Unit: catalog.UnitTokens, Amount: 1000, Hard: true}}})
			resp := send(t, n, "POST", path, body)
			text(t, resp)
			if !strings.Contains(got, `"max_tokens":`) && !strings.Contains(got, `"max_completion_tokens":`) {
				t.Errorf("%s: the model gives at most 100 tokens, the engine is told %s; %d tokens reserved", path, got, rights.taken)
			}
		}
	}
}

// usage that is asked for twice.
func TestDoubledIncludeUsage(t *testing.T) {
	n := newNode(t)
	var got string
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = string(b)
		event(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n", done)
	}))
	t.Cleanup(e.Close)
	n.catalog.set(view("m", n.serveLocally("m", e.URL)))
	text(t, send(t, n, "POST", chatPath, `{"model":"m","stream":true,"stream_options":{"include_usage":true,"include_usage":false},"messages":[]}`))
	t.Logf("engine got %s", got)
}

// what an attempt that failed told is in the usage of the one that served.
func TestMeterOfFailedAttempt(t *testing.T) {
	bad := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		// A cut success: 200, a part of the document, then dead.
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"error":{"message":"x"},"usage":{"prompt_tokens":5000,"completion_tokens":7000},"a":{"usage":{`)
		w.(http.Flusher).Flush()
		die()
	})
	good := newService(t, answers)
	a := newAbroad(t, good.as("good"), bad.as("bad", first))
	book := &priced{}
	l := budgeted(t, a.node, book, nil, catalog.Rules{})
	resp, got := a.ask(t, gptBody)
	l.Close()
	t.Logf("%d %s", resp.StatusCode, got)
	for _, r := range book.records {
		t.Logf("%+v", r)
		if r.Usage.Input != 9 || r.Usage.Output != 3 {
			t.Errorf("charged %+v, the answer told 9 and 3", r.Usage)
		}
	}
}

// an answer in the background is counted.
func TestBackground(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"resp_1","object":"response","status":"queued","background":true,"output":[],"usage":null}`)
	})
	a := newAbroad(t, s.as("vendor", func(p *catalog.Provider) { p.Native = []catalog.Ability{catalog.AbilityResponses} }))
	book := &priced{}
	l := budgeted(t, a.node, book, nil, catalog.Rules{})
	resp := send(t, a.node, "POST", "/v1/responses", `{"model":"gpt-4o","background":true,"input":"write a very long book"}`)
	got := text(t, resp)
	l.Close()
	if resp.StatusCode == 200 {
		t.Errorf("%s: the provider got %s; the key is charged %+v", got, s.requests()[0].body, book.records)
	}
}

// a translated answer in one piece that breaks off: the client was sent nothing.
func TestTranslatedWholeBreaksOff(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/messages":  `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
		"/v1/responses": `{"model":"m","input":"hi"}`,
		"/api/chat":     `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}]}`,
	} {
		n := newNode(t)
		e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"x","choices":[{"index":0,"message":{"rol`)
			w.(http.Flusher).Flush()
			die()
		}))
		t.Cleanup(e.Close)
		r := n.serveLocally("m", e.URL)
		r.Lacks = []catalog.Ability{catalog.AbilityMessages, catalog.AbilityResponses}
		n.catalog.set(view("m", r))
		req, _ := http.NewRequestWithContext(t.Context(), "POST", n.url+path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer good")
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("%s: the connection is cut, with no answer at all: %v", path, err)
			continue
		}
		t.Log(path, resp.StatusCode, text(t, resp))
	}
}

// a doubled bound in other letters.
func TestBoundInOtherLetters(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/messages":  `{"model":"m","max_tokens":1,"MAX_TOKENS":100000,"messages":[{"role":"user","content":"hi"}]}`,
		"/v1/responses": `{"model":"m","max_output_tokens":1,"Max_Output_Tokens":100000,"input":"hi"}`,
	} {
		n := newNode(t)
		var got string
		e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			got = string(b)
			_, _ = io.WriteString(w, gptAnswer)
		}))
		t.Cleanup(e.Close)
		r := n.serveLocally("m", e.URL)
		r.Lacks = []catalog.Ability{catalog.AbilityMessages, catalog.AbilityResponses}
		v := view("m", r)
		v.Model.Limits.MaxOutput = 100
		n.catalog.set(v)
		text(t, send(t, n, "POST", path, body))
		if strings.Contains(got, "100000") {
			t.Errorf("%s: the model gives at most 100 tokens, and the engine is asked for %s", path, got)
		}
	}
}

// a full queue remembers no line for each name that clients make up.
func TestFullQueueRemembersNoLines(t *testing.T) {
	var q queue
	none := func() int { return 0 }
	for range maxWaiting {
		q.enter("m", "k", bandNormal, time.Unix(1, 0), none)
	}
	for i := range 1000 {
		q.enter(fmt.Sprint("gpt-", i), "k", bandNormal, time.Unix(1, 0), none)
	}
	if len(q.lines) > 1 {
		t.Errorf("%d lines are kept for ever for names that nobody waits for", len(q.lines)-1)
	}
}
