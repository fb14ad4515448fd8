package catalog

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTenantsAndProjects(t *testing.T) {
	a, b := newBox(t), newBox(t)
	acme, err := a.CreateTenant(Tenant{ID: " ACME ", Rules: someRules()})
	must(t, err)
	_, err = a.CreateProject(Project{ID: "web", Tenant: "Acme"})
	must(t, err)
	exchange(t, a, b)
	tenants, err := b.Tenants()
	must(t, err)
	projects, err := b.Projects()
	must(t, err)
	if diff := cmp.Diff([]Tenant{{ID: "acme", Rules: someRules()}}, tenants); diff != "" || acme.ID != "acme" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Project{{ID: "web", Tenant: "acme"}}, projects); diff != "" {
		t.Error(diff)
	}
	var group *GroupError
	_, err = b.CreateTenant(Tenant{ID: "Acme"})
	if !errors.Is(err, ErrTaken) {
		t.Errorf("a name twice: %v", err)
	}
	for _, name := range []string{"", "a b", "a:b", "-x", "é", strings.Repeat("x", maxGroupName+1)} {
		if _, err := b.CreateTenant(Tenant{ID: name}); !errors.As(err, &group) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if err := b.UpdateProject("web", func(p *Project) error { p.Tenant = "gone"; return nil }); !errors.As(err, &group) {
		t.Errorf("a tenant that is none: %v", err)
	}
	if err := b.RemoveTenant("acme"); !errors.Is(err, ErrInUse) {
		t.Errorf("a tenant with a project: %v", err)
	}
	must(t, b.UpdateProject("WEB", func(p *Project) error { p.Tenant = ""; return nil }))
	must(t, b.RemoveTenant("Acme"))
	if err := b.RemoveTenant("acme"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a tenant that is gone: %v", err)
	}
	// A name may be used again.
	_, err = b.CreateTenant(Tenant{ID: "acme"})
	must(t, err)
	tenants, err = b.Tenants()
	must(t, err)
	if diff := cmp.Diff([]Tenant{{ID: "acme"}}, tenants); diff != "" {
		t.Errorf("it came back with what it had: %s", diff)
	}
}
