package ui

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (b *fakeBackend) Routes(context.Context) ([]Route, error) {
	return []Route{{Name: "org/chat", Targets: []string{"big"}, Rule: "first"}}, b.err
}

func (b *fakeBackend) SetRoute(_ context.Context, r Route) (RouteResult, error) {
	return RouteResult{Route: r, Warnings: []string{"no model is named \"big\" yet"}}, b.note(r)
}

func (b *fakeBackend) RemoveRoute(_ context.Context, name string) error { return b.note(name) }

func TestRoutesTravelWithTheirParameters(t *testing.T) {
	f := newFixture(t)
	b, c := f.backend, socket(t, f.AdminHandler())
	want := Route{
		Name: "org/chat", Targets: []string{"big", "small@attic"}, Rule: "balance", Strip: []string{"user"},
		Default: map[string]json.RawMessage{"temperature": json.RawMessage("0.20")},
	}
	got, err := c.SetRoute(t.Context(), want)
	if diff := cmp.Diff(want, b.last()); err != nil || diff != "" {
		t.Fatal(diff, err)
	}
	if diff := cmp.Diff(want, got.Route); diff != "" || len(got.Warnings) != 1 {
		t.Error(diff, got.Warnings)
	}
	list, err := c.Routes(t.Context())
	if err != nil || len(list.Routes) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	// A name may hold a slash.
	if err := c.RemoveRoute(t.Context(), "org/chat"); err != nil || b.last() != "org/chat" {
		t.Errorf("removed %v, %v", b.last(), err)
	}
}
