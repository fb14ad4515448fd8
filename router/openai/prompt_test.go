package openai

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func elementsOf(t interface{ Fatalf(string, ...any) }, body string) (Prompt, []string) {
	var p Prompt
	if _, err := ScanPrompt([]byte(body), &p); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var out []string
	p.Elements(func(raw []byte) { out = append(out, string(raw)) })
	return p, out
}

func TestScanFindsThePrompt(t *testing.T) {
	cases := map[string]struct {
		body     string
		elements []string
		tools    string
		session  string
		other    int
	}{
		"messages":          {`{"messages":[{"a":[1,2]},{"b":3}]}`, []string{`{"a":[1,2]}`, `{"b":3}`}, "", "", 0},
		"space between":     {"{\"messages\" : [\n1 ,\t\"x,y\" ]}", []string{"1", `"x,y"`}, "", "", 0},
		"one":               {`{"messages":[[1,2]]}`, []string{"[1,2]"}, "", "", 0},
		"none":              {`{"messages":[]}`, nil, "", "", 0},
		"null":              {`{"messages":null}`, nil, "", "", 0},
		"a number":          {`{"messages":7}`, nil, "", "", 0},
		"no list":           {`{"messages":{"a":1,"b":2}}`, []string{`"a":1`, `"b":2`}, "", "", 0},
		"a text":            {`{"prompt":"once, upon"}`, []string{"once, upon"}, "", "", 0},
		"tokens":            {`{"prompt":[1,2,3]}`, []string{"1,2,3"}, "", "", 0},
		"tools":             {`{"tools":[{"x":1}],"messages":[1]}`, []string{"1"}, `[{"x":1}]`, "", 0},
		"doubled":           {`{"messages":[1,2,3],"messages":[4]}`, []string{"4"}, "", "", 0},
		"text and messages": {`{"messages":[1,2],"prompt":"p"}`, []string{"p"}, "", "", 0},
		"names":             {`{"user":"u","prompt_cache_key":"k"}`, nil, "", `"k"`, 0},
		"user alone":        {`{"prompt_cache_key":null,"user":"u"}`, nil, "", `"u"`, 0},
		"no names":          {`{"user":"","prompt_cache_key":null}`, nil, "", "", 0},
		"input":             {`{"input":["abc"]}`, nil, "", "", 7},
		"input, a text":     {`{"input":"a, b"}`, nil, "", "", 6},
		"input, items":      {`{"instructions":"be kind","input":[{"a":[1,2]}, {"b":3}]}`, []string{`"be kind"`, `{"a":[1,2]}`, `{"b":3}`}, "", "", 0},
		"input, no items":   {`{"messages":[{"a":1}],"input":["x","y"]}`, []string{`{"a":1}`}, "", "", 9},
		"system":            {`{"messages":[1],"system":[{"t":"s"}]}`, []string{`[{"t":"s"}]`, "1"}, "", "", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, got := elementsOf(t, c.body)
			if diff := cmp.Diff(c.elements, got); diff != "" {
				t.Errorf("elements (-want +got):\n%s", diff)
			}
			if string(p.Tools) != c.tools || string(p.Session) != c.session || p.Other != c.other {
				t.Errorf("tools %s, session %s, other %d", p.Tools, p.Session, p.Other)
			}
		})
	}
}

func TestElementsAreThoseOfTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOf(rapid.SliceOf(rapid.String())).Draw(t, "messages")
		body, err := json.Marshal(map[string]any{"messages": texts, "a": texts})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, one := range texts {
			raw, err := json.Marshal(one)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, string(raw))
		}
		if _, got := elementsOf(t, string(body)); !slices.Equal(got, want) {
			t.Fatalf("%s: elements %q", body, got)
		}
	})
}
