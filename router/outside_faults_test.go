package router

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/relay"
)

func first(p *catalog.Provider) { p.Priority = 10 }

func TestAKeyCoolsDownAndTheNextIsTried(t *testing.T) {
	quota := `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`
	limitedText := `{"error":{"message":"Rate limit reached for ` + keyOne + `","type":"rate_limit_error"}}`
	for name, c := range map[string]struct {
		play  http.HandlerFunc
		after time.Duration // until the key is used again
	}{
		"429 with seconds":      {fails(429, limitedText, "Retry-After", "17"), 17 * time.Second},
		"429 with a fraction":   {fails(429, limitedText, "Retry-After", "16.5"), 17 * time.Second},
		"429 with milliseconds": {fails(429, limitedText, "Retry-After-Ms", "17000", "Retry-After", "1"), 17 * time.Second},
		"429 with a date": {func(w http.ResponseWriter, r *http.Request) {
			fails(429, limitedText, "Retry-After", time.Now().Add(18*time.Second).UTC().Format(http.TimeFormat))(w, r)
		}, 18 * time.Second},
		"429 without a time": {fails(429, limitedText), firstCool},
		"429 with nonsense":  {fails(429, limitedText, "Retry-After", "soon"), firstCool},
		"429 of a day":       {fails(429, limitedText, "Retry-After", "86400"), mostCool},
		"429 of no money":    {fails(429, quota), refusedFor},
		"429 with no body":   {fails(429, ""), firstCool},
		"503 with seconds":   {fails(503, `{"error":"overloaded"}`, "Retry-After", "17"), 17 * time.Second},
		"529 with seconds":   {fails(529, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`, "Retry-After", "17"), 17 * time.Second},
		"401":                {fails(401, `{"error":{"message":"Incorrect API key provided: `+keyOne+`"}}`, "WWW-Authenticate", "Bearer"), refusedFor},
		"402":                {fails(402, `{"error":{"message":"Insufficient Balance"}}`), refusedFor},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.Header.Get("Authorization"), keyOne) {
					c.play(w, r)
					return
				}
				answers(w, r)
			})
			p := s.as("vendor", twoKeys)
			a := newAbroad(t, p)
			ask := func(want ...string) {
				t.Helper()
				before := len(s.keys())
				if resp, got := a.ask(t, gptBody); resp.StatusCode != 200 || got != gptAnswer {
					t.Fatalf("status %d: %s", resp.StatusCode, got)
				}
				if got := s.keys()[before:]; !slices.Equal(got, want) {
					t.Fatalf("keys %v, want %v", got, want)
				}
			}
			ask(keyOne, keyTwo)
			if cooling, _ := a.Cooling(p); len(cooling) != 1 || cooling[0].Key != p.Keys[0].ID || cooling[0].Left > c.after || cooling[0].Left < c.after-10*time.Second {
				t.Errorf("cooling: %+v, want %v", cooling, c.after)
			}
			ask(keyTwo)
			a.clock.pass(c.after + time.Second)
			ask(keyOne, keyTwo)
		})
	}
}

func TestAWaitThatIsNotNamedGrows(t *testing.T) {
	s := newService(t, fails(429, ""))
	p := s.as("vendor")
	a := newAbroad(t, p)
	var left time.Duration
	for range 3 {
		a.refused(t, gptBody, 429, "rate_limit_exceeded")
		cooling, _ := a.Cooling(p)
		if len(cooling) != 1 || cooling[0].Left <= left {
			t.Fatalf("cooling: %+v, before %v", cooling, left)
		}
		left = cooling[0].Left
		a.clock.pass(left + time.Millisecond)
	}
}

// TestHeadsTellEachOtherOfKeysToLeaveAlone: else each of eight heads would have to be
// refused by itself, eight times as often as one.
func TestHeadsTellEachOtherOfKeysToLeaveAlone(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), keyOne) {
			fails(429, "{}", "Retry-After", "40")(w, r)
			return
		}
		answers(w, r)
	})
	p := s.as("vendor", twoKeys)
	w := &wire{heads: map[string]*Router{}}
	heads := map[string]*abroad{}
	for _, name := range []string{"a", "b"} {
		heads[name] = newAbroadWith(t, func(c *Config) { c.Share = wireEnd{w, name} }, p)
		w.heads[name] = heads[name].Router
	}
	for _, name := range []string{"a", "b", "b"} {
		if resp, got := heads[name].ask(t, gptBody); resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode, got)
		}
	}
	if got, want := s.keys(), []string{keyOne, keyTwo, keyTwo, keyTwo}; !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v: b did not hear of a's refusal", got, want)
	}
	cooling, _ := heads["b"].Cooling(p)
	if len(cooling) != 1 || cooling[0].Status != 429 || cooling[0].Left < 30*time.Second || cooling[0].Left > 40*time.Second {
		t.Errorf("b: %+v", cooling)
	}
	// What no head would say changes nothing, and no head can keep a key away for long.
	for _, msg := range []string{"", "{", `{"provider":"vendor","key":"k","ms":-5}`, `{"key":"k","ms":5}`, `{"provider":"` + strings.Repeat("x", 300) + `","ms":5}`} {
		heads["b"].TakeCooled("a", []byte(msg))
	}
	heads["b"].TakeCooled("a", fmt.Appendf(nil, `{"provider":"vendor","key":%q,"status":429,"ms":999999999999}`, p.Keys[1].ID))
	cooling, _ = heads["b"].Cooling(p)
	if len(cooling) != 2 || cooling[1].Left > mostCool || len(heads["b"].Router.outside.cooling) != 2 {
		t.Errorf("b: %+v", cooling)
	}
}

func TestWhenAllKeysOfAllProvidersCoolDown(t *testing.T) {
	limited := newService(t, fails(429, `{"error":{"message":"slow down"}}`, "Retry-After", "30"))
	other := newService(t, fails(429, `{"error":{"message":"slow down"}}`, "Retry-After", "60"))
	a := newAbroad(t, limited.as("vendor", first, twoKeys), other.as("other"))
	resp, got := a.ask(t, gptBody)
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != 429 || seconds < 20 || seconds > 30 || strings.Contains(got, "slow down") {
		t.Errorf("status %d, after %d s: %s", resp.StatusCode, seconds, got)
	}
	before := len(limited.requests()) + len(other.requests())
	if before != 3 {
		t.Errorf("%d requests for 3 keys", before)
	}
	a.refused(t, gptBody, 429, "rate_limit_exceeded")
	if len(limited.requests())+len(other.requests()) != before {
		t.Error("a key that cools down was used")
	}
	if breakers := a.breakers.count(a.now()); breakers != 0 {
		t.Errorf("%d breakers are open", breakers)
	}
}

func TestTheNextProviderIsTriedBeforeTheFirstByte(t *testing.T) {
	for name, play := range map[string]http.HandlerFunc{
		"500":           fails(500, `{"error":{"message":"boom"}}`),
		"502, no JSON":  fails(502, `<html>bad gateway</html>`),
		"503":           fails(503, `{"error":{"message":"boom"}}`),
		"503 for a key": fails(503, `{"error":{"message":"boom"}}`, "Retry-After", "9"),
		"429":           fails(429, `{}`),
		"401":           fails(401, `{}`),
		"403":           fails(403, `{"error":{"message":"country not supported"}}`),
		"404":           fails(404, `{"error":{"message":"The model does not exist"}}`),
		"408":           fails(408, `{}`),
		"a redirect":    fails(307, ``, "Location", "https://127.0.0.1:1/v1/chat/completions"),
		"dies":          func(http.ResponseWriter, *http.Request) { die() },
		"dies after its head": func(w http.ResponseWriter, _ *http.Request) {
			event(w, "")
			die()
		},
		"a head without end": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for i := 0; err == nil && i < 1<<20; i++ {
				_, err = fmt.Fprintf(conn, "X-Filler-%d: %s\r\n", i, strings.Repeat("x", 100))
			}
		},
		"an error without end": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			for range 100 {
				if _, err := w.Write(make([]byte, 4<<10)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad, good := newService(t, play), newService(t, answers)
			a := newAbroad(t, good.as("good"), bad.as("bad", first))
			for _, body := range []string{gptBody, strings.Replace(gptBody, "{", `{"stream":false,`, 1)} {
				if resp, got := a.ask(t, body); resp.StatusCode != 200 || got != gptAnswer {
					t.Errorf("status %d: %s", resp.StatusCode, got)
				}
			}
			if len(bad.requests()) == 0 || len(good.requests()) != 2 {
				t.Errorf("the first got %d requests, the second %d", len(bad.requests()), len(good.requests()))
			}
		})
	}
}

func TestProvidersAreAskedByPriority(t *testing.T) {
	var providers []*catalog.Provider
	order := make(chan string, 8)
	for i, priority := range []int{-5, 7, 0, 3} {
		id := fmt.Sprint("p", priority)
		s := newService(t, func(w http.ResponseWriter, r *http.Request) {
			order <- id
			fails(500, `{"error":{"message":"boom"}}`)(w, r)
		})
		providers = append(providers, s.as(fmt.Sprint("vendor-", i), func(p *catalog.Provider) { p.Priority = priority }))
	}
	a := newAbroad(t, providers...)
	e := a.refused(t, gptBody, 502, "provider_failed")
	if !strings.Contains(e.Error.Message, "boom") {
		t.Errorf("says %q", e.Error.Message)
	}
	close(order)
	var got []string
	for id := range order {
		got = append(got, id)
	}
	if want := []string{"p7", "p3", "p0"}; !slices.Equal(got, want) {
		t.Errorf("asked %v, want %v, the budget of one request", got, want)
	}
}

func TestWhatClientsAreToldOfProviders(t *testing.T) {
	said := `{"error":{"message":"secret words, key ` + keyOne + `","type":"x","code":"invalid_api_key"}}`
	for name, c := range map[string]struct {
		play   http.HandlerFunc
		status int
		code   string
		shown  string // of the provider's words
	}{
		"401":                  {fails(401, said), 502, "provider_refused", ""},
		"402":                  {fails(402, said), 502, "provider_refused", ""},
		"403":                  {fails(403, said), 502, "provider_refused", ""},
		"404":                  {fails(404, said), 404, "model_not_found", ""},
		"429":                  {fails(429, said), 429, "rate_limit_exceeded", ""},
		"500":                  {fails(500, said), 502, "provider_failed", "secret words, key ***"},
		"503 for a key":        {fails(503, said, "Retry-After", "3"), 502, "provider_failed", ""},
		"redirect":             {fails(302, said, "Location", "/v1/chat/completions"), 502, "provider_failed", ""},
		"400":                  {fails(400, said), 400, "invalid_api_key", "secret words, key ***"},
		"422 that is too long": {fails(422, `{"error":{"message":"This model's maximum context length is 9"}}`), 400, "context_length_exceeded", "maximum context"},
		"400 without JSON":     {fails(400, "nope "+keyOne), 400, "engine_error", "nope ***"},
		"413":                  {fails(413, said), 413, "invalid_api_key", "secret words"},
		"an error with 200":    {fails(200, `{"error":{"message":"odd","code":400}}`), 400, "", "odd"},
		"dies":                 {func(http.ResponseWriter, *http.Request) { die() }, 502, "provider_unreachable", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, c.play)
			a := newAbroad(t, s.as("vendor"))
			e := a.refused(t, gptBody, c.status, c.code)
			if !strings.Contains(e.Error.Message, c.shown) || c.shown == "" && strings.Contains(e.Error.Message, "secret words") {
				t.Errorf("says %q", e.Error.Message)
			}
			if n := len(s.requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestIdentityOfProviders(t *testing.T) {
	s := newService(t, answers)
	for name, c := range map[string]struct {
		change func(*catalog.Provider)
		status int
		code   string
	}{
		"the system's authorities": {func(p *catalog.Provider) { p.CA = "" }, 502, "provider_unreachable"},
		"its own, for another name": {func(p *catalog.Provider) {
			p.URL = strings.Replace(p.URL, "127.0.0.1", "localhost", 1)
		}, 502, "provider_unreachable"},
		"unchecked": {func(p *catalog.Provider) {
			p.CA, p.Insecure = "", true
			p.URL = strings.Replace(p.URL, "127.0.0.1", "localhost", 1)
		}, 200, ""},
		"its own": {func(*catalog.Provider) {}, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAbroad(t, s.as("vendor", c.change))
			before := len(s.requests())
			if c.status == 200 {
				if resp, got := a.ask(t, gptBody); resp.StatusCode != 200 {
					t.Errorf("status %d: %s", resp.StatusCode, got)
				}
				return
			}
			e := a.refused(t, gptBody, c.status, c.code)
			if !strings.Contains(e.Error.Message, "certificate") || len(s.requests()) != before {
				t.Errorf("says %q; %d requests came through", e.Error.Message, len(s.requests())-before)
			}
		})
	}
}

func TestAddressesThatAreNotReached(t *testing.T) {
	s := newService(t, answers)
	for name, change := range map[string]func(*catalog.Provider){
		"a name of loopback": func(p *catalog.Provider) {
			p.URL, p.Private = strings.Replace(p.URL, "127.0.0.1", "localhost", 1), false
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.as("vendor", change)
			a := newAbroad(t, p)
			e := a.refused(t, gptBody, 502, "provider_unreachable")
			if !strings.Contains(e.Error.Message, "not allowed") || strings.Contains(e.Error.Message, "127.0.0.1") || len(s.requests()) > 0 {
				t.Errorf("says %q", e.Error.Message)
			}
			if _, err := a.ProbeProvider(t.Context(), p); !strings.Contains(fmt.Sprint(err), "--allow-private") {
				t.Errorf("the test says %v", err)
			}
		})
	}
}

func TestARequestGoesInNoCircle(t *testing.T) {
	s := newService(t, answers)
	a := newAbroad(t, s.as("vendor"))
	e := a.refused(t, gptBody, 508, "loop_detected", func(r *http.Request) {
		r.Header.Add("Via", "1.0 fred")
		r.Header.Add("Via", "1.1 llmgw-other, 1.1 llmgw-test")
	})
	if len(s.requests()) > 0 || e.Error.Message == "" {
		t.Error("it went out")
	}
	a.ask(t, gptBody, func(r *http.Request) { r.Header.Set("Via", "1.1 llmgw-other") })
	if got := s.requests()[0].header["Via"]; !slices.Equal(got, []string{"1.1 llmgw-other", "1.1 llmgw-test"}) {
		t.Errorf("via %q", got)
	}
}

func TestAMeshThatIsItsOwnProvider(t *testing.T) {
	var inner atomic.Pointer[abroad]
	s := newService(t, func(w http.ResponseWriter, r *http.Request) { inner.Load().serve(w, r) })
	p := s.as("self", func(p *catalog.Provider) {
		p.Models, p.Keys = []catalog.ProviderModel{{Pattern: "*"}}, catalog.KeysOf([]string{"good-key-of-the-mesh"})
	})
	a := newAbroadWith(t, func(c *Config) {
		c.Auth.(fakeAuth)["good-key-of-the-mesh"] = c.Auth.(fakeAuth)["good"]
	}, p)
	inner.Store(a)
	a.refused(t, gptBody, 508, "loop_detected")
	if n := len(s.requests()); n != 1 {
		t.Errorf("it went round %d times", n)
	}
}

func TestAProviderTakesAsManyAsItMay(t *testing.T) {
	arrived, release := make(chan struct{}, 8), make(chan struct{})
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
		answers(w, r)
	})
	spare := newService(t, answers)
	p := s.as("vendor", first, func(p *catalog.Provider) { p.Parallel = 2 })
	a := newAbroad(t, p, spare.as("spare", func(p *catalog.Provider) { p.Models = []catalog.ProviderModel{{Pattern: "gpt-4o"}} }))
	results := make(chan int, 2)
	for range 2 {
		go func() {
			resp, err := http.DefaultClient.Do(goodRequest(t, a.url, `{"model":"fast","messages":[]}`))
			if err != nil {
				results <- 0
				return
			}
			_ = resp.Body.Close()
			results <- resp.StatusCode
		}()
	}
	<-arrived
	<-arrived
	e := a.refused(t, `{"model":"fast","messages":[]}`, 429, "rate_limit_exceeded")
	if !strings.Contains(e.Error.Message, "vendor") {
		t.Errorf("says %q", e.Error.Message)
	}
	if resp, got := a.ask(t, gptBody); resp.StatusCode != 200 || len(spare.requests()) != 1 {
		t.Errorf("the next was not asked: %d %s", resp.StatusCode, got)
	}
	close(release)
	for range 2 {
		if code := <-results; code != 200 {
			t.Errorf("status %d", code)
		}
	}
	eventually(t, "the places are free", func() bool { _, n := a.Cooling(p); return n == 0 })
}

func goodRequest(t *testing.T, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+chatPath, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer good")
	req.Header.Set("Content-Type", "application/json")
	return req
}

func TestAProviderThatFailsIsLeftAlone(t *testing.T) {
	bad, good := newService(t, fails(500, `{}`)), newService(t, answers)
	a := newAbroad(t, bad.as("bad", first), good.as("good"))
	for range breakAfter + 3 {
		if resp, got := a.ask(t, gptBody); resp.StatusCode != 200 {
			t.Fatalf("status %d: %s", resp.StatusCode, got)
		}
	}
	if n := len(bad.requests()); n != breakAfter {
		t.Errorf("it got %d requests, want %d", n, breakAfter)
	}
}

func TestProbeOfAProvider(t *testing.T) {
	list := `{"object":"list","data":[{"id":"gpt-4o"},{"id":"other"}]}`
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet || r.URL.Path != "/v1/models":
			fails(405, "")(w, r)
		case strings.Contains(r.Header.Get("Authorization"), keyTwo):
			fails(401, `{"error":{"message":"bad key `+keyTwo+`"}}`)(w, r)
		default:
			_, _ = io.WriteString(w, list)
		}
	})
	p := s.as("vendor", twoKeys)
	a := newAbroad(t, p)
	found, err := a.ProbeProvider(t.Context(), p)
	if err != nil || len(found.Keys) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	fmt.Fprintf(&a.said, "%+v %v", found, found.Keys[1].Err)
	one, two := found.Keys[0], found.Keys[1]
	if one.Err != nil || !slices.Equal(one.Models, []string{"gpt-4o", "other"}) || two.Status != 401 || two.Err == nil {
		t.Errorf("keys got %+v, %+v", one, two)
	}
	if c := found.Certificate; c == nil || !c.Checked || len(c.SHA256) != 64 || found.Connect <= 0 || !strings.HasPrefix(found.Address, "127.0.0.1:") {
		t.Errorf("found %+v", found)
	}
	distrusted := *p
	distrusted.CA = ""
	found, err = a.ProbeProvider(t.Context(), &distrusted)
	if !relay.IsCertificate(err) || found.Certificate == nil || len(found.Keys) > 0 {
		t.Errorf("with another authority: %+v, %v", found, err)
	}
}
