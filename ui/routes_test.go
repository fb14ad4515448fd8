package ui

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// browser makes a request as the page itself would send it.
func browser(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, "http://192.0.2.7:8770"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method != http.MethodGet {
		r.Header.Set("Origin", "http://192.0.2.7:8770")
	}
	return r
}

func sessionRequest(code string) *http.Request {
	body, _ := json.Marshal(SessionRequest{Code: code})
	return browser("POST", "/admin/v1/session", string(body))
}

func linkFragment(url string) string {
	_, code, _ := strings.Cut(url, "#code=")
	return code
}

func refusalOf(t *testing.T, w *httptest.ResponseRecorder) errorBody {
	t.Helper()
	var b errorBody
	if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || b.Error.Message == "" {
		t.Fatalf("status %d is no error answer: %s", w.Code, w.Body)
	}
	if b.LLMGW.Node != "attic" || b.LLMGW.RequestID == "" || b.LLMGW.RequestID != w.Header().Get("X-Request-Id") {
		t.Errorf("error does not say where: %+v, header %q", b.LLMGW, w.Header().Get("X-Request-Id"))
	}
	return b
}

// concrete fills a route's wildcard.
func (rt route) concrete() string { return prefix + strings.Replace(rt.path, "{key}", "k1", 1) }

func TestStrangerGetsNothing(t *testing.T) {
	f := newFixture(t)
	paths := map[string]string{"GET /admin/v1/": "", "GET /admin/v1/nothing": "", "PUT /admin/v1/status": ""}
	for _, rt := range f.routes() {
		if rt.who != anyone {
			paths[rt.method+" "+rt.concrete()] = ""
		}
	}
	for line := range paths {
		method, path, _ := strings.Cut(line, " ")
		for name, dress := range map[string]func(*http.Request){
			"bare":             func(*http.Request) {},
			"made-up cookie":   func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookiePlain, Value: "x"}) },
			"the other cookie": func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieTLS, Value: "x"}) },
			"a bearer key":     func(r *http.Request) { r.Header.Set("Authorization", "Bearer llmgw-sk-x") },
		} {
			r := browser(method, path, "{}")
			dress(r)
			w := f.ask(r)
			if w.Code != http.StatusUnauthorized {
				t.Errorf("%s by a stranger (%s): status %d, want 401", line, name, w.Code)
			}
			if b := refusalOf(t, w); b.LLMGW.Hint == "" {
				t.Errorf("%s: no hint for a stranger", line)
			}
		}
	}
	if f.backend.last() != nil {
		t.Errorf("a stranger reached the backend: %v", f.backend.last())
	}
}

func TestSessionReadsAndDoesNotWrite(t *testing.T) {
	f := newFixture(t)
	for _, rt := range f.routes() {
		if rt.who == anyone {
			continue
		}
		r := browser(rt.method, rt.concrete(), "{}")
		r.AddCookie(f.login(t)) // fresh each time: one of the routes ends it
		w := f.ask(r)
		switch want := w.Code; {
		case rt.who == session && want != http.StatusOK && want != http.StatusNoContent:
			t.Errorf("%s %s with a session: status %d: %s", rt.method, rt.path, w.Code, w.Body)
		case rt.who == socketOnly && want != http.StatusForbidden:
			t.Errorf("%s %s with a session: status %d, want 403", rt.method, rt.path, w.Code)
		}
	}
	if f.backend.last() != nil {
		t.Errorf("a session wrote: %v", f.backend.last())
	}
}

func TestSocketOpensEveryRoute(t *testing.T) {
	f := newFixture(t)
	for _, rt := range f.routes() {
		if rt.path == "session" {
			continue // redeems a code; meaningless on the socket, and harmless
		}
		r := browser(rt.method, rt.concrete(), "{}")
		r.Host = "llmgw"
		w := httptest.NewRecorder()
		f.AdminHandler().ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusNoContent {
			t.Errorf("%s %s by socket: status %d: %s", rt.method, rt.path, w.Code, w.Body)
		}
	}
}

func TestEveryRouteDeclaresItsAccess(t *testing.T) {
	open := map[string]bool{"POST session": true}
	for _, rt := range newFixture(t).routes() {
		if rt.who == closed {
			t.Errorf("%s %s declares no access", rt.method, rt.path)
		}
		if (rt.who == anyone) != open[rt.method+" "+rt.path] {
			t.Errorf("%s %s is open to strangers", rt.method, rt.path)
		}
		if rt.who == session && rt.method != "GET" && rt.path != "session" {
			t.Errorf("%s %s writes and is open to a session", rt.method, rt.path)
		}
	}
}

func TestForgottenAccessIsClosed(t *testing.T) {
	f := newFixture(t)
	reached := false
	rt := route{method: "GET", path: "forgotten", serve: func(http.ResponseWriter, *http.Request) error {
		reached = true
		return nil
	}}
	r := browser("GET", "/admin/v1/forgotten", "")
	r.AddCookie(f.login(t))
	for name, h := range map[string]handler{"public": f.guardRoute(rt, rt.serve), "socket": openDeclared(rt, rt.serve)} {
		w := httptest.NewRecorder()
		f.answer(h).ServeHTTP(w, r)
		if reached || w.Code != http.StatusForbidden {
			t.Errorf("%s door: status %d, reached %v; want 403 and not reached", name, w.Code, reached)
		}
	}
}

func TestUnknownRouteIsNamed(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		name, method, path, code, allow string
		status                          int
	}{
		{"no such path", "GET", "/admin/v1/modles", "not_found", "", 404},
		{"wrong method", "DELETE", "/admin/v1/status", "method_not_allowed", "GET", 405},
		{"wrong method of a wildcard", "GET", "/admin/v1/keys/k1", "method_not_allowed", "DELETE", 405},
		{"two methods", "PUT", "/admin/v1/keys", "method_not_allowed", "GET, POST", 405},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			f.AdminHandler().ServeHTTP(w, browser(c.method, c.path, ""))
			b := refusalOf(t, w)
			if w.Code != c.status || b.Error.Code != c.code || w.Header().Get("Allow") != c.allow {
				t.Errorf("status %d, code %q, allow %q; want %d, %q, %q", w.Code, b.Error.Code, w.Header().Get("Allow"), c.status, c.code, c.allow)
			}
		})
	}
}
