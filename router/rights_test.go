package router

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/keys"
	"llmgw/router/openai"
)

func TestAKeySeesAndUsesItsModelsAlone(t *testing.T) {
	n := newNode(t)
	n.cfg.Auth = fakeAuth{"good": {ID: "k1", Scopes: []string{keys.ScopeInfer}, Models: []string{"team/*"}}}
	aliased := view("other", Replica{Peer: "b"})
	aliased.Model.Aliases = []string{"team/other"}
	n.catalog.set(view("secret", Replica{Peer: "b"}), view("Team/Small"), aliased)
	var list openai.ModelList
	if err := json.Unmarshal([]byte(text(t, send(t, n, "GET", "/v1/models", ""))), &list); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, m := range list.Data {
		seen = append(seen, m.ID)
	}
	if strings.Join(seen, " ") != "other Team/Small" {
		t.Errorf("sees %v", seen)
	}
	wantError(t, send(t, n, "GET", "/v1/models/secret", ""), 404, "model_not_found")
	wantError(t, send(t, n, "POST", chatPath, `{"model":"secret"}`), 403, "model_not_allowed")
	e := wantError(t, send(t, n, "POST", chatPath, `{"model":"none"}`), 404, "model_not_found")
	if strings.Contains(e.Error.Message, "secret") {
		t.Errorf("a model that the key may not use is named: %s", e.Error.Message)
	}
}

func TestAKeyIsAnsweredByItsNodesAlone(t *testing.T) {
	entry, holder := pair(t, true, func(w http.ResponseWriter, _ *http.Request) { event(w, done) })
	entry.cfg.Auth = fakeAuth{"good": {ID: "k1", Scopes: []string{keys.ScopeInfer}, Nodes: catalog.Selector{Require: map[string]string{"zone": "eu"}}}}
	replica := Replica{Peer: "b", Node: "box-b", Epoch: 7, Digest: "d"}
	entry.mesh.set("b", holder.ServeInfer)
	for zone, status := range map[string]int{"eu": 200, "us": 403, "": 403} {
		if replica.Labels = map[string]string{}; zone != "" {
			replica.Labels["zone"] = zone
		}
		entry.catalog.set(view("m", replica))
		resp := send(t, entry, "POST", chatPath, chatBody)
		if status == 403 {
			wantError(t, resp, 403, "node_not_allowed")
		} else if got := text(t, resp); resp.StatusCode != status || got != done {
			t.Errorf("zone %q: status %d, %q", zone, resp.StatusCode, got)
		}
	}
}

// rationed refuses all, and notes for whom.
type rationed struct{ from []netip.Addr }

func (r *rationed) CheckFrom(_ string, client netip.Addr) (keys.Info, error) {
	r.from = append(r.from, client)
	return keys.Info{}, &keys.RationError{RetryAfter: 3 * time.Second}
}

func (*rationed) Find(string) (keys.Info, error) { return keys.Info{}, keys.ErrNotFound }

func (*rationed) AllowsOrigin(string) bool { return false }

func TestWrongKeysAreRationedByTheClientsOwnAddress(t *testing.T) {
	auth := &rationed{}
	var trusted []netip.Prefix
	n := newNode(t, func(c *Config) {
		c.Auth, c.Trusted = auth, func() []netip.Prefix { return trusted }
	})
	forwarded := func(r *http.Request) { r.Header.Set("X-Forwarded-For", "203.0.113.9") }
	resp := send(t, n, "GET", "/v1/models", "", forwarded)
	wantError(t, resp, 429, "too_many_wrong_keys")
	if resp.Header.Get("Retry-After") != "3" {
		t.Errorf("Retry-After %q", resp.Header.Get("Retry-After"))
	}
	trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	text(t, send(t, n, "GET", "/v1/models", "", forwarded))
	if !auth.from[0].IsLoopback() || auth.from[1] != netip.MustParseAddr("203.0.113.9") {
		t.Errorf("rationed for %v", auth.from)
	}
}
