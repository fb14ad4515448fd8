package catalog

import (
	"encoding/json"
	"errors"
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
