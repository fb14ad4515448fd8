package router

import (
	"net/http"
	"strings"
	"testing"

	"llmgw/router/keys"
)

func TestPagesMayUseTheKeysThatNameThem(t *testing.T) {
	const app, other = "https://app.example", "https://other.example"
	n := newNode(t)
	n.cfg.Auth = fakeAuth{
		"good":       {ID: "k1", Scopes: []string{keys.ScopeInfer}, Origins: []string{app}},
		"good-plain": {ID: "k2", Scopes: []string{keys.ScopeInfer}},
		"good-any":   {ID: "k3", Scopes: []string{keys.ScopeInfer}, Origins: []string{"http://localhost:3000"}},
	}
	ask := func(method, origin, key string, more ...string) *http.Response {
		resp := send(t, n, method, "/v1/models", "", func(r *http.Request) {
			r.Header.Del("Authorization")
			if key != "" {
				r.Header.Set("Authorization", "Bearer "+key)
			}
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			for i := 0; i+1 < len(more); i += 2 {
				r.Header.Set(more[i], more[i+1])
			}
		})
		text(t, resp)
		return resp
	}
	asks := []string{"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization, x-stainless-lang"}

	if r := ask("OPTIONS", app, "", append(asks, "Access-Control-Request-Private-Network", "true")...); r.StatusCode != 204 ||
		r.Header.Get("Access-Control-Allow-Origin") != app || r.Header.Get("Access-Control-Allow-Headers") != "authorization, x-stainless-lang" ||
		!strings.Contains(r.Header.Get("Access-Control-Allow-Methods"), "GET") || r.Header.Get("Access-Control-Allow-Private-Network") != "true" {
		t.Errorf("asked for leave: status %d, %v", r.StatusCode, r.Header)
	}
	if r := ask("OPTIONS", other, "", asks...); r.StatusCode != 403 || r.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("an unknown origin: status %d, %v", r.StatusCode, r.Header)
	}
	if r := ask("OPTIONS", "", ""); r.StatusCode != 405 {
		t.Errorf("OPTIONS of no page: status %d", r.StatusCode)
	}
	for name, c := range map[string]struct {
		origin, key string
		status      int
		leave       string
	}{
		"its own key":         {app, "good", 200, app},
		"another page's":      {app, "good-any", 403, ""},
		"a key for programs":  {app, "good-plain", 200, ""},
		"a wrong key":         {app, "bad", 401, app},
		"an unknown origin":   {other, "good", 403, ""},
		"no page":             {"", "good", 200, ""},
		"a program's origin":  {"app://editor", "good-plain", 200, ""},
		"a line in an origin": {"https://a", "good-plain", 200, ""},
	} {
		r := ask("GET", c.origin, c.key)
		if r.StatusCode != c.status || r.Header.Get("Access-Control-Allow-Origin") != c.leave {
			t.Errorf("%s: status %d, leave %q", name, r.StatusCode, r.Header.Get("Access-Control-Allow-Origin"))
		}
		if c.leave != "" && !strings.Contains(r.Header.Get("Access-Control-Expose-Headers"), "X-Ratelimit-Remaining-Tokens") {
			t.Errorf("%s: it may read %q", name, r.Header.Get("Access-Control-Expose-Headers"))
		}
	}
}
