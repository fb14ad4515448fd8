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

	"llmgw/router/openai"
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
