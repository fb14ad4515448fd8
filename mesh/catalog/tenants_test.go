package catalog

import (
	"errors"
	"fmt"
	"strings"
	"sync"
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

func TestGroupsThatAreTakenOrGone(t *testing.T) {
	b := quickBox(t)
	_, err := b.CreateTenant(Tenant{ID: "acme"})
	must(t, err)
	_, err = b.CreateProject(Project{ID: "web", Tenant: "acme"})
	must(t, err)
	must(t, b.PutAPIKey(APIKey{ID: "k", Name: "laptop", Project: "web"}))
	nothing := func() error { t.Error("what is not there was changed"); return nil }
	for name, c := range map[string]struct {
		call func() error
		is   error
		want string
	}{
		"tenant twice":       {func() error { _, err := b.CreateTenant(Tenant{ID: " Acme "}); return err }, ErrTaken, `tenant "acme": exists already`},
		"project twice":      {func() error { _, err := b.CreateProject(Project{ID: "WEB"}); return err }, ErrTaken, `project "web": exists already`},
		"no tenant":          {func() error { return b.UpdateTenant("Gone", func(*Tenant) error { return nothing() }) }, ErrNotFound, `tenant "gone": not found`},
		"no project":         {func() error { return b.UpdateProject("Gone", func(*Project) error { return nothing() }) }, ErrNotFound, `project "gone": not found`},
		"tenant in use":      {func() error { return b.RemoveTenant("ACME ") }, ErrInUse, `tenant "ACME ": is in use: project "web" is one of its`},
		"project in use":     {func() error { return b.RemoveProject("Web") }, ErrInUse, `project "Web": is in use: key "laptop" is one of its`},
		"no tenant to end":   {func() error { return b.RemoveTenant("gone") }, ErrNotFound, `tenant "gone": not found`},
		"no project to end":  {func() error { return b.RemoveProject("gone") }, ErrNotFound, `project "gone": not found`},
		"tenant of no name":  {func() error { return b.RemoveTenant("") }, ErrNotFound, "not found\ntenant \"\" needs a name"},
		"project of no name": {func() error { return b.RemoveProject(" ") }, ErrNotFound, "not found\nproject \" \" needs a name"},
		"the other's name":   {func() error { return b.RemoveTenant("web") }, ErrNotFound, `tenant "web": not found`},
	} {
		before := b.store.Sequence()
		if err := c.call(); !errors.Is(err, c.is) || err.Error() != c.want {
			t.Errorf("%s: error is %v, want %s", name, err, c.want)
		}
		if b.store.Sequence() != before {
			t.Errorf("%s: something was written", name)
		}
	}
	must(t, b.RevokeAPIKey("k"))
	must(t, b.RemoveProject("WEB"))
	must(t, b.RemoveTenant("ACME"))
}

func TestGroupsCountForGroupsThatExist(t *testing.T) {
	b := quickBox(t)
	_, err := b.CreateProject(Project{ID: "web", Tenant: "gone"})
	refused[*GroupError](t, err, `tenant "gone" does not exist`)
	_, err = b.CreateProject(Project{ID: "web", Tenant: "a b"})
	refused[*GroupError](t, err, `tenant "a b" has a name with more than letters, digits, '.', '_' and '-', or begins with '-'`)
	_, err = b.CreateProject(Project{ID: "a/b"})
	refused[*GroupError](t, err, `project "a/b" has a name with more than letters, digits, '.', '_' and '-', or begins with '-'`)
	refused[*GroupError](t, b.UpdateTenant("", func(*Tenant) error { return nil }), `tenant "" needs a name`)
	refused[*GroupError](t, b.UpdateProject("", func(*Project) error { return nil }), `project "" needs a name`)
	for _, id := range []string{"one", "two"} {
		_, err := b.CreateTenant(Tenant{ID: id})
		must(t, err)
	}
	p, err := b.CreateProject(Project{ID: "Web", Tenant: " ONE "})
	must(t, err)
	equal(t, "as written", Project{ID: "web", Tenant: "one"}, p)
	must(t, b.UpdateProject("web", func(p *Project) error { p.ID, p.Tenant = "other", "Two"; return nil }))
	refused[*GroupError](t, b.UpdateProject("web", func(p *Project) error { p.Tenant = "three"; return nil }), `tenant "three" does not exist`)
	all, err := b.Projects()
	must(t, err)
	equal(t, "moved", []Project{{ID: "web", Tenant: "two"}}, all)
	if err := b.RemoveTenant("two"); !errors.Is(err, ErrInUse) {
		t.Errorf("error is %v", err)
	}
	must(t, b.RemoveTenant("one"))
}

// A tenant that is made on two boxes at once is one tenant with what both said.
func TestATenantMadeTwiceIsOne(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	_, err := a.CreateTenant(Tenant{"acme", Rules{Limits: RateLimits{MetricTokens: 1}}})
	must(t, err)
	_, err = b.CreateTenant(Tenant{"Acme", Rules{Limits: RateLimits{MetricRequests: 2}}})
	must(t, err)
	exchange(t, a, b)
	for _, side := range []box{a, b} {
		all, err := side.Tenants()
		must(t, err)
		equal(t, "tenants", []Tenant{{"acme", Rules{Limits: RateLimits{MetricTokens: 1, MetricRequests: 2}}}}, all)
	}
}

// No project is left behind without its tenant by those who remove the one while others make the other.
func TestATenantIsNotRemovedUnderAProject(t *testing.T) {
	b := quickBox(t)
	for i := range 100 {
		tenant, project := fmt.Sprint("t", i), fmt.Sprint("p", i)
		_, err := b.CreateTenant(Tenant{ID: tenant})
		must(t, err)
		var made, removed error
		var wait sync.WaitGroup
		wait.Go(func() { _, made = b.CreateProject(Project{ID: project, Tenant: tenant}) })
		wait.Go(func() { removed = b.RemoveTenant(tenant) })
		wait.Wait()
		if (made == nil) == (removed == nil) {
			t.Fatalf("made: %v, removed: %v", made, removed)
		}
	}
}

func TestGroupsAsTheyAreShown(t *testing.T) {
	for want, v := range map[string]any{
		`{"id":"t"}`: Tenant{ID: "t"},
		`{"id":"t","limits":{"tokens":0},"budgets":[{"period":"day","unit":"tokens","amount":0}]}`:      Tenant{"t", Rules{RateLimits{MetricTokens: 0}, []Budget{{Period: PeriodDay, Unit: UnitTokens}}}},
		`{"id":"p","tenant":"t","budgets":[{"period":"month","unit":"micros","amount":1,"hard":true}]}`: Project{"p", "t", Rules{Budgets: []Budget{{PeriodMonth, UnitMicros, 1, true}}}},
	} {
		if got := asJSON(t, v); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A tenant that went on another box meanwhile keeps nobody from changing its project.
func TestAProjectOutlivesItsTenant(t *testing.T) {
	a, b := quickBox(t), quickBox(t)
	_, err := a.CreateTenant(Tenant{ID: "acme"})
	must(t, err)
	exchange(t, a, b)
	_, err = a.CreateProject(Project{ID: "web", Tenant: "acme"})
	must(t, err)
	must(t, b.RemoveTenant("acme"))
	exchange(t, a, b)
	for _, side := range []box{a, b} {
		must(t, side.UpdateProject("web", func(p *Project) error { p.SetBudget(Budget{PeriodDay, UnitTokens, 7, false}); return nil }))
		refused[*GroupError](t, side.UpdateProject("web", func(p *Project) error { p.Tenant = "Acme"; return nil }), `tenant "Acme" does not exist`)
		all, err := side.Projects()
		must(t, err)
		equal(t, "projects", []Project{{ID: "web", Tenant: "acme", Rules: Rules{Budgets: []Budget{{PeriodDay, UnitTokens, 7, false}}}}}, all)
	}
}
