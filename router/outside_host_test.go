package router

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/keys"
	"llmgw/router/relay"
)

func hostOf(id string, change func(*catalog.Provider, *catalog.HostStatus)) Host {
	p := &catalog.Provider{ID: id, URL: "http://10.0.0.1", Private: true, Sponsor: "s"}
	h := Host{Provider: p, Peer: "s", Node: "box-s", Status: catalog.HostStatus{
		ID: id, Kind: catalog.HostOllama, Up: true, Models: []catalog.HostModel{{Name: "Qwen:8b", Context: 99}, {Name: "llama:latest", Cold: true}},
	}}
	change(p, &h.Status)
	return h
}

func nothing(*catalog.Provider, *catalog.HostStatus) {}

func TestAHostAsAReplica(t *testing.T) {
	held := catalog.Model{ID: "big", Name: "Big", Aliases: []string{"qwen:8b"}, State: catalog.ModelServed}
	asked := func(name string) catalog.Model {
		return catalog.Model{ID: catalog.FoldName(name), Name: name, State: catalog.ModelServed}
	}
	use := func(u catalog.HeldUse) func(*catalog.Provider, *catalog.HostStatus) {
		return func(p *catalog.Provider, _ *catalog.HostStatus) { p.Held, p.Priority = u, 3 }
	}
	for name, c := range map[string]struct {
		change func(*catalog.Provider, *catalog.HostStatus)
		m      catalog.Model
		held   bool
		want   string // the model that the sponsor is asked for; empty: none
		tier   int
	}{
		"by its own name":         {nothing, asked("QWEN:8b"), false, "@h/Qwen:8b", 0},
		"without the tag":         {nothing, asked("llama"), false, "@h/llama:latest", 0},
		"what it has not":         {nothing, asked("other"), false, "", 0},
		"while it is down":        {func(_ *catalog.Provider, s *catalog.HostStatus) { s.Up = false }, asked("qwen:8b"), false, "", 0},
		"held, and not told so":   {nothing, held, true, "", 0},
		"held, last":              {use(catalog.HeldLast), held, true, "@h/Qwen:8b", lastHosts + 3},
		"held, as an equal":       {use(catalog.HeldEqual), held, true, "@h/Qwen:8b", 3},
		"by a pattern":            {func(p *catalog.Provider, _ *catalog.HostStatus) { p.Models = []catalog.ProviderModel{{Pattern: "q*"}} }, asked("qwen:8b"), false, "@h/Qwen:8b", 0},
		"by none of its patterns": {func(p *catalog.Provider, _ *catalog.HostStatus) { p.Models = []catalog.ProviderModel{{Pattern: "q*"}} }, asked("llama"), false, "", 0},
		"by another name": {func(p *catalog.Provider, _ *catalog.HostStatus) {
			p.Models = []catalog.ProviderModel{{Pattern: "small", Theirs: "llama"}}
		}, asked("small"), false, "@h/llama:latest", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, ok := hostOf("h", c.change).Replica(c.m, c.held)
			if ok != (c.want != "") || ok && (r.asked() != c.want || r.Priority != c.tier || r.Peer != "s" || r.abroad() || r.Model != c.m.ID) {
				t.Errorf("%v %+v", ok, r)
			}
			if ok && strings.HasPrefix(r.Theirs, "llama") != (r.Hop == coldHop) {
				t.Errorf("loading is not counted: %+v", r)
			}
		})
	}
	if lastHosts-catalog.MaxProviderPriority <= lastTier+catalog.MaxProviderPriority || lastHosts+catalog.MaxProviderPriority >= -catalog.MaxProviderPriority {
		t.Error("tiers overlap")
	}
}

func TestRequestsGoToAHostThroughItsSponsor(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.Header.Get("Authorization"), keyTwo):
			fails(401, `{"error":{"message":"bad `+keyTwo+`"}}`)(w, r)
		case r.Header.Get("Openai-Beta") == "moved":
			fails(302, "", "Location", "https://elsewhere.example")(w, r)
		default:
			answers(w, r)
		}
	})
	bothWays(t, func(t *testing.T, remote bool) {
		p := s.as("desk", func(p *catalog.Provider) { p.Sponsor, p.Models = "b", nil })
		h := Host{Provider: p, Peer: "b", Node: "box-b", Local: !remote, Status: catalog.HostStatus{Up: true, Models: []catalog.HostModel{{Name: "qwen"}}}}
		a := newAbroad(t)
		sponsor := a.node
		if remote {
			sponsor = newNode(t, func(c *Config) { c.Node = "box-b" })
			a.mesh.set("b", sponsor.ServeInfer)
		}
		target := relay.Target{Host: p}
		sponsor.local.targets["@desk/qwen"] = target
		v, _ := OutsideView("Qwen", nil)
		a.catalog.set(WithHosts(v, []Host{h}))
		body := `{"model":"Qwen","messages":[]}`
		before := len(s.requests())
		resp, got := a.ask(t, body, func(r *http.Request) { r.Header.Set("X-Custom-Token", "good"); r.Header.Set("X-Session-Id", "x") })
		seen := s.requests()[before]
		if resp.StatusCode != 200 || got != gptAnswer || seen.body != `{"model":"qwen","messages":[]}` || seen.header.Get("Authorization") != "Bearer "+keyOne {
			t.Fatalf("status %d: %s; the host was asked %v %s", resp.StatusCode, got, seen.header, seen.body)
		}
		for name := range seen.header {
			if strings.HasPrefix(name, "X-") && name != "X-Request-Id" {
				t.Errorf("the host got %s", name)
			}
		}
		a.refused(t, body, 502, "engine_failed", func(r *http.Request) { r.Header.Set("Openai-Beta", "moved") })
		p.Keys = catalog.KeysOf([]string{keyTwo})
		a.refused(t, body, 502, "engine_failed")
	})
}

func TestAHostOfUnknownLoadIsNotIdle(t *testing.T) {
	arrived, release := make(chan string, 8), make(chan struct{})
	play := func(id string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			arrived <- id
			<-release
			answers(w, r)
		}))
	}
	a := newAbroad(t)
	v, _ := OutsideView("qwen", nil)
	for _, id := range []string{"one", "two"} {
		s := play(id)
		defer s.Close()
		v = WithHosts(v, []Host{hostOf(id, func(p *catalog.Provider, _ *catalog.HostStatus) {
			p.URL, p.Direct = s.URL, true
			p.Models = []catalog.ProviderModel{{Pattern: "qwen", Theirs: "qwen:8b"}}
		})})
	}
	a.catalog.set(v)
	codes := make(chan int, 6)
	counts := map[string]int{}
	for range cap(codes) {
		go func() {
			resp, err := http.DefaultClient.Do(goodRequest(t, a.url, `{"model":"qwen","messages":[]}`))
			if err != nil {
				codes <- 0
				return
			}
			_ = resp.Body.Close()
			codes <- resp.StatusCode
		}()
		select {
		case id := <-arrived: // each is running before the next comes
			counts[id]++
		case <-time.After(30 * time.Second):
			t.Fatal("a request waits here for a host of which nobody knows how much it takes")
		}
	}
	close(release)
	for range cap(codes) {
		if code := <-codes; code != 200 {
			t.Errorf("status %d", code)
		}
	}
	if counts["one"] < 2 || counts["two"] < 2 {
		t.Errorf("they went to %v", counts)
	}
}

func TestKeysThatMayUseAHost(t *testing.T) {
	s := newService(t, answers)
	p := s.as("desk", func(p *catalog.Provider) { p.Sponsor, p.Direct, p.Models = "b", true, nil })
	h := Host{Provider: p, Peer: "b", Labels: map[string]string{"zone": "eu"}, Status: catalog.HostStatus{Up: true, Models: []catalog.HostModel{{Name: "qwen"}}}}
	a := newAbroadWith(t, func(c *Config) {
		for name, zone := range map[string]string{"good-eu": "eu", "good-us": "us"} {
			c.Auth.(fakeAuth)[name] = keys.Info{ID: name, Scopes: []string{keys.ScopeInfer}, Nodes: catalog.Selector{Require: map[string]string{"zone": zone}}}
		}
	})
	v, _ := OutsideView("qwen", nil)
	a.catalog.set(WithHosts(v, []Host{h}))
	for name, want := range map[string]int{"good-eu": 200, "good-us": 403} {
		resp, got := a.ask(t, `{"model":"qwen","messages":[]}`, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+name) })
		if resp.StatusCode != want {
			t.Errorf("%s: %d %s", name, resp.StatusCode, got)
		}
	}
}
