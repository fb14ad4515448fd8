package router

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/keys"
)

// storing are two heads of one engine; a stores what it is asked.
func storing(t *testing.T, asked *bodies) (a, b *node) {
	t.Helper()
	auth := fakeAuth{"good": {ID: "k1", Scopes: []string{keys.ScopeInfer}}, "good-other": {ID: "k2", Scopes: []string{keys.ScopeInfer}}}
	heads := map[string]*node{}
	url := asked.engine(t)
	for _, name := range []string{"a", "b"} {
		n := newNode(t, func(c *Config) { c.Peer, c.Auth = name, auth })
		r := n.serveLocally("m", url)
		r.Lacks = []catalog.Ability{catalog.AbilityResponses}
		n.catalog.set(view("m", r))
		heads[name] = n
	}
	for from, to := range map[string]string{"a": "b", "b": "a"} {
		heads[from].mesh.set(to+ProtocolStored, heads[to].ServeStored)
	}
	return heads["a"], heads["b"]
}

func respond(t *testing.T, n *node, body string) (id string) {
	t.Helper()
	var out struct{ ID string }
	if err := json.Unmarshal([]byte(text(t, send(t, n, "POST", "/v1/responses", body))), &out); err != nil || out.ID == "" {
		t.Fatalf("no response: %v", err)
	}
	return out.ID
}

func TestAResponseIsFoundAndGoneOnFromAtAnyHead(t *testing.T) {
	var asked bodies
	a, b := storing(t, &asked)
	id := respond(t, a, `{"model":"m","input":"my name is Ada","instructions":"be kind"}`)
	for name, n := range map[string]*node{"its own": a, "another": b} {
		got := text(t, send(t, n, "GET", "/v1/responses/"+id, ""))
		if !strings.Contains(got, `"id":"`+id+`"`) || !strings.Contains(got, `"text":"hello"`) {
			t.Errorf("at %s head: %s", name, got)
		}
	}
	second := respond(t, b, `{"model":"m","previous_response_id":"`+id+`","input":"what is it?"}`)
	bodies := asked.all()
	last := bodies[len(bodies)-1]
	rest := last
	for _, part := range []string{"my name is Ada", "hello", "what is it?"} {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("%q is not at its place in %s", part, last)
		}
		rest = after
	}
	if strings.Contains(last, "be kind") {
		t.Errorf("instructions are of one request alone: %s", last)
	}
	third := respond(t, a, `{"model":"m","previous_response_id":"`+second+`","input":"and now?"}`)
	if bodies = asked.all(); !strings.Contains(bodies[len(bodies)-1], "my name is Ada") {
		t.Errorf("the third forgot the first: %s", bodies[len(bodies)-1])
	}
	for _, n := range []*node{a, b} {
		wantError(t, send(t, n, "POST", "/v1/responses/"+second+"/cancel", ""), 400, "invalid_request_error")
	}
	wantError(t, send(t, a, "GET", "/v1/responses/"+second+"/cancel", ""), 405, "method_not_allowed")
	wantError(t, send(t, a, "POST", "/v1/responses/resp_x/cancel", "{}"), 404, "response_not_found")
	if got := text(t, send(t, a, "DELETE", "/v1/responses/"+second, "")); !strings.Contains(got, `"deleted":true`) {
		t.Errorf("delete: %s", got)
	}
	wantError(t, send(t, a, "GET", "/v1/responses/"+second, ""), 404, "response_not_found")
	wantError(t, send(t, a, "DELETE", "/v1/responses/"+second, ""), 404, "response_not_found")
	if resp := send(t, a, "GET", "/v1/responses/"+third, ""); resp.StatusCode != 200 {
		t.Errorf("the third: status %d", resp.StatusCode)
	}
}

func TestAStoredResponseIsItsKeysAlone(t *testing.T) {
	var asked bodies
	a, b := storing(t, &asked)
	id := respond(t, a, `{"model":"m","input":"a secret"}`)
	other := func(r *http.Request) { r.Header.Set("Authorization", "Bearer good-other") }
	for _, n := range []*node{a, b} {
		for _, method := range []string{"GET", "DELETE"} {
			if resp := send(t, n, method, "/v1/responses/"+id, "", other); resp.StatusCode != 404 {
				t.Errorf("%s by another key: status %d, %s", method, resp.StatusCode, text(t, resp))
			}
		}
		if resp := send(t, n, "POST", "/v1/responses", `{"model":"m","previous_response_id":"`+id+`","input":"x"}`, other); resp.StatusCode != 404 {
			t.Errorf("gone on from by another key: status %d", resp.StatusCode)
		}
	}
	if resp := send(t, a, "GET", "/v1/responses/"+id, ""); resp.StatusCode != 200 {
		t.Errorf("its own key: status %d", resp.StatusCode)
	}
}

func TestWhatIsNotToBeStoredIsNot(t *testing.T) {
	var asked bodies
	a, _ := storing(t, &asked)
	id := respond(t, a, `{"model":"m","input":"hi","store":false}`)
	wantError(t, send(t, a, "GET", "/v1/responses/"+id, ""), 404, "response_not_found")
	for _, id := range []string{"resp_x", "resp_gone_00", "x"} {
		e := send(t, a, "GET", "/v1/responses/"+id, "")
		if e.StatusCode != 404 && e.StatusCode != 503 {
			t.Errorf("%s: status %d", id, e.StatusCode)
		}
	}
	if resp := send(t, a, "PUT", "/v1/responses/"+id, ""); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, DELETE" {
		t.Errorf("PUT: status %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
}

func TestAStreamIsStoredOnlyWhenItIsWhole(t *testing.T) {
	for name, whole := range map[string]bool{"whole": true, "cut": false} {
		t.Run(name, func(t *testing.T) {
			entry, _ := pair(t, false, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				pieces := strings.SplitAfter(chatStream, "\n\n")
				if !whole {
					pieces = pieces[:3]
				}
				event(w, pieces...)
				if !whole {
					die()
				}
			})
			entry.cfg.Peer = "a"
			lacking(entry, catalog.AbilityResponses)
			stream := text(t, send(t, entry, "POST", "/v1/responses", `{"model":"m","input":"hi","stream":true}`))
			_, rest, _ := strings.Cut(stream, `"id":"resp_`)
			id, _, _ := strings.Cut(rest, `"`)
			resp := send(t, entry, "GET", "/v1/responses/resp_"+id, "")
			if got := text(t, resp); whole && !strings.Contains(got, `"text":"hello"`) || !whole && resp.StatusCode != 404 {
				t.Errorf("status %d, %s", resp.StatusCode, got)
			}
		})
	}
}

func TestStoredResponsesAreBounded(t *testing.T) {
	var s stored
	now := time.Unix(1000, 0)
	big := make(json.RawMessage, storedOne-1)
	for i := range 2 * storedBytes / storedOne {
		s.put(&storedResponse{id: fmt.Sprint(i), Key: "k", Items: big, used: now})
	}
	if s.bytes > storedBytes || len(s.by) != s.lru.Len() || s.get("0", "k", now) != nil {
		t.Errorf("%d bytes in %d responses", s.bytes, s.lru.Len())
	}
	last := fmt.Sprint(2*storedBytes/storedOne - 1)
	if s.get(last, "other", now) != nil || s.get(last, "k", now.Add(storedFor)) == nil || s.get(last, "k", now.Add(3*storedFor)) != nil {
		t.Error("another key's or an old one was found, or an own one was not")
	}
	s.put(&storedResponse{id: "x", Key: "k", Items: append(big, big...), used: now})
	if s.get("x", "k", now) != nil {
		t.Error("one that is too large was kept")
	}
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for i := range 100 {
				s.put(&storedResponse{id: fmt.Sprint("r", i), Key: "k", used: now})
				s.get(fmt.Sprint("r", i/2), "k", now)
				s.remove(fmt.Sprint("r", i/3), "k", now)
			}
		})
	}
	users.Wait()
}
