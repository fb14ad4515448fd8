package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/router/affinity"
	"llmgw/router/keys"
	"llmgw/router/openai"
	"llmgw/router/relay"
)

// named is a query whose conversation has a name and no text.
func named(name string) affinity.Query {
	root := affinity.NameHash(name)
	return affinity.Query{Tokens: 1, Root: root, Session: affinity.SessionHash(root)}
}

func TestPick(t *testing.T) {
	local := Replica{Peer: "a", Local: true}
	idle, busy := Replica{Peer: "b"}, Replica{Peer: "c", InFlight: 30}
	full := Replica{Peer: "a", Local: true, InFlight: 4, Slots: 4}
	cases := map[string]struct {
		replicas []Replica
		asked    []Replica
		want     string
	}{
		"none":             {nil, nil, ""},
		"local first":      {[]Replica{idle, local, busy}, nil, "a"},
		"a local one full": {[]Replica{full, idle}, nil, "b"},
		"fewest in flight": {[]Replica{busy, idle}, nil, "b"},
		"not asked twice":  {[]Replica{busy, idle, local}, []Replica{local, idle}, "c"},
		"all were asked":   {[]Replica{idle}, []Replica{idle}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newNode(t).Router
			asked := make(map[tried]bool)
			for _, a := range c.asked {
				asked[tried{a.key(), a.Epoch}] = true
			}
			got, ticket := r.pick(c.replicas, asked, named("k"))
			if got.Peer != c.want || (ticket != nil) != (c.want != "") {
				t.Errorf("picked %q, %v", got.Peer, ticket)
			}
			if ticket != nil {
				r.count(ticket, "m", false).done()
			}
		})
	}
}

func TestOwnRequestsCountBeforePresenceTellsOfThem(t *testing.T) {
	r := newNode(t).Router
	v := ModelView{Replicas: []Replica{{Peer: "b"}, {Peer: "c"}, {Peer: "d"}}}
	count := make(map[string]int)
	for i := range 30 {
		got, ticket := r.pick(v.Replicas, nil, named(fmt.Sprint("c", i)))
		count[got.Peer]++
		defer r.count(ticket, "m", false).done()
	}
	for peer, n := range count {
		if n != 10 {
			t.Errorf("%s got %d of 30", peer, n)
		}
	}
}

func TestTiesAreStableForAConversationAndSpread(t *testing.T) {
	r := newNode(t).Router
	forward := []Replica{{Peer: "b", Model: "m"}, {Peer: "c", Model: "m"}, {Peer: "d", Model: "m"}}
	backward := []Replica{forward[2], forward[1], forward[0]}
	count := make(map[string]int)
	pick := func(replicas []Replica, name string) string {
		got, ticket := r.pick(replicas, nil, named(name))
		r.count(ticket, "m", false).done()
		return got.Peer
	}
	for i := range 300 {
		name := fmt.Sprint("conversation", i)
		a, b := pick(forward, name), pick(backward, name)
		if a != b {
			t.Fatalf("%s: %s or %s by the order of the list", name, a, b)
		}
		count[a]++
	}
	for peer, n := range count {
		if n < 60 {
			t.Errorf("%s got %d of 300 conversations", peer, n)
		}
	}
}

func TestConversationsAreTold(t *testing.T) {
	n := newNode(t)
	query := func(body string, header http.Header) affinity.Query {
		var p openai.Prompt
		if _, err := openai.ScanPrompt([]byte(body), &p); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		q := &request{r: n.Router, req: &http.Request{Header: header}, key: keys.Info{ID: "k"}}
		return q.query(true, &p)
	}
	const turns = `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}`
	base := query(turns+`]}`, nil)
	cases := map[string]struct {
		body   string
		header http.Header
		blocks int // shared with base
		root   bool
		named  bool
	}{
		"next turn":           {turns + ` , {"role":"assistant","content":"a"}]}`, nil, 2, true, false},
		"pretty":              {strings.Replace(turns, "[{", "[\n {", 1) + "\n]}", nil, 2, true, false},
		"another user":        {strings.Replace(turns, `"u"`, `"v"`, 1) + `]}`, nil, 1, false, false},
		"tools first":         {`{"tools":[{}],` + turns[1:] + `]}`, nil, 0, false, false},
		"tools null":          {`{"tools":null,` + turns[1:] + `]}`, nil, 2, true, false},
		"session header":      {turns + `]}`, http.Header{"X-Session-Id": {"s"}}, 2, false, true},
		"cache key":           {turns + `],"prompt_cache_key":"s"}`, nil, 2, false, true},
		"user":                {turns + `],"user":"s"}`, nil, 2, false, true},
		"too long a name":     {turns + `],"user":"` + strings.Repeat("x", 2000) + `"}`, nil, 2, true, false},
		"last of doubled":     {`{"messages":[1,2,3],` + turns[1:] + `]}`, nil, 2, true, false},
		"a text":              {`{"prompt":"hello"}`, nil, 0, false, false},
		"nothing":             {`{}`, nil, 0, false, false},
		"messages of no list": {`{"messages":"x"}`, nil, 0, false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			q := query(c.body, c.header)
			shared := 0
			for shared < min(len(q.Chain), len(base.Chain)) && q.Chain[shared].Hash == base.Chain[shared].Hash {
				shared++
			}
			if shared != c.blocks || (q.Root == base.Root) != c.root || (q.Session != 0) != c.named {
				t.Errorf("%d blocks shared, root equal %v, session %x", shared, q.Root == base.Root, q.Session)
			}
		})
	}
}

// engineWithCache answers with what it has cached.
func engineWithCache(w http.ResponseWriter, _ *http.Request) {
	event(w, `data: {"choices":[],"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":40}}}`+"\n\n", done)
}

func TestEnginesTellWhatTheyHadCached(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, engineWithCache)
		text(t, send(t, entry, "POST", chatPath, chatBody))
		entry.checkReleased(t)
		if s := entry.picker.Stats(); s.Answers != 1 || s.Prompt != 100 || s.Cached != 40 || s.Picks != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestExplain(t *testing.T) {
	entry := newNode(t, func(c *Config) {
		c.Auth = fakeAuth{"good": {ID: "k1", Scopes: []string{keys.ScopeInfer}}, "good-admin": {ID: "k2", Scopes: []string{keys.ScopeAdmin}}}
	})
	entry.catalog.set(view("m", Replica{Peer: "b", Node: "box-b", InFlight: 3}, Replica{Peer: "c", Node: "box-c", KVUse: 0.99}))
	ask := func(token string) *http.Response {
		return send(t, entry, "POST", chatPath, chatBody, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set(explainHeader, "1")
		})
	}
	wantError(t, ask("good"), http.StatusForbidden, "insufficient_scope")
	var got explanation
	if err := json.Unmarshal([]byte(text(t, ask("good-admin"))), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Candidates) != 2 || got.Model != "m" || got.PromptTokens < 5 {
		t.Fatalf("explanation %+v", got)
	}
	b, c := got.Candidates[0], got.Candidates[1]
	if !b.Chosen || b.Node != "box-b" || b.CostMs <= 0 || b.InFlight != 3 || c.Chosen || c.Excluded == "" {
		t.Errorf("candidates %+v", got.Candidates)
	}
	if s := entry.picker.Stats(); s.Picks != 0 {
		t.Error("an explanation counts as a request")
	}
}

// wire gives what heads publish to the others, at once.
type wire struct {
	mu    sync.Mutex
	heads map[string]*Router
}

type wireEnd struct {
	w    *wire
	name string
}

func (e wireEnd) Publish(msg []byte) { e.tell((*Router).TakeShared, msg) }

func (e wireEnd) Cooled(msg []byte) { e.tell((*Router).TakeCooled, msg) }

func (e wireEnd) tell(take func(r *Router, from string, msg []byte), msg []byte) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	for name, r := range e.w.heads {
		if name != e.name {
			take(r, e.name, msg)
		}
	}
}

// warmMesh lets heads open streams for snapshots to each other.
type warmMesh struct{ w *wire }

func (m warmMesh) Open(_ context.Context, peer, protocol string) (relay.Stream, error) {
	m.w.mu.Lock()
	r := m.w.heads[peer]
	m.w.mu.Unlock()
	if r == nil || protocol != ProtocolWarm {
		return nil, errors.New("no such peer or protocol")
	}
	entry, holder, err := streamPair()
	if err == nil {
		go r.ServeWarm(holder)
	}
	return entry, err
}

func TestHeadsShareWhatIsWarm(t *testing.T) {
	w := &wire{heads: make(map[string]*Router)}
	open := func(name string) *Router {
		r := newNode(t, func(c *Config) { c.Share, c.Mesh = wireEnd{w, name}, warmMesh{w} }).Router
		w.mu.Lock()
		w.heads[name] = r
		w.mu.Unlock()
		return r
	}
	v := ModelView{Replicas: []Replica{{Peer: "x", Model: "m"}, {Peer: "y", Model: "m"}, {Peer: "z", Model: "m"}}}
	serve := func(r *Router, n int) string {
		b := affinity.NewBuilder()
		b.Add([]byte(strings.Repeat(fmt.Sprint("turn ", n), 500)))
		q := affinity.Query{Chain: b.Chain(), Tokens: b.Tokens(), Root: uint64(n)}
		got, ticket := r.pick(v.Replicas, nil, q)
		use := r.count(ticket, "m", false)
		use.first()
		use.done()
		return got.Peer
	}
	a, b := open("a"), open("b")
	for n := range 8 {
		serve(a, n)
	}
	eventually(t, "the other head believes the same", func() bool { return b.picker.Stats().Blocks == a.picker.Stats().Blocks })
	// All that a tells is told: what the next one knows, it was given.
	eventually(t, "an idle head is silent", func() bool {
		a.share.mu.Lock()
		defer a.share.mu.Unlock()
		return a.share.due.IsZero()
	})
	c := open("c")
	serve(a, 8)
	eventually(t, "a head that joins has a snapshot", func() bool { return c.picker.Stats().Blocks == a.picker.Stats().Blocks })
	for n := range 9 {
		if from, to := serve(a, n), serve(c, n); from != to {
			t.Errorf("conversation %d goes to %s from one head and to %s from another", n, from, to)
		}
	}
}

func TestBrokenSharesChangeNothing(t *testing.T) {
	r := newNode(t).Router
	r.TakeShared("b", nil)
	r.TakeShared("b", []byte{9, 9, 9})
	if s := r.picker.Stats(); s.Taken != 0 || s.Replicas != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestPrefixesAreSwitchedWithoutRestart(t *testing.T) {
	entry, _ := pair(t, false, engineWithCache)
	for _, on := range []bool{true, false, true} {
		entry.SetPrefixes(on, time.Minute)
		text(t, send(t, entry, "POST", chatPath, chatBody))
		if blocks := entry.picker.Stats().Blocks; (blocks > 0) != on {
			t.Errorf("prefixes %v: %d blocks", on, blocks)
		}
	}
}

// BenchmarkQuery scans a body of 4 MiB and makes the chain of its messages.
func BenchmarkQuery(b *testing.B) {
	var body strings.Builder
	body.WriteString(`{"model":"m","stream":true,"messages":[`)
	for body.Len() < 4<<20 {
		body.WriteString(`{"role":"user","content":"` + strings.Repeat("some words of a long conversation ", 60) + `"},`)
	}
	body.WriteString(`{"role":"user","content":"end"}]}`)
	raw := []byte(body.String())
	t := &request{req: &http.Request{}}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		var p openai.Prompt
		if _, err := openai.ScanPrompt(raw, &p); err != nil {
			b.Fatal(err)
		}
		if q := t.query(true, &p); len(q.Chain) != affinity.MaxLinks {
			b.Fatalf("%d links", len(q.Chain))
		}
	}
}

func TestConversationKeepsItsReplicaOverHeads(t *testing.T) {
	var mu sync.Mutex
	asked := make(map[string]int)
	engine := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			asked[name]++
			mu.Unlock()
			event(w, done)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	w := &wire{heads: make(map[string]*Router)}
	mesh := &fakeMesh{holders: make(map[string]func(relay.Stream))}
	var replicas []Replica
	for _, name := range []string{"x", "y", "z"} {
		holder := newNode(t)
		replica := holder.serveLocally("m", engine(name))
		replica.Peer, replica.Local = name, false
		mesh.set(name, holder.ServeInfer)
		replicas = append(replicas, replica)
	}
	var heads []*node
	for i := range 4 {
		name := fmt.Sprint("head", i)
		head := newNode(t, func(c *Config) { c.Share, c.Mesh = wireEnd{w, name}, mesh })
		head.catalog.set(view("m", replicas...))
		w.mu.Lock()
		w.heads[name] = head.Router
		w.mu.Unlock()
		heads = append(heads, head)
	}
	messages := `{"role":"system","content":"` + strings.Repeat("rules ", 3000) + `"}`
	for turn := range 10 {
		head := heads[turn%len(heads)]
		messages += fmt.Sprintf(`,{"role":"user","content":"question %d"}`, turn)
		text(t, send(t, head, "POST", chatPath, `{"model":"m","stream":true,"messages":[`+messages+`]}`))
		head.checkReleased(t)
		blocks := head.picker.Stats().Blocks
		for _, other := range heads {
			eventually(t, "all heads have heard of the turn", func() bool { return other.picker.Stats().Blocks == blocks })
		}
	}
	t.Cleanup(mesh.open.Wait)
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 1 {
		t.Errorf("ten turns over four heads went to %v", asked)
	}
}
