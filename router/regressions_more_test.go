package router

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/keys"
)

// spellings of a provider's model are no labels of metrics.
func TestSpellingsAreNoLabels(t *testing.T) {
	s := newService(t, answers)
	a := newAbroad(t, s.as("vendor"))
	for _, name := range []string{"fast", "Fast", "fAst", "faSt", "fasT", "FAST"} {
		a.ask(t, `{"model":"`+name+`","messages":[{"role":"user","content":"hi"}]}`)
	}
	labels := map[string]bool{}
	families, _ := a.registry.Gather()
	for _, f := range families {
		if f.GetName() != "llmgw_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "model" {
					labels[l.GetValue()] = true
				}
			}
		}
	}
	if len(labels) > 1 {
		t.Errorf("one model has %d labels, one for each spelling: %v", len(labels), labels)
	}
}

// who has the terminator may ask again at once.
func TestSettledBeforeTheTerminator(t *testing.T) {
	n := newNode(t)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		event(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n", done)
		time.Sleep(300 * time.Millisecond) // it closes a little later
	}))
	t.Cleanup(e.Close)
	n.catalog.set(view("m", n.serveLocally("m", e.URL)))
	budgeted(t, n, &priced{}, nil, catalog.Rules{Limits: catalog.RateLimits{catalog.MetricParallel: 1}})
	for i := range 3 {
		resp := send(t, n, "POST", chatPath, chatBody)
		if resp.StatusCode != 200 {
			t.Errorf("request %d after the [DONE] of the one before: status %d", i, resp.StatusCode)
			time.Sleep(400 * time.Millisecond)
			continue
		}
		b := bufio.NewReader(resp.Body)
		for {
			line, err := b.ReadString('\n')
			if err != nil || strings.HasPrefix(line, "data: [DONE]") {
				break
			}
		}
	}
}

// a client that leaves before an answer in one piece is billed for the prompt.
func TestAbortedWholeAnswersAreBilled(t *testing.T) {
	n := newNode(t)
	got := make(chan bool, 9)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- true
		<-r.Context().Done()
	}))
	t.Cleanup(e.Close)
	n.catalog.set(view("m", n.serveLocally("m", e.URL)))
	book := &priced{}
	l := budgeted(t, n, book, nil, catalog.Rules{Limits: catalog.RateLimits{catalog.MetricRequests: 2}})
	for range 5 {
		ctx, leave := context.WithCancel(t.Context())
		go func() { <-got; leave() }()
		req, _ := http.NewRequestWithContext(ctx, "POST", n.url+chatPath, strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
		req.Header.Set("Authorization", "Bearer good")
		req.Header.Set("Content-Type", "application/json")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			t.Log(resp.StatusCode)
			resp.Body.Close()
		}
		leave()
		eventually(t, "it has ended", func() bool { return l.Stats().InFlight == 0 })
	}
	l.Close()
	if s := l.Stats(); s.Settled == 0 {
		t.Errorf("5 requests, which the engine had, pass a limit of 2 a minute and leave no record: %+v, %d records", s, len(book.records))
	}
}

func TestDoubledModels(t *testing.T) {
	s := newService(t, answers)
	a := newAbroad(t, s.as("vendor"))
	a.cfg.Auth = fakeAuth{"good": {ID: "k1", Scopes: []string{keys.ScopeInfer}, Models: []string{"gpt-cheap"}}}
	form := "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngpt-dear\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngpt-cheap\r\n--b--\r\n"
	for path, c := range map[string][2]string{
		"/v1/audio/transcriptions": {"multipart/form-data; boundary=b", form},
		chatPath:                   {"application/json", `{"model":"gpt-dear","model":"gpt-cheap","messages":[]}`},
	} {
		before := len(s.requests())
		resp := send(t, a.node, "POST", path, c[1], func(r *http.Request) { r.Header.Set("Content-Type", c[0]) })
		text(t, resp)
		if got := s.requests(); len(got) > before && strings.Contains(got[before].body, "gpt-dear") {
			t.Errorf("%s: the key may use gpt-cheap alone, and the provider is sent both names: %q", path, got[before].body)
		}
	}
}

func TestPicturesInPromptsAreNotText(t *testing.T) {
	n := newNode(t)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		event(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a cat\"}}]}\n\n", done) // tells no usage
	}))
	t.Cleanup(e.Close)
	n.catalog.set(view("m", n.serveLocally("m", e.URL)))
	book := &priced{}
	l := budgeted(t, n, book, nil, catalog.Rules{})
	body := `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"what is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 4<<20) + `"}}]}]}`
	text(t, send(t, n, "POST", chatPath, body))
	l.Close()
	if got := book.last(t, 1).Usage.Input; got > 20_000 {
		t.Errorf("a picture of 3 MiB is charged as %d tokens of text", got)
	}
	budgeted(t, n, &priced{}, nil, catalog.Rules{Budgets: []catalog.Budget{{Period: catalog.PeriodDay, Unit: catalog.UnitTokens, Amount: 1_000_000}}})
	if resp := send(t, n, "POST", chatPath, body); resp.StatusCode != 200 {
		t.Errorf("with a million tokens left one picture is refused: %s", text(t, resp))
	}
}
