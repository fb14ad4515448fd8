package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const providerSecret = "sk-test-0123456789abcdef"

func setProvider(t *testing.T, b box, name string, fn func(*Provider)) {
	t.Helper()
	must(t, b.SetProvider(name, func(p *Provider) error { fn(p); return nil }))
}

func theProvider(t *testing.T, b box, name string) Provider {
	t.Helper()
	p, err := b.Provider(name)
	must(t, err)
	return p
}

func TestAProviderIsKeptAsItWasSet(t *testing.T) {
	b := newBox(t)
	want := Provider{
		ID: "open.ai", URL: "https://api.example/v1", Keys: KeysOf([]string{providerSecret, "sk-other"}), Priority: -3, Held: HeldEqual, Parallel: 7,
		Models: []ProviderModel{{Pattern: "gpt-*"}, {Pattern: "fast", Theirs: "vendor/fast:2"}}, Native: []Ability{AbilityResponses}, Insecure: true, Sponsor: "12D3-x", Direct: true,
	}
	setProvider(t, b, "Open.AI", func(p *Provider) { *p = want })
	if diff := cmp.Diff(want, theProvider(t, b, "OPEN.ai")); diff != "" {
		t.Fatal(diff)
	}
	setProvider(t, b, "second", func(p *Provider) { p.URL, p.Priority = "https://b.example", 5 })
	all, err := b.Providers()
	must(t, err)
	if len(all) != 2 || all[0].ID != "second" {
		t.Errorf("order is %v", all)
	}
	setProvider(t, b, "open.ai", func(p *Provider) { p.Keys, p.Models, p.Held, p.Insecure = p.Keys[1:], nil, HeldNever, false })
	if p := theProvider(t, b, "open.ai"); len(p.Keys) != 1 || p.Keys[0].Secret.Reveal() != "sk-other" || p.Models != nil || p.Held != HeldNever || p.Insecure || p.Priority != -3 {
		t.Errorf("after a change: %+v", p)
	}
	must(t, b.RemoveProvider("OPEN.ai"))
	if _, err := b.Provider("open.ai"); !errors.Is(err, ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}
	if err := b.RemoveProvider("open.ai"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	setProvider(t, b, "open.ai", func(p *Provider) {
		if len(p.Keys) > 0 || p.URL != "" {
			t.Errorf("a new one of the name has what the old one had: %+v", p)
		}
		p.URL = "https://api.example"
	})
}

func TestKeysOfAProviderAreForOneOrigin(t *testing.T) {
	a, b := newBox(t), newBox(t)
	setProvider(t, a, "p", func(p *Provider) { p.URL, p.Keys = "https://api.example/v1", KeysOf([]string{providerSecret}) })
	exchange(t, a, b)
	var bad *ProviderError
	err := a.SetProvider("p", func(p *Provider) error { p.URL = "https://evil.example/v1"; return nil })
	if !errors.As(err, &bad) || bad.Field != "keys" || strings.Contains(err.Error(), providerSecret) {
		t.Fatalf("keys went to another host: %v", err)
	}
	setProvider(t, a, "p", func(p *Provider) { p.URL = "https://API.example:443/other" })
	if p := theProvider(t, a, "p"); len(p.Keys) != 1 {
		t.Errorf("another path took the keys away: %+v", p)
	}
	// One side changes the address with keys of its own, the other adds a key.
	setProvider(t, a, "p", func(p *Provider) { p.URL, p.Keys = "https://new.example", KeysOf([]string{"sk-new"}) })
	setProvider(t, b, "p", func(p *Provider) { p.Keys = append(p.Keys, KeysOf([]string{"sk-added"})...) })
	exchange(t, a, b)
	for name, side := range map[string]box{"a": a, "b": b} {
		p := theProvider(t, side, "p")
		if p.URL != "https://new.example" || len(p.Keys) != 1 || p.Keys[0].Secret.Reveal() != "sk-new" {
			t.Errorf("on %s: %s with %d keys", name, p.URL, len(p.Keys))
		}
	}
	setProvider(t, a, "p", func(p *Provider) { p.Keys = nil })
	if p := theProvider(t, a, "p"); len(p.Keys) != 0 {
		t.Errorf("keys are left: %d", len(p.Keys))
	}
	// Those of the other address went with them: no way back brings them up.
	setProvider(t, a, "p", func(p *Provider) { p.URL = "https://api.example" })
	if p := theProvider(t, a, "p"); len(p.Keys) != 0 {
		t.Errorf("old keys came back: %d", len(p.Keys))
	}
}

func TestProvidersThatCannotBeAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxProviderKey+1)
	cases := map[string]func(*Provider){
		"no URL":               func(p *Provider) { p.URL = "" },
		"no host":              func(p *Provider) { p.URL = "https:///v1" },
		"no URL at all":        func(p *Provider) { p.URL = "api.example/v1" },
		"another scheme":       func(p *Provider) { p.URL = "file:///etc/passwd" },
		"gopher":               func(p *Provider) { p.URL = "gopher://api.example" },
		"plain http":           func(p *Provider) { p.URL = "http://api.example" },
		"a password":           func(p *Provider) { p.URL = "https://me:secret@api.example" },
		"a query":              func(p *Provider) { p.URL = "https://api.example/v1?key=1" },
		"a fragment":           func(p *Provider) { p.URL = "https://api.example/v1#x" },
		"port 0":               func(p *Provider) { p.URL = "https://api.example:0" },
		"a line end":           func(p *Provider) { p.URL = "https://api.example/v1\r\nX: 1" },
		"loopback":             func(p *Provider) { p.URL = "https://127.0.0.1" },
		"loopback, IPv6":       func(p *Provider) { p.URL = "https://[::1]" },
		"loopback, mapped":     func(p *Provider) { p.URL = "https://[::ffff:127.0.0.1]" },
		"private":              func(p *Provider) { p.URL = "https://10.0.0.7" },
		"metadata":             func(p *Provider) { p.URL, p.Private = "http://169.254.169.254", true },
		"CA and unchecked":     func(p *Provider) { p.CA, p.Insecure = "x", true },
		"CA that is none":      func(p *Provider) { p.CA = "-----BEGIN NOTHING-----" },
		"empty key":            func(p *Provider) { p.Keys = KeysOf([]string{""}) },
		"key with a line end":  func(p *Provider) { p.Keys = KeysOf([]string{"a\r\nX-Evil: 1"}) },
		"key with a space":     func(p *Provider) { p.Keys = KeysOf([]string{"a b"}) },
		"long key":             func(p *Provider) { p.Keys = KeysOf([]string{long}) },
		"key twice":            func(p *Provider) { p.Keys = KeysOf([]string{"sk-a", "sk-a"}) },
		"too many keys":        func(p *Provider) { p.Keys = manyKeys(MaxProviderKeys + 1) },
		"bad pattern":          func(p *Provider) { p.Models = []ProviderModel{{Pattern: "a b*"}} },
		"empty pattern":        func(p *Provider) { p.Models = []ProviderModel{{}} },
		"pattern with a node":  func(p *Provider) { p.Models = []ProviderModel{{Pattern: "m@box"}} },
		"pattern with a name":  func(p *Provider) { p.Models = []ProviderModel{{Pattern: "a*", Theirs: "b"}} },
		"name with a line end": func(p *Provider) { p.Models = []ProviderModel{{Pattern: "a", Theirs: "b\nc"}} },
		"held":                 func(p *Provider) { p.Held = "sometimes" },
		"direct, no sponsor":   func(p *Provider) { p.Direct = true },
		"parallel":             func(p *Provider) { p.Parallel = -1 },
		"priority":             func(p *Provider) { p.Priority = MaxProviderPriority + 1 },
		"native":               func(p *Provider) { p.Native = []Ability{AbilityImages} },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			var bad *ProviderError
			err := b.SetProvider("p", func(p *Provider) error { p.URL = "https://api.example"; spoil(p); return nil })
			if !errors.As(err, &bad) {
				t.Fatalf("error is %v", err)
			}
			if _, err := b.Provider("p"); !errors.Is(err, ErrNotFound) {
				t.Error("something of it was kept")
			}
		})
	}
	for _, name := range []string{"", "a b", "a/b", "-x", strings.Repeat("n", 65)} {
		if err := newBox(t).SetProvider(name, func(p *Provider) error { p.URL = "https://api.example"; return nil }); err == nil {
			t.Errorf("the name %q was taken", name)
		}
	}
}

func manyKeys(n int) []ProviderKey {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint("sk-", i))
	}
	return KeysOf(out)
}

func TestASecretIsNotPrinted(t *testing.T) {
	p := Provider{ID: "p", Keys: KeysOf([]string{providerSecret})}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", p.Keys[0].Secret, "p", p, "keys", p.Keys)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", p.Keys[0].Secret, "p", p, "keys", p.Keys)
	raw, err := json.Marshal(map[string]any{"p": p, "k": p.Keys, "s": p.Keys[0].Secret})
	must(t, err)
	shown := log.String() + string(raw)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		shown += fmt.Sprintf(verb, p) + fmt.Sprintf(verb, &p) + fmt.Sprintf(verb, p.Keys) + fmt.Sprintf(verb, p.Keys[0].Secret)
	}
	shown += fmt.Sprint(p.Keys[0].Secret.String(), p.Keys[0].Prefix(), p.Keys[0].ID)
	for _, part := range []string{providerSecret, providerSecret[8:], fmt.Sprintf("%x", providerSecret)} {
		if strings.Contains(shown, part) {
			t.Errorf("the key is shown: %s", shown)
		}
	}
	if got := p.Keys[0].Prefix(); got != "sk-tes…" {
		t.Errorf("prefix %q", got)
	}
	if got := KeysOf([]string{"abcdef"})[0].Prefix(); got != "a…" {
		t.Errorf("prefix of a short key %q", got)
	}
}

func TestModelsOfAProvider(t *testing.T) {
	p := Provider{Models: []ProviderModel{{Pattern: "Fast", Theirs: "vendor/fast-V2"}, {Pattern: "gpt-*"}, {Pattern: "*/mini*:x"}}}
	for name, want := range map[string]string{
		"fast": "vendor/fast-V2", "FAST": "vendor/fast-V2", "gpt-4o": "gpt-4o", "GPT-4o": "GPT-4o", "gpt-": "gpt-", "a/mini-1:x": "a/mini-1:x",
		"a/b/mini:x": "a/b/mini:x",
		"faster":     "", "gp": "", "xgpt-1": "", "mini:x": "", "a/mini": "", "gpt-4o@box": "", "gpt-\n": "", "": "",
	} {
		theirs, _, ok := p.Match(name)
		if theirs != want || ok != (want != "") {
			t.Errorf("%q is %q, %v; want %q", name, theirs, ok, want)
		}
	}
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"a*a", "a", false}, {"a*a", "aa", true}, {"**", "x", true}, {"a*b*c", "abc", true}, {"a*b*c", "acb", false},
		{"*aab", "aaab", true}, {"a*ab*b", "aabb", true}, {"a*b*b", "ab", false},
	} {
		if got := MatchPattern(c.pattern, c.name); got != c.want {
			t.Errorf("%q fits %q: %v", c.pattern, c.name, got)
		}
	}
}

func TestBaseOfAProvider(t *testing.T) {
	for url, want := range map[string]string{
		"https://a.example": "https://a.example/v1", "https://a.example/": "https://a.example/v1", "https://a.example/v1": "https://a.example/v1",
		"https://a.example/v1/": "https://a.example/v1", "https://a.example/api/openai": "https://a.example/api/openai",
	} {
		if got := (&Provider{URL: url}).Base(); got != want {
			t.Errorf("%s: %s", url, got)
		}
	}
	if Origin("HTTPS://A.example/v1") != Origin("https://a.EXAMPLE:443") || Origin("http://a.example") == Origin("https://a.example") {
		t.Error("origins")
	}
}
