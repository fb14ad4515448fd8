package catalog

import (
	"fmt"
	"strings"
	"testing"

	"llmgw/crdt"
)

func TestAPIKeysThatCannotBeKeptSayWhy(t *testing.T) {
	pattern := func(p string) string {
		return fmt.Sprintf("an API key's models cannot have %q: a model name in which '*' stands for anything is needed", p)
	}
	origin := func(o string) string {
		return fmt.Sprintf("an API key's origins cannot have %q: write it as https://app.example or http://localhost:3000, without a path, or * for any page", o)
	}
	cases := map[string]struct {
		change func(*APIKey)
		want   string
	}{
		"expired before time":  {func(k *APIKey) { k.Expires = -1 }, "an API key's expiry lies before 1970"},
		"too many patterns":    {func(k *APIKey) { k.Models = manyNames(maxPatterns + 1) }, "an API key's models are more than 100 patterns"},
		"an empty pattern":     {func(k *APIKey) { k.Models = []string{"a", ""} }, pattern("")},
		"a pattern with space": {func(k *APIKey) { k.Models = []string{"* *"} }, pattern("* *")},
		"a pattern with @":     {func(k *APIKey) { k.Models = []string{"m@*"} }, pattern("m@*")},
		"a pattern of colons":  {func(k *APIKey) { k.Models = []string{"*:*:*"} }, pattern("*:*:*")},
		"a path trick":         {func(k *APIKey) { k.Models = []string{"*/../x"} }, pattern("*/../x")},
		"a long pattern":       {func(k *APIKey) { k.Models = []string{strings.Repeat("a", 289)} }, pattern(strings.Repeat("a", 289))},
		"too many origins":     {func(k *APIKey) { k.Origins = make([]string, maxPatterns+1) }, "an API key's origins are more than 100"},
		"an origin's path":     {func(k *APIKey) { k.Origins = []string{"*", "https://a.example/x"} }, origin("https://a.example/x")},
		"origins too large":    {func(k *APIKey) { k.Origins = []string{"https://" + strings.Repeat("a", crdt.MaxValueBytes)} }, "an API key's origins is over 131072 bytes"},
		"a name of bytes":      {func(k *APIKey) { k.Name = "\xff" }, "an API key's record holds text that is not UTF-8"},
		"a scope of bytes":     {func(k *APIKey) { k.Scopes = []string{"\xff"} }, "an API key's record holds text that is not UTF-8"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := APIKey{ID: "new", Name: "k", Hash: []byte{1}}
			c.change(&k)
			b := quickBox(t)
			refused[*KeyError](t, b.PutAPIKey(k), c.want)
			_, err := b.APIKey("new")
			notFound(t, "what was refused", err)
		})
	}
	b := quickBox(t)
	must(t, b.PutAPIKey(APIKey{ID: "k1"}))
	for name, c := range cases {
		if strings.HasSuffix(name, "bytes") {
			continue // the record is written once
		}
		refused[*KeyError](t, b.UpdateAPIKey("k1", func(k *APIKey) error { c.change(k); return nil }), c.want)
	}
	got, err := b.APIKey("k1")
	must(t, err)
	equal(t, "after refused changes", APIKey{ID: "k1"}, got)
}

func TestAPIKeysAtTheirBoundsAreTaken(t *testing.T) {
	b := quickBox(t)
	for name, k := range map[string]APIKey{
		"bare":          {},
		"most patterns": {Models: manyNames(maxPatterns)},
		"wild patterns": {Models: []string{"*", "***", "org/*", "*:q4", "qwen*:*", "*small*", "A*", strings.Repeat("a", maxNameBytes)}},
		"same twice":    {Models: []string{"a", "a"}, Origins: []string{"*", "*"}},
		"long ago":      {Expires: 1},
	} {
		k.ID = name
		must(t, b.PutAPIKey(k))
		got, err := b.APIKey(name)
		must(t, err)
		equal(t, name, k, got)
	}
}

func TestWhatAKeyCountsForIsChecked(t *testing.T) {
	b := quickBox(t)
	_, err := b.CreateProject(Project{ID: "web"})
	must(t, err)
	refused[*GroupError](t, b.PutAPIKey(APIKey{ID: "k", Project: "gone"}), `project "gone" does not exist`)
	refused[*GroupError](t, b.PutAPIKey(APIKey{ID: "k", Project: "a b"}), `project "a b" has a name with more than letters, digits, '.', '_' and '-', or begins with '-'`)
	refused[*LabelError](t, b.PutAPIKey(APIKey{ID: "k", Nodes: Selector{Require: map[string]string{"": "x"}}}), `label "=x": has no key`)
	refused[*RulesError](t, b.PutAPIKey(APIKey{ID: "k", Rules: Rules{Limits: RateLimits{"speed": 1}}}),
		"limit speed is none: there are requests, input_tokens, output_tokens, tokens, parallel")
	must(t, b.PutAPIKey(APIKey{ID: "k", Project: " WEB "}))
	k, err := b.APIKey("k")
	must(t, err)
	if k.Project != "web" {
		t.Errorf("it counts for %q", k.Project)
	}
	// A project that went on another box meanwhile keeps nobody from changing the key.
	must(t, b.UpdateAPIKey("k", func(k *APIKey) error { k.Project = ""; return nil }))
	other := quickBox(t)
	exchange(t, b, other)
	must(t, other.RemoveProject("web"))
	must(t, b.UpdateAPIKey("k", func(k *APIKey) error { k.Project = "Web"; return nil }))
	exchange(t, b, other)
	for _, side := range []box{b, other} {
		if err := side.UpdateAPIKey("k", func(k *APIKey) error { k.Expires++; return nil }); err != nil {
			t.Errorf("it cannot be changed: %v", err)
		}
		refused[*GroupError](t, side.UpdateAPIKey("k", func(k *APIKey) error { k.Project = "new"; return nil }), `project "new" does not exist`)
	}
	must(t, b.UpdateAPIKey("k", func(k *APIKey) error { k.Project = ""; return nil }))
	k, err = b.APIKey("k")
	must(t, err)
	if k.Project != "" {
		t.Errorf("it still counts for %q", k.Project)
	}
}

// Who a key is does not change, whatever an edit tries.
func TestTheRecordOfAKeyIsWrittenOnce(t *testing.T) {
	b := quickBox(t)
	want := APIKey{ID: "k", Name: "n", Hash: []byte{1, 2}, Scopes: []string{ScopeInfer}, Created: 5, Creator: "p", First: true}
	must(t, b.PutAPIKey(want))
	must(t, b.UpdateAPIKey("k", func(k *APIKey) error {
		k.ID, k.Name, k.Hash, k.Created, k.Creator, k.First = "other", "x", []byte{9}, 6, "q", false
		k.Scopes[0], k.Expires = ScopeAdmin, 7
		return nil
	}))
	got, err := b.APIKey("k")
	must(t, err)
	want.Expires = 7
	equal(t, "key", want, got)
	_, err = b.APIKey("other")
	notFound(t, "a key of the other ID", err)
	notFound(t, "an edit of no key", b.UpdateAPIKey("gone", func(*APIKey) error { t.Error("it was edited"); return nil }))
	if err := b.RevokeAPIKey("gone"); err == nil || err.Error() != "end keys row: not found" {
		t.Errorf("error is %v", err)
	}
}

// The hash of a key's secret is kept and not shown.
func TestTheHashOfAKeyIsNotShown(t *testing.T) {
	raw := asJSON(t, APIKey{ID: "k", Hash: []byte{0xde, 0xad}, Name: "n", Scopes: []string{ScopeInfer}})
	if want := `{"id":"k","name":"n","scopes":["infer"],"created":0,"creator":""}`; raw != want {
		t.Errorf("shown as %s, want %s", raw, want)
	}
}

func TestOriginsAreSpelledAsBrowsersDo(t *testing.T) {
	for _, origin := range []string{
		"*", "https://app.example", "http://localhost:3000", "app://editor", "http://127.0.0.1", "http://[::1]:8080", "https://a.example:8443", "http://a.example:443",
		"https://a.example:80", "chrome-extension://abcdefgh", "https://xn--mnchen-3ya.example", "https://a_b.example", "http://a.example:65535",
	} {
		if err := checkOrigin(origin); err != nil {
			t.Errorf("%q: %v", origin, err)
		}
	}
	for _, origin := range []string{
		"", "null", "**", "app.example", "//app.example", "https:app.example", "https://", "https://:443", "https://app.example/", "https://app.example?x", "https://app.example#x",
		"https://me@app.example", "https://App.example", "HTTPS://app.example", " https://app.example", "https://app.example ", "http://a b", "https://a.example\n",
		"https://a.example:443", "http://a.example:80", "https://a.example:", "https://a.example:0", "https://a.example:070", "https://a.example:65536", "https://a.example:x",
		"https://*.example", "https://münchen.example", "https://a%2eexample", "https://a.example,https://b.example", "https://\xff",
	} {
		if err := checkOrigin(origin); err == nil {
			t.Errorf("%q was taken", origin)
		}
	}
}

func TestPatternsOfAKey(t *testing.T) {
	for pattern, good := range map[string]bool{
		"*": true, "**": true, "a": true, "A/*": true, "*a*": true, "a*:b": true, "*.gguf": true, strings.Repeat("*", 400): true,
		"": false, " ": false, "a b": false, "@": false, "*@*": false, "/": false, "*/": false, "../*": false, "a\n": false, "é*": false, "a?": false, "\xff": false,
	} {
		if err := checkPattern(pattern); (err == nil) != good {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}
