package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

func ptr[T any](v T) *T { return &v }

// A second mesh is a provider like any: what only it has is answered by it, and
// counted here by provider and there by key.
func TestAnotherMeshIsAProvider(t *testing.T) {
	there, here := start(t, t.TempDir()), start(t, t.TempDir())
	there.serve(t, "tiny")
	ctx := t.Context()
	foreign := there.newKey(t, ui.KeyRequest{Name: "neighbour"})
	own := here.newKey(t, ui.KeyRequest{Name: "own"})
	here.set(t, "log.level", "debug")
	var shown strings.Builder // everything that is answered
	show := func(v any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(raw)
		fmt.Fprintf(&shown, "%+v\n", v)
	}
	if code, _ := here.chat(t, own, "tiny"); code != 404 {
		t.Fatalf("before there is a provider: %d", code)
	}
	r := ui.ProviderRequest{
		Name: "Attic", URL: ptr("http://" + there.public.Addr().String()), AllowPrivate: ptr(true), Keys: &ui.List[string]{foreign},
		Models: &ui.List[string]{"tin*", "small=tiny"},
	}
	set, err := here.client.SetProvider(ctx, r)
	show(set, err)
	if p := set.Provider; p.Name != "attic" || p.Certificate != "none" || p.UseForHeld != "never" || len(p.Keys) != 1 || len(set.Warnings) != 1 {
		t.Errorf("it is kept as %+v", set)
	}
	tested, err := here.client.TestProvider(ctx, ui.Named{Name: "attic"})
	show(tested, err)
	if tested.Problem != "" || len(tested.Models) != 1 || len(tested.Serves) != 1 || tested.Keys[0].Status != 200 {
		t.Errorf("the test found %+v", tested)
	}
	for _, name := range []string{"tiny", "small"} {
		if code, body := here.chat(t, own, name); code != 200 {
			t.Fatalf("%s: %d %s", name, code, body)
		}
	}
	if code, body := here.ask(t, own, "GET", "/v1/models", ""); code != 200 || !strings.Contains(body, `"small"`) {
		t.Errorf("models: %d %s", code, body)
	}
	eventually(t, "what it has for the pattern is listed", func() bool {
		_, body := here.ask(t, own, "GET", "/v1/models", "")
		return strings.Count(body, `"tiny"`) > 0
	})
	// Each has the other for a provider of everything: neither lists what it has from the
	// other alone to the other.
	here.pull(t, "mine")
	back := here.newKey(t, ui.KeyRequest{Name: "back"})
	if _, err := there.client.SetProvider(ctx, ui.ProviderRequest{
		Name: "cellar", URL: ptr("http://" + here.public.Addr().String()), AllowPrivate: ptr(true), Keys: &ui.List[string]{back}, Models: &ui.List[string]{"*"},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it was asked", func() bool {
		there.offered.mu.Lock()
		defer there.offered.mu.Unlock()
		known := there.offered.offers["cellar"]
		return known != nil && slices.Equal(known.models, []string{"mine"})
	})
	eventually(t, "it is counted by provider", func() bool {
		u, err := here.client.Usage(ctx, ui.UsageRequest{By: "provider"})
		show(u, err)
		return len(u.Rows) == 1 && u.Rows[0].ID == "attic" && u.Rows[0].Requests == 2 && u.Rows[0].OutputTokens > 0
	})
	// The other mesh ends the key: its 401 is none for the client here.
	if err := there.client.RevokeKey(ctx, "neighbour"); err != nil {
		t.Fatal(err)
	}
	code, body := here.chat(t, own, "tiny")
	shown.WriteString(body)
	if code != 502 || !strings.Contains(body, "provider_refused") {
		t.Errorf("with a revoked key: %d %s", code, body)
	}
	list, err := here.client.Providers(ctx)
	show(list, err)
	if len(list.Providers) != 1 || list.Providers[0].Keys[0].CoolingSeconds <= 0 || list.Providers[0].Keys[0].Status != 401 {
		t.Errorf("listed as %+v", list)
	}
	tested, err = here.client.TestProvider(ctx, ui.Named{Name: "attic"})
	show(tested, err)
	show(here.client.Export(ctx))
	show(here.client.Overview(ctx))
	_, metrics := here.ask(t, own, "GET", "/metrics", "")
	shown.WriteString(metrics)
	if err := here.client.RemoveProvider(ctx, "ATTIC"); err != nil {
		t.Fatal(err)
	}
	if code, _ := here.chat(t, own, "tiny"); code != 404 {
		t.Errorf("after it was removed: %d", code)
	}
	here.stop()
	shown.WriteString(here.log.String())
	if secret := foreign[len(foreign)-40:]; strings.Contains(shown.String(), secret) {
		t.Errorf("the provider's key is shown: %s", shown.String())
	}
}

func TestWhatAMeshHoldsIsSentOutsideOnlyWhenToldSo(t *testing.T) {
	var outside atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost { // its models are asked for as well
			outside.Add(1)
		}
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	}))
	defer s.Close()
	d := start(t, t.TempDir())
	d.serve(t, "tiny")
	key := d.newKey(t, ui.KeyRequest{Name: "k"})
	ctx := t.Context()
	set := func(r ui.ProviderRequest) {
		t.Helper()
		r.Name = "all"
		if _, err := d.client.SetProvider(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	set(ui.ProviderRequest{URL: &s.URL, AllowPrivate: ptr(true), Models: &ui.List[string]{"*"}})
	stopped, served := "stopped", "served"
	for _, step := range []struct {
		name    string
		state   string
		use     string
		code    int
		outside int64
	}{
		{"held and ready", served, "never", 200, 0},
		{"held and stopped", stopped, "never", 503, 0},
		{"held and stopped, used for held", stopped, "last", 503, 0},
	} {
		set(ui.ProviderRequest{UseForHeld: &step.use})
		if _, err := d.client.SetModel(ctx, ui.ModelRequest{Model: "tiny", State: &step.state}); err != nil {
			t.Fatal(err)
		}
		code, body := d.chat(t, key, "tiny")
		if code != step.code || outside.Load() != step.outside {
			t.Errorf("%s: %d, %d went out: %s", step.name, code, outside.Load(), body)
		}
	}
	if code, body := d.chat(t, key, "other"); code != 200 || outside.Load() != 1 {
		t.Errorf("what is not held: %d, %d went out: %s", code, outside.Load(), body)
	}
	if _, err := d.client.RemoveModel(ctx, ui.RemoveModelRequest{Model: "tiny"}); err != nil {
		t.Fatal(err)
	}
	if code, _ := d.chat(t, key, "tiny"); code != 200 || outside.Load() != 2 {
		t.Errorf("what is held no more: %d, %d went out", code, outside.Load())
	}
}

func TestProvidersAreRefusedWithAReason(t *testing.T) {
	d := start(t, t.TempDir())
	ctx := t.Context()
	refused := func(status int, code, says string, err error) {
		t.Helper()
		var e *ui.APIError
		if !errors.As(err, &e) || e.Status != status || e.Code != code || !strings.Contains(e.Message, says) || strings.Contains(e.Message, "sk-very-secret") {
			t.Errorf("refused with %+v, want %d %s that says %q", e, status, code, says)
		}
	}
	_, err := d.client.SetProvider(ctx, ui.ProviderRequest{Name: "p", URL: ptr("http://api.example"), Keys: &ui.List[string]{"sk-very-secret"}})
	refused(400, "bad_provider", "https", err)
	_, err = d.client.SetProvider(ctx, ui.ProviderRequest{Name: "p", URL: ptr("https://api.example"), Keys: &ui.List[string]{"sk-very-secret here"}})
	refused(400, "bad_provider", "number 1", err)
	_, err = d.client.SetProvider(ctx, ui.ProviderRequest{Name: "no such/name", URL: ptr("https://api.example")})
	refused(400, "bad_provider", "name", err)
	_, err = d.client.SetProvider(ctx, ui.ProviderRequest{Name: "p", URL: ptr("https://api.example"), CA: ptr("x"), Insecure: ptr(true)})
	refused(400, "bad_provider", "unchecked", err)
	if _, err := d.client.SetProvider(ctx, ui.ProviderRequest{Name: "p", URL: ptr("https://api.example"), Keys: &ui.List[string]{"sk-very-secret"}}); err != nil {
		t.Fatal(err)
	}
	_, err = d.client.SetProvider(ctx, ui.ProviderRequest{Name: "p", URL: ptr("https://other.example")})
	refused(400, "bad_provider", "https://api.example:443", err)
	_, err = d.client.TestProvider(ctx, ui.Named{Name: "q"})
	refused(404, "not_found", "q", err)
	refused(404, "not_found", "q", d.client.RemoveProvider(ctx, "q"))
	// What two boxes set at once, and does not go together, is shown and not used.
	if err := d.catalog.SetProvider("p", func(p *catalog.Provider) error { p.CA, p.Insecure = "", true; return nil }); err != nil {
		t.Fatal(err)
	}
	list, err := d.client.Providers(ctx)
	if err != nil || list.Providers[0].Certificate != "unchecked" || !strings.Contains(list.Providers[0].Problem, "no models") {
		t.Errorf("listed as %+v, %v", list, err)
	}
}
