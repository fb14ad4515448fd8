package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/router/affinity"
	"llmgw/router/openai"

	"github.com/google/go-cmp/cmp"
)

// bodies are what an engine was asked.
type bodies struct {
	mu  sync.Mutex
	got []string
}

func (b *bodies) engine(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.got = append(b.got, string(body))
		b.mu.Unlock()
		_, _ = io.WriteString(w, chatWhole)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func (b *bodies) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got
}

func TestConversationsAreComputedAtTheSuccessorBeforeADrain(t *testing.T) {
	var here, there bodies
	a, b := newNode(t), newNode(t)
	own := a.serveLocally("m", here.engine(t))
	other := b.serveLocally("m", there.engine(t))
	other.Peer, other.Local = "b", false
	a.mesh.set("b", b.ServeInfer)
	a.catalog.set(view("m", own))
	chat := func(name string, turns int) string {
		messages := []map[string]string{{"role": "system", "content": name + strings.Repeat(" lighthouse", 200)}}
		for i := range turns {
			messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprint("turn ", i)})
		}
		body, err := json.Marshal(map[string]any{"model": "m", "messages": messages, "max_tokens": 99})
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	for turn := 1; turn <= 3; turn++ {
		for _, name := range []string{"one", "two"} {
			text(t, send(t, a, "POST", chatPath, chat(name, turn)))
		}
	}
	if n, all := a.HandOver(t.Context(), "m", 0); n != 0 || all != 0 {
		t.Errorf("handed over %d of %d to nobody", n, all)
	}
	text(t, send(t, a, "POST", chatPath, chat("one", 3)))
	text(t, send(t, a, "POST", chatPath, chat("two", 3)))
	a.catalog.set(view("m", own, other))
	if n, all := a.HandOver(t.Context(), "m", 0); n != 2 || all != 2 {
		t.Fatalf("handed over %d of %d", n, all)
	}
	got := there.all()
	for _, body := range got {
		if !strings.Contains(body, `"turn 2"`) || !strings.Contains(body, `"max_tokens":1`) || strings.Contains(body, "99") {
			t.Errorf("the successor computes %s", body)
		}
	}
	if len(got) != 2 || strings.Contains(got[0], `"one `) == strings.Contains(got[1], `"one `) {
		t.Errorf("the successor got %d bodies", len(got))
	}
	// The head knows where they are: each goes on at the successor though the old
	// replica is as near.
	var p openai.Prompt
	if _, err := openai.ScanPrompt([]byte(chat("one", 4)), &p); err != nil {
		t.Fatal(err)
	}
	q, _ := chainOf(&p)
	left, _ := a.catalog.Resolve("m")
	costs := a.picker.Explain(q, candidates(left.Replicas[1:]), time.Now())
	if costs[0].Warm < q.Tokens/2 {
		t.Errorf("%d of %d tokens are believed warm at the successor", costs[0].Warm, q.Tokens)
	}
	if n, _ := a.HandOver(t.Context(), "m", 0); n != 0 {
		t.Errorf("%d were handed over twice", n)
	}
}

func TestAHandOverEndsWithItsTime(t *testing.T) {
	a, b := newNode(t), newNode(t)
	var here bodies
	own := a.serveLocally("m", here.engine(t))
	a.catalog.set(view("m", own))
	text(t, send(t, a, "POST", chatPath, chatBody))
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	other := b.serveLocally("m", slow.URL)
	other.Peer, other.Local = "b", false
	a.mesh.set("b", b.ServeInfer)
	a.catalog.set(view("m", own, other))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n, all := a.HandOver(ctx, "m", 0); n != 0 || all != 1 {
		t.Errorf("handed over %d of %d", n, all)
	}
}

func TestKeptPromptsAreBounded(t *testing.T) {
	var p prompts
	now := time.Unix(1000, 0)
	body := make([]byte, keptPrompt)
	for i := range 3 * keptBytes / keptPrompt {
		p.keep(prompt{conversation{"m", 0, uint64(i)}, chatPath, "k", body, now})
	}
	if p.bytes > keptBytes || p.lru.Len() != keptBytes/keptPrompt || len(p.by) != p.lru.Len() {
		t.Errorf("%d bytes, %d prompts", p.bytes, p.lru.Len())
	}
	p.keep(prompt{conversation{"m", 0, 1 << 40}, chatPath, "k", append(body, 'x'), now})
	if _, kept := p.by[conversation{"m", 0, 1 << 40}]; kept {
		t.Error("one that is too large was kept")
	}
	p.keep(prompt{conversation{"m", 1, 1}, chatPath, "k", []byte("x"), now.Add(keptFor + time.Second)})
	if p.lru.Len() != 1 || p.bytes != 1 {
		t.Errorf("%d old prompts are left", p.lru.Len()-1)
	}
	if got := p.take("m", 0, now); len(got) != 0 {
		t.Errorf("another slot's prompts: %d", len(got))
	}
	if got := p.take("m", 1, now.Add(keptFor)); len(got) != 1 || p.bytes != 0 {
		t.Errorf("took %d, %d bytes are left", len(got), p.bytes)
	}
}

func TestAConversationThatLosesItsCacheIsTold(t *testing.T) {
	long := strings.Repeat("the sea is grey and the wind comes from the west ", 400)
	for name, c := range map[string]struct {
		before, now string
		at          int
		yes         bool
	}{
		"goes on":            {"a" + long, "a" + long + "and then", 1 + len(long), false},
		"an early byte":      {"turn 1 " + long, "turn 2 " + long + "more", 5, true},
		"an early line":      {"id=1; " + long, "id=12345; " + long, 4, true},
		"another prompt":     {"turn 1 " + long, "turn 2 " + strings.ToUpper(long), 5, false},
		"short":              {"turn 1 hello", "turn 2 hello", 5, false},
		"a late byte":        {long + "1" + long, long + "2" + long, len(long), false},
		"the first is empty": {"", long, 0, false},
	} {
		if at, yes := collapsed([]byte(c.before), []byte(c.now)); at != c.at || yes != c.yes {
			t.Errorf("%s: %d, %v", name, at, yes)
		}
	}
}

func TestAVolatileLineIsNoPartOfTheKey(t *testing.T) {
	chainOfBody := func(line string) affinity.Query {
		var p openai.Prompt
		body := `{"model":"m","system":[{"type":"text","text":"` + line + `"},{"type":"text","text":"` + strings.Repeat("rules ", 500) + `"}],"messages":[{"role":"user","content":"hi"}]}`
		if _, err := openai.ScanPrompt([]byte(body), &p); err != nil {
			t.Fatal(err)
		}
		q, _ := chainOf(&p)
		return q
	}
	a, b := chainOfBody("x-anthropic-billing-header: cch=a1;"), chainOfBody("x-anthropic-billing-header: cch=b2;")
	if diff := cmp.Diff(a.Chain, b.Chain); diff != "" {
		t.Errorf("the turns look different: %s", diff)
	}
	if diff := cmp.Diff(a.Chain, chainOfBody("y-header: cch=b2;").Chain); diff == "" {
		t.Error("another line counts for nothing, too")
	}
}

func TestVolatileLinesAreTakenOutWhereSwitchedOn(t *testing.T) {
	const body = `{"model":"m","max_tokens":1,"system":"x-anthropic-billing-header: cch=1;\nrules","messages":[{"role":"user","content":"hi"}]}`
	var asked bodies
	n := newNode(t)
	n.catalog.set(view("m", n.serveLocally("m", asked.engine(t))))
	for _, on := range []bool{false, true} {
		n.SetStripVolatile(on)
		text(t, send(t, n, "POST", "/v1/messages", body))
	}
	got := asked.all()
	if got[0] != body || got[1] != strings.Replace(body, `x-anthropic-billing-header: cch=1;\n`, "", 1) {
		t.Errorf("the engine got %q", got)
	}
	wantBad := send(t, n, "POST", "/v1/messages", `{"system":`)
	if wantBad.StatusCode != 400 {
		t.Errorf("status %d for what is no JSON", wantBad.StatusCode)
	}
}
