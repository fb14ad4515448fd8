package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"llmgw/mesh/catalog"
)

// coming is a model that is not loaded and may be waited for.
func coming(name, stage string) ModelView {
	v := view(name)
	v.Loadable, v.Stage = true, stage
	return v
}

// demands counts who asks for models.
type demands struct{ open, made atomic.Int64 }

func (d *demands) want(string) (func(), error) {
	d.made.Add(1)
	d.open.Add(1)
	return func() { d.open.Add(-1) }, nil
}

func TestAModelThatComesIsWaitedFor(t *testing.T) {
	steps := func(c *fakeCatalog, at time.Duration, v ModelView) { time.AfterFunc(at, func() { c.set(v) }) }
	ready := view("m", Replica{Peer: "b"})
	cases := map[string]struct {
		body   string
		change func(*fakeCatalog)
		status int
		want   []string // in this order
		cut    bool
		took   time.Duration
	}{
		"a stream is told how far it is": {chatBody, func(c *fakeCatalog) {
			steps(c, 5*time.Second, coming("m", "loading 40 % on box-b"))
			steps(c, 25*time.Second, ready)
		}, 200, []string{": m: waiting\n\n", ": m: loading 40 % on box-b\n\n", done}, false, 25 * time.Second},
		"a quick load costs no status": {chatBody, func(c *fakeCatalog) { steps(c, time.Second, ready) },
			200, []string{done}, false, time.Second},
		"a quick failure has a status": {chatBody, func(c *fakeCatalog) {
			failed := view("m")
			failed.Problem = "out of memory"
			steps(c, time.Second/2, failed)
		}, 503, []string{`"message":"the model \"m\" is not ready: out of memory"`}, false, 5 * time.Second / 2},
		"a late failure ends the stream": {chatBody, func(c *fakeCatalog) { steps(c, 20*time.Second, view("m")) },
			200, []string{": m: waiting", "data: {\"error\"", "model_not_loaded", "data: [DONE]"}, false, 22 * time.Second},
		"JSON gets blanks": {plainBody, func(c *fakeCatalog) { steps(c, 60*time.Second, ready) },
			200, []string{"  {}"}, false, 60 * time.Second},
		"a late failure of JSON cuts": {plainBody, func(c *fakeCatalog) { steps(c, 60*time.Second, view("m")) },
			200, []string{"  "}, true, 62 * time.Second},
		"it ends at the bound": {plainBody, func(c *fakeCatalog) {}, 503, []string{"still not ready (waiting)"}, false, 30 * time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, asked := &fakeCatalog{}, &demands{}
				fake.set(coming("m", "waiting"))
				c.change(fake)
				says := answered("application/json", "{}")
				if c.body == chatBody {
					says = answered("text/event-stream", done)
				}
				var w *httptest.ResponseRecorder
				var took time.Duration
				cut := recovered(func() {
					w, took = patient(fake, scripted{"b": {0, says}}, c.body, func(cfg *Config) {
						cfg.Demand = asked.want
						if c.status == 503 {
							cfg.LoadWait = 30 * time.Second
						}
					})
				})
				if cut != c.cut {
					t.Fatalf("cut off: %v", cut)
				}
				if asked.made.Load() != 1 || asked.open.Load() != 0 {
					t.Errorf("asked for it %d times, %d still do", asked.made.Load(), asked.open.Load())
				}
				if cut {
					return
				}
				rest := w.Body.String()
				for _, part := range c.want {
					_, after, ok := strings.Cut(rest, part)
					if !ok {
						t.Errorf("status %d, body %q has no %q", w.Code, w.Body, part)
					}
					rest = after
				}
				if w.Code != c.status || took < c.took || took > c.took+2*time.Second {
					t.Errorf("status %d after %v", w.Code, took)
				}
			})
		})
	}
}

// recovered says whether fn cut its connection.
func recovered(fn func()) (cut bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				panic(p)
			}
			cut = true
		}
	}()
	fn()
	return false
}

func TestAWaitingClientThatLeavesEndsItsDemand(t *testing.T) {
	asked := &demands{}
	n := newNode(t, func(c *Config) { c.Demand = asked.want })
	n.catalog.set(coming("m", "waiting"))
	ctx, leave := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, "POST", n.url+chatPath, strings.NewReader(chatBody))
		if err != nil {
			failed <- err
			return
		}
		req.Header.Set("Authorization", "Bearer good")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	eventually(t, "the model is asked for", func() bool { return asked.open.Load() == 1 })
	leave()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
	eventually(t, "nobody asks for it any more", func() bool { return asked.open.Load() == 0 })
}

func TestRoutesTakeTheTargetOfTheirRule(t *testing.T) {
	big, small := view("big", Replica{Peer: "b", Node: "box-b"}), view("small", Replica{Peer: "c", Node: "box-c"})
	cases := map[string]struct {
		views []ModelView
		rule  catalog.RouteRule
		to    []string
		want  string // model that answers, or the code of the error
	}{
		"the first":                        {[]ModelView{big, small}, catalog.RuleFirst, []string{"big", "small"}, "big"},
		"the first that is loaded":         {[]ModelView{coming("big", ""), small}, catalog.RuleFirst, []string{"big", "small"}, "small"},
		"unknown ones are passed over":     {[]ModelView{small}, catalog.RuleFirst, []string{"big", "small"}, "small"},
		"loaded-only":                      {[]ModelView{coming("big", ""), small}, catalog.RuleLoaded, []string{"big", "small"}, "small"},
		"loaded-only waits for none":       {[]ModelView{coming("big", "")}, catalog.RuleLoaded, []string{"big"}, "model_not_loaded"},
		"no target is no model":            {nil, catalog.RuleFirst, []string{"big"}, "model_not_loaded"},
		"a node":                           {[]ModelView{view("big", Replica{Peer: "b", Node: "box-b"}, Replica{Peer: "c", Node: "box-c"})}, catalog.RuleFirst, []string{"big@BOX-C"}, "big"},
		"another node is not taken":        {[]ModelView{big}, catalog.RuleFirst, []string{"big@box-c"}, "model_not_on_node"},
		"the next when a node has it not":  {[]ModelView{big, small}, catalog.RuleFirst, []string{"big@box-c", "small@box-c"}, "small"},
		"a peer ID is as good as its name": {[]ModelView{big}, catalog.RuleFirst, []string{"big@b"}, "big"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.catalog.set(c.views...)
			n.catalog.routes = []catalog.Route{{ID: "auto", Name: "auto", Targets: c.to, Rule: c.rule}}
			echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
			t.Cleanup(echo.Close)
			holder := newNode(t)
			for _, m := range []string{"big", "small"} {
				holder.serveLocally(m, echo.URL)
			}
			for _, v := range c.views {
				for k := range v.Replicas {
					v.Replicas[k].Epoch, v.Replicas[k].Digest = 7, "d"
				}
			}
			n.mesh.set("b", holder.ServeInfer)
			n.mesh.set("c", holder.ServeInfer)
			resp := send(t, n, "POST", chatPath, `{"model":"Auto"}`)
			if got := resp.Header.Get(modelHeader); resp.StatusCode == 200 && got != c.want {
				t.Errorf("%q answered, not %q", got, c.want)
			} else if resp.StatusCode != 200 {
				wantError(t, resp, 503, c.want)
			}
		})
	}
}

func TestBalanceTakesWhicheverAnswersFirst(t *testing.T) {
	r := newNode(t).Router
	busy, idle := view("big", Replica{Peer: "b", InFlight: 40}), view("small", Replica{Peer: "c"})
	r.cfg.Catalog.(*fakeCatalog).set(busy, idle)
	r.cfg.Catalog.(*fakeCatalog).routes = []catalog.Route{{ID: "any", Name: "any", Targets: []string{"big", "small"}, Rule: catalog.RuleBalance}}
	i := &inference{t: &request{r: r}, means: r.meaningOf("any")}
	o, e := i.look()
	if e != nil || len(o.replicas) != 2 {
		t.Fatalf("%+v, %v", o, e)
	}
	got, ticket := r.pick(o.replicas, nil, named("x"))
	defer r.count(ticket, "m", false).done()
	if got.Model != "small" {
		t.Errorf("%s answers, which is busy", got.Model)
	}
}
