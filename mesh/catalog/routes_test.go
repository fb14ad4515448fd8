package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestARouteIsKeptWholeAndFoundWithoutCase(t *testing.T) {
	c := newBox(t)
	want := Route{
		ID: "fast/chat", Name: "Fast/Chat", Targets: []string{"big", "small@box-a"}, Rule: RuleFirst,
		Params: Params{
			Default: map[string]json.RawMessage{"temperature": json.RawMessage("0.20")},
			Force:   map[string]json.RawMessage{"top_k": json.RawMessage("[1, 2]")},
			Strip:   []string{"logit_bias"},
		},
	}
	given := want
	given.ID, given.Rule = "", ""
	if err := c.PutRoute(given); err != nil {
		t.Fatal(err)
	}
	routes, err := c.Routes()
	if diff := cmp.Diff([]Route{want}, routes); err != nil || diff != "" {
		t.Fatal(diff, err)
	}
	if _, ok := ResolveRoute(routes, "FAST/chat"); !ok {
		t.Error("case counts in finding a route")
	}
	given.Targets = []string{"small"}
	if err := c.PutRoute(given); err != nil {
		t.Fatal(err)
	}
	if routes, _ = c.Routes(); len(routes) != 1 || !slices.Equal(routes[0].Targets, []string{"small"}) {
		t.Errorf("not replaced: %+v", routes)
	}
	if err := c.DeleteRoute("fast/CHAT"); err != nil {
		t.Fatal(err)
	}
	if routes, _ = c.Routes(); len(routes) != 0 {
		t.Errorf("not removed: %+v", routes)
	}
	if err := c.DeleteRoute("fast/chat"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a route that is not there was removed: %v", err)
	}
}

func TestARouteThatCannotWorkIsRefused(t *testing.T) {
	c := newBox(t)
	if err := c.CreateModel(Model{Name: "big", Source: Source{URI: "file:/x", Digest: "sha256:" + strings.Repeat("a", 64), Format: FormatGGUF}}); err != nil {
		t.Fatal(err)
	}
	raw := func(s string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"top_p": json.RawMessage(s)}
	}
	for name, r := range map[string]Route{
		"no target":         {Name: "x"},
		"a model's name":    {Name: "BIG", Targets: []string{"y"}},
		"a node alone":      {Name: "x", Targets: []string{"@box"}},
		"no node":           {Name: "x", Targets: []string{"y@"}},
		"an unknown rule":   {Name: "x", Targets: []string{"y"}, Rule: "any"},
		"no JSON":           {Name: "x", Targets: []string{"y"}, Params: Params{Force: raw("{")}},
		"the client's":      {Name: "x", Targets: []string{"y"}, Params: Params{Strip: []string{"messages"}}},
		"forced and taken":  {Name: "x", Targets: []string{"y"}, Params: Params{Force: raw("1"), Strip: []string{"top_p"}}},
		"a name with @":     {Name: "x@y", Targets: []string{"y"}},
		"a quote in a name": {Name: "x", Targets: []string{"y"}, Params: Params{Strip: []string{`a"b`}}},
	} {
		if err := c.PutRoute(r); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	if routes, err := c.Routes(); err != nil || len(routes) != 0 {
		t.Errorf("something was kept: %+v, %v", routes, err)
	}
}

func value(raw string) map[string]json.RawMessage {
	return map[string]json.RawMessage{"top_p": json.RawMessage(raw)}
}

func TestRoutesSayWhatIsWrong(t *testing.T) {
	params := func(p Params) Route { return Route{Name: "x", Targets: []string{"m"}, Params: p} }
	strip := func(names ...string) Route { return params(Params{Strip: names}) }
	target := func(t string) Route { return Route{Name: "x", Targets: []string{"m", t}} }
	large := json.RawMessage(`"` + strings.Repeat("x", maxParamBytes-1) + `"`)
	sets := map[string]json.RawMessage{}
	for _, name := range manyNames(10) {
		sets[name] = json.RawMessage(`"` + strings.Repeat("x", maxParamBytes-2) + `"`)
	}
	for name, c := range map[string]struct {
		route Route
		want  string
	}{
		"no target":           {Route{Name: "x"}, "names no model to go to"},
		"many targets":        {Route{Name: "x", Targets: manyNames(33)}, "has more than 32 targets"},
		"a rule":              {Route{Name: "x", Targets: []string{"m"}, Rule: "any"}, `the rule "any" is none of [first loaded-only balance]`},
		"an empty target":     {target(""), `target "": model name "": is empty`},
		"a node alone":        {target("@n"), `target "@n": model name "": is empty`},
		"no node":             {target("m@"), `target "m@" names no node after the @`},
		"a bad target":        {target("a b@n"), `target "a b@n": model name "a b": holds ' '; ` + allowedInNames},
		"many parameters":     {strip(manyNames(65)...), "has more than 64 parameters"},
		"no parameter":        {strip(""), `"" is no name of a parameter`},
		"a long one":          {strip(strings.Repeat("p", 65)), fmt.Sprintf("%q is no name of a parameter", strings.Repeat("p", 65))},
		"a quote":             {strip(`a"b`), `"a\"b" is no name of a parameter`},
		"a backslash":         {strip(`a\b`), `"a\\b" is no name of a parameter`},
		"a control":           {strip("a\nb"), `"a\nb" is no name of a parameter`},
		"a letter":            {strip("é"), `"é" is no name of a parameter`},
		"the model":           {strip("model"), "the parameter model is the client's to set"},
		"the stream":          {params(Params{Force: map[string]json.RawMessage{"stream": json.RawMessage("true")}}), "the parameter stream is the client's to set"},
		"messages":            {strip("messages"), "the parameter messages is the client's to set"},
		"prompt":              {strip("prompt"), "the parameter prompt is the client's to set"},
		"input":               {params(Params{Default: map[string]json.RawMessage{"input": json.RawMessage("1")}}), "the parameter input is the client's to set"},
		"no value":            {params(Params{Default: map[string]json.RawMessage{"top_p": nil}}), "the parameter top_p has no value"},
		"an empty value":      {params(Params{Force: value("")}), "the value of top_p is no JSON of at most 16384 bytes"},
		"half a value":        {params(Params{Force: value("{")}), "the value of top_p is no JSON of at most 16384 bytes"},
		"two values":          {params(Params{Default: value("1 2")}), "the value of top_p is no JSON of at most 16384 bytes"},
		"a large value":       {params(Params{Force: map[string]json.RawMessage{"top_p": large}}), "the value of top_p is no JSON of at most 16384 bytes"},
		"forced and taken":    {params(Params{Force: value("1"), Strip: []string{"a", "top_p"}}), "the parameter top_p is both forced and taken out"},
		"the first of two":    {params(Params{Default: map[string]json.RawMessage{"b b\n": json.RawMessage("1"), "a\n": json.RawMessage("1")}}), `"a\n" is no name of a parameter`},
		"large as a whole":    {params(Params{Default: sets}), "its record is over 131072 bytes"},
		"a node that is none": {target("m@\xff"), "its record holds text that is not UTF-8"},
	} {
		b := quickBox(t)
		for range 5 { // whatever the order in which maps are gone through
			refused[*RouteError](t, CheckRoute(c.route), `route "x": `+c.want)
		}
		refused[*RouteError](t, b.PutRoute(c.route), `route "x": `+c.want)
		if b.store.Sequence() != 0 {
			t.Errorf("%s: something was written", name)
		}
	}
	refused[*NameError](t, CheckRoute(Route{Name: "x@y", Targets: []string{"m"}}), `model name "x@y": '@' is reserved for model@node`)
	b := quickBox(t)
	notFound(t, "a route that cannot be", b.DeleteRoute("x@y"))
	refused[*NameError](t, b.DeleteRoute("x@y"), `model name "x@y": '@' is reserved for model@node`)
	notFound(t, "a route that is not there", b.DeleteRoute("x"))
}

func TestRoutesAtTheirBoundsAreTaken(t *testing.T) {
	long := strings.Repeat("n", maxNameBytes)
	large := json.RawMessage(`"` + strings.Repeat("x", maxParamBytes-2) + `"`)
	for name, r := range map[string]Route{
		"names":             {Name: long, Targets: []string{long + "@node"}, Rule: RuleBalance},
		"targets":           {Name: "x", Targets: manyNames(maxTargets), Rule: RuleLoaded},
		"same twice":        {Name: "x", Targets: []string{"m", "m", "M"}, Rule: RuleFirst, Params: Params{Strip: []string{"a", "a"}}},
		"itself":            {Name: "x", Targets: []string{"x"}, Rule: RuleFirst},
		"two nodes":         {Name: "x", Targets: []string{"m@a@b", "m@a b"}, Rule: RuleFirst},
		"parameters":        {Name: "x", Targets: []string{"m"}, Rule: RuleFirst, Params: Params{Default: map[string]json.RawMessage{strings.Repeat("p", 64): large}, Strip: manyNames(63)}},
		"any JSON":          {Name: "x", Targets: []string{"m"}, Rule: RuleFirst, Params: Params{Force: value(" null "), Default: value(`{"a":[1e400,"\u0000"]}`)}},
		"default and taken": {Name: "x", Targets: []string{"m"}, Rule: RuleFirst, Params: Params{Default: value("1"), Strip: []string{"top_p"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := quickBox(t)
			must(t, CheckRoute(r))
			must(t, b.PutRoute(r))
			all, err := b.Routes()
			must(t, err)
			r.ID = FoldName(r.Name)
			equal(t, "routes", []Route{r}, all)
		})
	}
}

// A route without a rule takes the first target; so it passes its check.
func TestTheRuleOfARouteHasADefault(t *testing.T) {
	b := quickBox(t)
	r := Route{Name: "x", Targets: []string{"m"}}
	must(t, CheckRoute(r))
	must(t, b.PutRoute(r))
	all, err := b.Routes()
	must(t, err)
	if all[0].Rule != RuleFirst || RouteRules()[0] != RuleFirst {
		t.Errorf("the rule is %q", all[0].Rule)
	}
}

// A route never has a name that finds a model: neither its own nor an alias.
func TestARouteHasNoNameOfAModel(t *testing.T) {
	b := quickBox(t)
	must(t, b.CreateModel(smol()))
	for _, name := range []string{"SMOLLM2", "smollm2", "small", "SMALL"} {
		refused[*RouteError](t, b.PutRoute(Route{Name: name, Targets: []string{"m"}}), fmt.Sprintf("route %q: the model SmolLM2 has this name already", name))
	}
	must(t, b.UpdateModel("smollm2", func(m *Model) error { m.Aliases = nil; return nil }))
	must(t, b.PutRoute(Route{Name: "small", Targets: []string{"m"}}))
}

func TestRoutesAreFoundByName(t *testing.T) {
	all := []Route{{ID: "a"}, {ID: "b/c", Name: "B/c"}}
	for name, want := range map[string]string{"a": "a", "A": "a", "B/C": "b/c", "b": "", "": "", "a ": ""} {
		if r, ok := ResolveRoute(all, name); ok != (want != "") || r.ID != want {
			t.Errorf("%q finds %q", name, r.ID)
		}
	}
	for name, want := range map[string][2]string{"m": {"m", ""}, "m@n": {"m", "n"}, "m@n@o": {"m", "n@o"}, "@": {"", ""}, "": {"", ""}, "m@": {"m", ""}} {
		if model, node := SplitTarget(name); model != want[0] || node != want[1] {
			t.Errorf("%q is %q on %q", name, model, node)
		}
	}
}

func TestParametersThatChangeNothing(t *testing.T) {
	for _, p := range []Params{{}, {Default: map[string]json.RawMessage{}, Force: map[string]json.RawMessage{}, Strip: []string{}}} {
		if !p.IsZero() {
			t.Errorf("%+v changes something", p)
		}
	}
	for _, p := range []Params{{Default: value("1")}, {Force: value("1")}, {Strip: []string{"a"}}} {
		if p.IsZero() {
			t.Errorf("%+v changes nothing", p)
		}
	}
}
