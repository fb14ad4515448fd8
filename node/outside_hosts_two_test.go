package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"llmgw/ui"
)

const hostKey = "sk-host-0123456789abcdef0123456789abcdef"

// ollama is a host that answers as one.
type ollama struct {
	*httptest.Server
	dead   atomic.Bool
	breaks atomic.Bool // answers break off
	mu     sync.Mutex
	chats  []http.Header
	bodies []string
}

func newOllama(t *testing.T) *ollama {
	t.Helper()
	o := &ollama{}
	o.Server = httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(o.Close)
	return o
}

func (o *ollama) serve(w http.ResponseWriter, r *http.Request) {
	if o.dead.Load() {
		panic(http.ErrAbortHandler)
	}
	docs := map[string]string{
		"/api/version": `{"version":"0.12.1"}`, "/api/tags": `{"models":[{"name":"qwen3:8b"},{"name":"llama3:latest"}]}`,
		"/api/ps": `{"models":[{"name":"qwen3:8b","context_length":8192}]}`, "/v1/models": `{"data":[{"id":"qwen3:8b"}]}`,
	}
	if doc, ok := docs[r.URL.Path]; ok && r.Method == http.MethodGet {
		_, _ = io.WriteString(w, doc)
		return
	}
	if r.URL.Path != "/v1/chat/completions" || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	o.chats, o.bodies = append(o.chats, r.Header.Clone()), append(o.bodies, string(body))
	o.mu.Unlock()
	w.Header().Set("Openai-Organization", "desk")
	if o.breaks.Load() {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[]}\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"hello"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`)
}

func (o *ollama) asked() ([]http.Header, []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.chats), slices.Clone(o.bodies)
}

// A host is reached by each head through its sponsor, shown as replicas, counted,
// and left out while it is down.
func TestAHostAnswersForTheWholeMesh(t *testing.T) {
	a, b := pair(t)
	host := newOllama(t)
	ctx := t.Context()
	key := a.newKey(t, ui.KeyRequest{Name: "k"})
	_, err := a.client.SetProvider(ctx, ui.ProviderRequest{
		Name: "desk", URL: &host.URL, AllowPrivate: ptr(true), Sponsor: ptr(a.mesh.Self()), Keys: &ui.List[string]{hostKey},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []daemon{a, b} {
		eventually(t, "both boxes answer for it", func() bool { code, _ := d.chat(t, key, "qwen3:8b"); return code == 200 })
	}
	if code, body := b.chat(t, key, "llama3"); code != 200 {
		t.Errorf("by the name without its tag: %d %s", code, body)
	}
	headers, bodies := host.asked()
	last := headers[len(headers)-1]
	if !strings.Contains(bodies[len(bodies)-1], `"model":"llama3:latest"`) || last.Get("Authorization") != "Bearer "+hostKey {
		t.Errorf("the host was asked %v %s", last, bodies[len(bodies)-1])
	}
	for name := range last {
		if strings.HasPrefix(name, "X-Llmgw-") {
			t.Errorf("the host got %s", name)
		}
	}
	list, err := b.client.Replicas(ctx)
	if err != nil || len(list.Replicas) != 2 || list.Replicas[1].Model != "qwen3:8b" || list.Replicas[1].Engine != "ollama" || list.Replicas[1].InFlight != nil ||
		*list.Replicas[1].Context != 8192 || list.Replicas[0].Reason == "" || list.Replicas[0].Device != "host desk" {
		t.Errorf("shown as %+v, %v", list, err)
	}
	if code, body := b.ask(t, key, "GET", "/v1/models", ""); code != 200 || !strings.Contains(body, `"qwen3:8b"`) || !strings.Contains(body, `"context":8192`) {
		t.Errorf("models: %d %s", code, body)
	}
	eventually(t, "it is counted by provider", func() bool {
		u, err := b.client.Usage(ctx, ui.UsageRequest{By: "provider"})
		return err == nil && len(u.Rows) == 1 && u.Rows[0].ID == "desk" && u.Rows[0].Requests >= 3
	})
	hostFaults(t, a, b, host, key)
	a.stop()
	b.stop()
	if all := a.log.String() + b.log.String(); strings.Contains(all, hostKey) {
		t.Error("a log holds the host's key")
	}
}

func hostFaults(t *testing.T, a, b daemon, host *ollama, key string) {
	t.Helper()
	ctx := t.Context()
	host.breaks.Store(true)
	code, body := b.ask(t, key, "POST", "/v1/chat/completions", `{"model":"qwen3:8b","stream":true,"messages":[]}`)
	if code != 200 || !strings.Contains(body, `"error"`) || !strings.HasSuffix(body, "data: [DONE]\n\n") || strings.Contains(body, "@desk") {
		t.Errorf("an answer that breaks off: %d %q", code, body)
	}
	host.breaks.Store(false)
	host.dead.Store(true)
	eventually(t, "both see that it is down", func() bool {
		for _, d := range []daemon{a, b} {
			if code, _ := d.chat(t, key, "qwen3:8b"); code != 404 {
				return false
			}
		}
		return true
	})
	for _, d := range []daemon{a, b} {
		list, err := d.client.Providers(ctx)
		replicas, replicasErr := d.client.Replicas(ctx)
		if err != nil || replicasErr != nil || list.Providers[0].Problem == "" || len(replicas.Replicas) != 1 || replicas.Replicas[0].State != "failed" {
			t.Errorf("a host that is down is shown as %+v, %+v", list, replicas)
		}
		raw, err := json.Marshal([]any{list, replicas})
		if err != nil || strings.Contains(string(raw), hostKey) {
			t.Errorf("the key is shown: %s %v", raw, err)
		}
	}
	host.dead.Store(false)
	eventually(t, "it is up again", func() bool { code, _ := b.chat(t, key, "qwen3:8b"); return code == 200 })
	// Only its sponsor passes requests on, and only for what the host has.
	for _, model := range []string{"@desk/qwen3:8b", "@desk/other", "@none/x"} {
		_, leave, err := local{b.Node}.Target(model, 0)
		if err == nil {
			leave()
			t.Errorf("a node that does not sponsor it gives %s", model)
		}
		if code, _ := b.chat(t, key, model); code == 200 {
			t.Errorf("a client has asked for %s", model)
		}
	}
	if _, _, err := (local{a.Node}).Target("@desk/other", 0); err == nil {
		t.Error("the sponsor gives what the host has not")
	}
	direct := ui.ProviderRequest{Name: "desk", Direct: ptr(true), Models: &ui.List[string]{"big=qwen3:8b"}}
	if _, err := b.client.SetProvider(ctx, direct); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b reaches it itself, by its new name alone", func() bool {
		code, _ := b.chat(t, key, "BIG")
		other, _ := b.chat(t, key, "qwen3:8b")
		v, _ := routes{b.Node}.Resolve("big")
		return code == 200 && other == 404 && len(v.Replicas) == 1 && !v.Replicas[0].Sponsored
	})
	if err := b.client.RemoveProvider(ctx, "desk"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nobody looks at it any more", func() bool { return len(a.hosted.list()) == 0 })
}

func TestASponsorMustBeANode(t *testing.T) {
	d := start(t, t.TempDir())
	_, err := d.client.SetProvider(t.Context(), ui.ProviderRequest{Name: "desk", URL: ptr("http://10.0.0.1"), AllowPrivate: ptr(true), Sponsor: ptr("nobody")})
	if err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("error is %v", err)
	}
	_, err = d.client.SetProvider(t.Context(), ui.ProviderRequest{Name: "desk", URL: ptr("https://api.example"), Direct: ptr(true)})
	if err == nil || !strings.Contains(err.Error(), "sponsor") {
		t.Errorf("error is %v", err)
	}
	for i := range maxHosts + 1 {
		_, err = d.client.SetProvider(t.Context(), ui.ProviderRequest{
			Name: fmt.Sprint("desk-", i), URL: ptr("https://127.0.0.1:1"), AllowPrivate: ptr(true), Sponsor: ptr(d.mesh.Self()),
		})
		if (err != nil) != (i == maxHosts) {
			t.Errorf("host %d: %v", i+1, err)
		}
	}
}
