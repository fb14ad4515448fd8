package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// groupDoc is a tenant, or a project, which alone has a tenant.
type groupDoc struct {
	Tenant  *string               `yaml:"tenant,omitempty"` // empty: none
	Limits  *map[string]*uint64   `yaml:"limits,omitempty"` // by metric; null: no limit
	Budgets *map[string]budgetDoc `yaml:"budgets,omitempty"`
}

// budgetDoc stands under its period and unit, as month/micros.
type budgetDoc struct {
	Amount *uint64 `yaml:"amount"`
	Hard   *bool   `yaml:"hard,omitempty"`
}

func (a admin) exportGroups(d *document) error {
	tenants, err1 := a.catalog.Tenants()
	projects, err2 := a.catalog.Projects()
	d.Tenants, d.Projects = map[string]groupDoc{}, map[string]groupDoc{}
	for _, t := range tenants {
		d.Tenants[t.ID] = rulesDocOf(t.Rules)
	}
	for _, p := range projects {
		doc := rulesDocOf(p.Rules)
		doc.Tenant = &p.Tenant
		d.Projects[p.ID] = doc
	}
	return errors.Join(err1, err2)
}

func rulesDocOf(r catalog.Rules) groupDoc {
	limits, budgets := map[string]*uint64{}, map[string]budgetDoc{}
	for metric, n := range r.Limits {
		limits[string(metric)] = &n
	}
	for _, b := range r.Budgets {
		budgets[budgetName(b)] = budgetDoc{&b.Amount, &b.Hard}
	}
	return groupDoc{Limits: &limits, Budgets: &budgets}
}

func budgetName(b catalog.Budget) string { return string(b.Period) + "/" + string(b.Unit) }

// apply changes the rules that d names. With prune, limits and budgets that d does not
// name go.
func (d groupDoc) apply(r *catalog.Rules, prune bool) error {
	if d.Limits != nil {
		limits := maps.Clone(r.Limits)
		if limits == nil || prune {
			limits = catalog.RateLimits{}
		}
		for metric, n := range *d.Limits {
			if delete(limits, catalog.Metric(metric)); n != nil {
				limits[catalog.Metric(metric)] = *n
			}
		}
		r.Limits = limits
	}
	if d.Budgets == nil {
		return nil
	}
	had := *r
	if prune {
		r.Budgets = nil
	}
	for _, name := range slices.Sorted(maps.Keys(*d.Budgets)) {
		if err := (*d.Budgets)[name].apply(name, had, r); err != nil {
			return err
		}
	}
	return nil
}

func (d budgetDoc) apply(name string, had catalog.Rules, r *catalog.Rules) error {
	period, unit, _ := strings.Cut(name, "/")
	b, known := had.Budget(catalog.Period(period), catalog.Unit(unit))
	if !known && d.Amount == nil {
		return fmt.Errorf("budget %s has no amount", name)
	}
	b.Period, b.Unit = catalog.Period(period), catalog.Unit(unit)
	put(&b.Amount, d.Amount, same)
	put(&b.Hard, d.Hard, same)
	r.SetBudget(b)
	return nil
}

// groups plans tenants and projects: those that go last, so that nothing counts for them
// any more, and projects first among these.
func (p *plan) groups(d document) error {
	tenants, err1 := p.catalog.Tenants()
	projects, err2 := p.catalog.Projects()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	kept, goneTenants, err1 := p.tenants(d, tenants)
	goneProjects, err2 := p.projects(d, projects, kept)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for _, id := range goneProjects {
		p.changes = append(p.changes, ui.Change{Action: ui.ActionDelete, Kind: "project", Name: id})
		p.writes = append(p.writes, func() error { return p.catalog.RemoveProject(id) })
	}
	for _, id := range goneTenants {
		p.changes = append(p.changes, ui.Change{Action: ui.ActionDelete, Kind: "tenant", Name: id})
		p.writes = append(p.writes, func() error { return p.catalog.RemoveTenant(id) })
	}
	return nil
}

// tenants plans what is made and changed, and says which there are then and which go.
func (p *plan) tenants(d document, have []catalog.Tenant) (kept map[string]bool, gone []string, err error) {
	kept = map[string]bool{}
	rules := map[string]catalog.Rules{}
	for _, t := range have {
		kept[t.ID], rules[t.ID] = true, t.Rules
	}
	var errs []error
	named := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.Tenants)) {
		doc := d.Tenants[name]
		id, err := catalog.GroupID("tenant", name)
		if err == nil && doc.Tenant != nil {
			err = &catalog.GroupError{Kind: "tenant", Name: name, Why: "counts for no other tenant"}
		}
		before, known := rules[id]
		want := before
		if err == nil {
			err = p.group("tenant", id, known, &want, doc)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		named[id], kept[id] = true, true
		p.write("tenant", id, known, groupFields(before, ""), groupFields(want, ""), func() error {
			if !known {
				_, err := p.catalog.CreateTenant(catalog.Tenant{ID: id, Rules: want})
				return err
			}
			return p.catalog.UpdateTenant(id, func(t *catalog.Tenant) error { return doc.apply(&t.Rules, p.prune) })
		})
	}
	for _, t := range have {
		if p.prune && d.Tenants != nil && !named[t.ID] {
			delete(kept, t.ID)
			gone = append(gone, t.ID)
		}
	}
	return kept, gone, errors.Join(errs...)
}

// projects is as tenants; each has to have a tenant that is kept, or none.
func (p *plan) projects(d document, have []catalog.Project, tenants map[string]bool) (gone []string, err error) {
	known := map[string]catalog.Project{}
	for _, project := range have {
		known[project.ID] = project
	}
	var errs []error
	named := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.Projects)) {
		id, err := catalog.GroupID("project", name)
		if err == nil {
			named[id] = true
			err = p.project(id, d.Projects[name], known, tenants)
		}
		errs = append(errs, err)
	}
	for _, project := range have {
		switch {
		case named[project.ID]:
		case p.prune && d.Projects != nil:
			errs = append(errs, p.unused(project.ID))
			gone = append(gone, project.ID)
		case project.Tenant != "" && !tenants[project.Tenant]:
			errs = append(errs, fmt.Errorf("tenant %q cannot go: project %q counts for it", project.Tenant, project.ID))
		}
	}
	return gone, errors.Join(errs...)
}

func (p *plan) project(id string, doc groupDoc, all map[string]catalog.Project, tenants map[string]bool) error {
	before, known := all[id]
	want := before
	if err := p.group("project", id, known, &want.Rules, doc); err != nil {
		return err
	}
	if doc.Tenant != nil {
		want.Tenant = ""
	}
	if doc.Tenant != nil && *doc.Tenant != "" {
		var err error
		if want.Tenant, err = catalog.GroupID("tenant", *doc.Tenant); err != nil {
			return err
		}
	}
	if want.Tenant != "" && !tenants[want.Tenant] {
		return &catalog.GroupError{Kind: "project", Name: id, Why: fmt.Sprintf("counts for the tenant %q, which does not exist", want.Tenant)}
	}
	p.write("project", id, known, groupFields(before.Rules, before.Tenant), groupFields(want.Rules, want.Tenant), func() error {
		if !known {
			_, err := p.catalog.CreateProject(catalog.Project{ID: id, Tenant: want.Tenant, Rules: want.Rules})
			return err
		}
		return p.catalog.UpdateProject(id, func(project *catalog.Project) error {
			if doc.Tenant != nil {
				project.Tenant = want.Tenant
			}
			return doc.apply(&project.Rules, p.prune)
		})
	})
	return nil
}

// group makes the rules that a document wants, and checks them.
func (p *plan) group(kind, id string, known bool, want *catalog.Rules, doc groupDoc) error {
	err := doc.apply(want, p.prune || !known)
	if err == nil {
		err = want.Check()
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", kind, id, err)
	}
	return nil
}

// write notes what differs, and how it is written.
func (p *plan) write(kind, name string, known bool, have, want []field, write func() error) {
	if !known {
		p.changes = append(p.changes, ui.Change{Action: ui.ActionCreate, Kind: kind, Name: name, After: fieldsText(want)})
		p.writes = append(p.writes, write)
	} else if p.differ(kind, name, have, want) {
		p.writes = append(p.writes, write)
	}
}

func fieldsText(fields []field) string {
	var parts []string
	for _, f := range fields {
		if f.text != "" {
			parts = append(parts, f.name+" "+f.text)
		}
	}
	return strings.Join(parts, ", ")
}

func groupFields(r catalog.Rules, tenant string) []field {
	out := []field{{"tenant", tenant}}
	for _, metric := range catalog.Metrics() {
		if n, ok := r.Limits[metric]; ok {
			out = append(out, field{"limit " + string(metric), fmt.Sprint(n)})
		}
	}
	for _, b := range r.Budgets {
		text := fmt.Sprint(b.Amount)
		if b.Hard {
			text += " hard"
		}
		out = append(out, field{"budget " + budgetName(b), text})
	}
	return out
}

// unused says that a project has keys: it cannot go.
func (p *plan) unused(project string) error {
	all, err := p.keys.List()
	if err != nil {
		return err
	}
	for _, k := range all {
		if k.Project == project {
			return fmt.Errorf("project %q cannot go: key %q counts for it", project, k.Name)
		}
	}
	return nil
}
