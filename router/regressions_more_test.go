package router

import (
	"bufio"
	"context"
	"io"
	"llmgw/mesh/catalog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
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
