package catalog

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const allowedInNames = "letters, digits, '.', '_', '-', '/' and one ':' are allowed"

func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"a", "0", "-", "_", ":", "a:", ":a", "...", ".hidden", "a.", "qwen2.5:7b", "org/model-Q4_K.gguf", "a/b/c:d", "a:b/c",
		strings.Repeat("x", maxNameBytes), "hf.co/org/model:Q4_K_M",
	} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, why := range map[string]string{
		"":                                  "is empty",
		"a@b":                               "'@' is reserved for model@node",
		"@":                                 "'@' is reserved for model@node",
		"a:b:c":                             "holds more than one ':'",
		"::":                                "holds more than one ':'",
		"a b":                               "holds ' '; " + allowedInNames,
		" a":                                "holds ' '; " + allowedInNames,
		"a\n":                               `holds '\n'; ` + allowedInNames,
		"a\x00":                             `holds '\x00'; ` + allowedInNames,
		"ä":                                 "holds 'ä'; " + allowedInNames,
		"\xff":                              "holds '\uFFFD'; " + allowedInNames,
		"a*":                                "holds '*'; " + allowedInNames,
		`a\b`:                               `holds '\\'; ` + allowedInNames,
		"\u212A":                            "holds '\u212A'; " + allowedInNames, // the Kelvin sign, which folds to k
		".":                                 "has an empty, '.' or '..' part between slashes",
		"..":                                "has an empty, '.' or '..' part between slashes",
		"../x":                              "has an empty, '.' or '..' part between slashes",
		"a/./b":                             "has an empty, '.' or '..' part between slashes",
		"a/..":                              "has an empty, '.' or '..' part between slashes",
		"a//b":                              "has an empty, '.' or '..' part between slashes",
		"/a":                                "has an empty, '.' or '..' part between slashes",
		"a/":                                "has an empty, '.' or '..' part between slashes",
		"/":                                 "has an empty, '.' or '..' part between slashes",
		strings.Repeat("x", maxNameBytes+1): "is longer than 288 bytes",
	} {
		refused[*NameError](t, CheckName(name), (&NameError{name, why}).Error())
	}
	refused[*NameError](t, CheckName("a\nb"), `model name "a\nb": holds '\n'; `+allowedInNames)
}

// What is a name stays one when it is folded, and folding again changes nothing.
func TestFoldedNamesAreNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(names(), rapid.String()).Draw(t, "name")
		folded := FoldName(name)
		if CheckName(name) == nil && (CheckName(folded) != nil || len(folded) != len(name)) {
			t.Fatalf("%q is a name, %q is not", name, folded)
		}
		if FoldName(folded) != folded {
			t.Fatalf("%q folds to %q and then to %q", name, folded, FoldName(folded))
		}
		if CheckName(name) == nil && FoldName(strings.ToUpper(name)) != folded {
			t.Fatalf("%q is another name in capitals", name)
		}
	})
}

func TestResolve(t *testing.T) {
	models := []Model{{ID: "b", Name: "B", Aliases: []string{"chat"}}, {ID: "a", Name: "A", Aliases: []string{"Chat", "b"}}}
	for name, want := range map[string]string{"A": "a", "b": "b", "CHAT": "a", "none": "", "": "", "a ": "", "cha": ""} {
		m, ok := Resolve(models, name)
		if ok != (want != "") || m.ID != want {
			t.Errorf("%q resolves to %q, want %q", name, m.ID, want)
		}
	}
	if m, ok := Resolve(nil, "a"); ok || m.ID != "" {
		t.Errorf("an empty catalog has %q", m.ID)
	}
}

// An ID beats each alias, of aliases that clash the lowest ID wins, and neither
// case nor the order of the models has a part in it.
func TestResolveOfClashingNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letter := rapid.StringMatching(`[a-eA-E]`)
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-e]`), 0, 5, rapid.ID).Draw(t, "ids")
		var models []Model
		for _, id := range ids {
			models = append(models, Model{ID: id, Name: id, Aliases: rapid.SliceOfN(letter, 0, 3).Draw(t, "aliases")})
		}
		name := letter.Draw(t, "name")
		want := ""
		for _, m := range models {
			for _, alias := range m.Aliases {
				if strings.EqualFold(alias, name) && (want == "" || m.ID < want) {
					want = m.ID
				}
			}
		}
		for _, id := range ids {
			if id == strings.ToLower(name) {
				want = id
			}
		}
		for _, order := range [][]Model{models, rapid.Permutation(models).Draw(t, "order")} {
			if m, ok := Resolve(order, name); ok != (want != "") || m.ID != want {
				t.Fatalf("%q resolves to %q, want %q", name, m.ID, want)
			}
		}
	})
}

func TestCheckLabel(t *testing.T) {
	long := strings.Repeat("k", maxLabelBytes)
	const plain = "letters, digits, '.', '_' and '-' are allowed, and '/' in the key"
	for _, l := range [][2]string{{"zone", "eu"}, {"zone", ""}, {"example.org/gpu_kind", "A100-80.b"}, {long, long}, {"/", "x"}, {"-", "-"}} {
		if err := CheckLabel(l[0], l[1]); err != nil {
			t.Errorf("%s=%s: %v", l[0], l[1], err)
		}
	}
	for _, c := range []struct{ key, value, why string }{
		{"", "", "has no key"}, {"", "x", "has no key"},
		{long + "k", "", "key or value is longer than 63 bytes"}, {"k", long + "v", "key or value is longer than 63 bytes"},
		{"a b", "", plain}, {"a", "b c", plain}, {"a", "b/c", plain}, {"a=b", "c", plain}, {"a", "b=c", plain}, {"a", "b\n", plain},
		{"é", "x", plain}, {"x", "é", plain}, {"a\x00b", "x", plain}, {"x", "\xff", plain}, {"a", "b,c", plain}, {"a", " ", plain},
	} {
		refused[*LabelError](t, CheckLabel(c.key, c.value), (&LabelError{c.key + "=" + c.value, c.why}).Error())
	}
	refused[*LabelError](t, CheckLabel("a b", "c"), `label "a b=c": `+plain)
}

func TestNamesOfGroups(t *testing.T) {
	long := strings.Repeat("n", maxGroupName)
	for name, id := range map[string]string{"Web": "web", "  ACME\t": "acme", "a.b_c-1": "a.b_c-1", "_x": "_x", ".x": ".x", "x-": "x-", long: long, strings.ToUpper(long): long} {
		if got, err := GroupID("tenant", name); got != id || err != nil {
			t.Errorf("%q is %q, %v; want %q", name, got, err, id)
		}
	}
	const plain = "has a name with more than letters, digits, '.', '_' and '-', or begins with '-'"
	for name, why := range map[string]string{
		"": "needs a name", " \t\n": "needs a name", long + "n": "has a name over 64 bytes",
		"a b": plain, "a/b": plain, "a:b": plain, "a@b": plain, "-x": plain, "-": plain, "é": plain, "a\x00b": plain, "\xff": plain,
		"wor\u212A": plain, // the Kelvin sign, which folds to k
	} {
		for _, kind := range []string{"tenant", "project", "provider"} {
			id, err := GroupID(kind, name)
			refused[*GroupError](t, err, (&GroupError{kind, name, why}).Error())
			if id != "" {
				t.Errorf("%q is refused and %q", name, id)
			}
		}
	}
	_, err := GroupID("project", "a b")
	refused[*GroupError](t, err, `project "a b" `+plain)
}

// MatchPattern against the same written as a regular expression.
func TestMatchPatternIsWhatARegularExpressionSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern, name := rapid.StringMatching(`[ab*.]{0,8}`).Draw(t, "pattern"), rapid.StringMatching(`[ab.]{0,12}`).Draw(t, "name")
		expression := "^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		if got, want := MatchPattern(pattern, name), regexp.MustCompile(expression).MatchString(name); got != want {
			t.Fatalf("%q fits %q: %v", name, pattern, got)
		}
	})
}
