package lab

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"llmgw/ui"
)

// emptyBox is a box without engine, GPU, peers, models, Python or cache.
func emptyBox(t *testing.T) (box, laptop *Box) {
	t.Helper()
	l := New(t)
	box, laptop = l.Box("empty"), l.Box("laptop")
	strip(box)
	box.Start()
	return box, laptop
}

// strip leaves nothing on the box that could fetch or run an engine.
func strip(b *Box) {
	b.Env = append(b.Env, "PATH=/nonexistent", "LLMGW_CACHE_DIR="+b.Dir+"/no-cache")
}

func TestEmptyBoxStatusSaysWhatToType(t *testing.T) {
	box, _ := emptyBox(t)
	said := box.CLI("status")
	t.Log(said)
	for _, want := range []string{"llmgw engines install llamacpp", "llmgw pull", "not joined"} {
		if !strings.Contains(said, want) {
			t.Errorf("status lacks %q", want)
		}
	}
	st := JSON[ui.Status](box, "status")
	for _, p := range st.Problems {
		if p.Text == "" || p.Fix == "" {
			t.Errorf("a problem without text or fix: %+v", p)
		}
	}
	for _, verb := range []string{"nodes", "models", "ps", "engines ls", "keys ls", "token ls", "config"} {
		if out := box.CLI(strings.Fields(verb)...); out == "" {
			t.Errorf("llmgw %s says nothing", verb)
		}
		raw := strings.ReplaceAll(box.CLI(append(strings.Fields(verb), "--json")...), `"expires": null`, "") // never
		if strings.Contains(raw, "null") && verb != "nodes" {                                                // unknown hardware is null; a list never is
			t.Errorf("llmgw %s --json has a null:\n%s", verb, raw)
		}
	}
}

func TestEmptyBoxAPISaysWhatToType(t *testing.T) {
	box, laptop := emptyBox(t)
	first := box.CLI("keys", "first")
	if r := box.Try("keys", "first"); r.Code == 0 || strings.Contains(r.Stdout, "llmgw-sk-") {
		t.Errorf("the first key was shown twice:\n%s", r)
	}
	at := laptop.API(box, first)
	for name, tc := range map[string]struct {
		method, path string
		body         any
		key          string
		status       int
		code, hint   string
	}{
		"no key":        {"GET", "/v1/models", nil, "", 401, "", "llmgw keys new"},
		"wrong key":     {"GET", "/v1/models", nil, first + "x", 401, "", "llmgw keys new"},
		"unknown model": {"POST", "/v1/chat/completions", Chat("gpt-4", "Hi", false, nil), first, 404, "model_not_found", "llmgw pull"},
		"broken JSON":   {"POST", "/v1/chat/completions", `{"model": "x",`, first, 400, "", ""},
		"unknown path":  {"GET", "/v1/nothing", nil, first, 404, "", ""},
	} {
		at.Key = tc.key
		got, err := at.Ask(seconds(t, 10), tc.method, tc.path, tc.body)
		if err != nil {
			t.Fatal(err)
		}
		f := got.Failure()
		if got.Status != tc.status || f.Error.Message == "" || f.LLMGW.RequestID == "" ||
			tc.code != "" && f.Error.Code != tc.code || !strings.Contains(f.LLMGW.Hint, tc.hint) {
			t.Errorf("%s: %s", name, got)
		}
	}
	at.Key = first
	got, err := at.Ask(seconds(t, 10), "GET", "/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Data  []any  `json:"data"`
		LLMGW *Error `json:"llmgw"`
	}
	if err := json.Unmarshal([]byte(got.Body), &list); err != nil || got.Status != 200 || list.Data == nil || len(list.Data) != 0 {
		t.Errorf("models of an empty box: %v", got)
	}
	if !strings.Contains(got.Body, "llmgw pull") && !strings.Contains(got.Header.Get("X-Llmgw-Hint"), "llmgw pull") {
		t.Errorf("the empty list does not say what to type: %s %v", got, got.Header)
	}
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 401} {
		at.Key = ""
		if got, err := at.Ask(seconds(t, 10), "GET", path, nil); err != nil || got.Status != want {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
}

// TestEmptyBoxPage: a stranger gets the page and no data; the link opens it once.
func TestEmptyBoxPage(t *testing.T) {
	box, laptop := emptyBox(t)
	stranger := laptop.API(box, "")
	page, err := stranger.Ask(seconds(t, 10), "GET", "/", nil)
	if err != nil || page.Status != 200 || !strings.Contains(strings.ToLower(page.Body), "<!doctype html") {
		t.Fatalf("the page: %v, %v", page, err)
	}
	if got, err := stranger.Ask(seconds(t, 10), "GET", "/admin/v1/overview", nil); err != nil || got.Status != 401 {
		t.Errorf("a stranger's overview: %v, %v", got, err)
	}
	link, err := url.Parse(box.CLI("ui"))
	if err != nil || link.Fragment == "" || link.RawQuery != "" {
		t.Fatalf("link %v, %v: the code belongs into the fragment", link, err)
	}
	jar, _ := cookiejar.New(nil)
	guest := laptop.API(box, "")
	guest.HTTP.Jar = jar
	code := ui.SessionRequest{Code: link.Fragment[strings.LastIndexAny(link.Fragment, "=/")+1:]}
	if got := postFromPage(t, guest, "/admin/v1/session", code); got.Status >= 300 {
		t.Fatalf("redeem the link %s: %v", link, got)
	}
	got, err := guest.Ask(seconds(t, 10), "GET", "/admin/v1/overview", nil)
	var all ui.Overview
	if err != nil || got.Status != 200 || json.Unmarshal([]byte(got.Body), &all) != nil || len(all.Nodes) != 1 || all.Nodes[0].Name != "empty" {
		t.Errorf("the overview with a session: %v, %v", got, err)
	}
	if got := postFromPage(t, laptop.API(box, ""), "/admin/v1/session", code); got.Status != 401 {
		t.Errorf("the link worked twice: %v", got)
	}
}

// postFromPage posts as a browser does from the page itself.
func postFromPage(t *testing.T, at *API, path string, body any) Answer {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(seconds(t, 10), "POST", at.Base+path, strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", at.Base)
	resp, err := at.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(text)}
}
