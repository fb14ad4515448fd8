package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"llmgw/mesh/catalog"
	"llmgw/router/limits"
	"llmgw/ui"
)

// Tenants lists the tenants.
func (a admin) Tenants(context.Context) ([]ui.Tenant, error) {
	list, err := a.catalog.Tenants()
	if err != nil {
		return nil, err
	}
	out := make([]ui.Tenant, 0, len(list))
	for _, t := range list {
		out = append(out, a.uiTenant(t))
	}
	return out, nil
}

func (a admin) uiTenant(t catalog.Tenant) ui.Tenant {
	return ui.Tenant{Name: t.ID, Rules: a.uiRules(limits.LevelTenant, t.ID, t.Rules)}
}

// NewTenant makes a tenant.
func (a admin) NewTenant(ctx context.Context, r ui.TenantRequest) (ui.TenantAnswer, error) {
	t := catalog.Tenant{ID: r.Name}
	err := changeRules(&t.Rules, r.RulesChange)
	if err == nil {
		t, err = a.catalog.CreateTenant(t)
	}
	if err != nil {
		return ui.TenantAnswer{}, explainGroup(err, "tenant", r.Name)
	}
	return ui.TenantAnswer{Tenant: a.uiTenant(t)}, a.offer(ctx)
}

// SetTenant changes a tenant.
func (a admin) SetTenant(ctx context.Context, r ui.TenantRequest) (ui.TenantAnswer, error) {
	var after catalog.Tenant
	err := a.catalog.UpdateTenant(r.Name, func(t *catalog.Tenant) error {
		err := changeRules(&t.Rules, r.RulesChange)
		after = *t
		return err
	})
	if err != nil {
		return ui.TenantAnswer{}, explainGroup(err, "tenant", r.Name)
	}
	return ui.TenantAnswer{Tenant: a.uiTenant(after)}, a.offer(ctx)
}

// RemoveTenant ends a tenant that has no project.
func (a admin) RemoveTenant(ctx context.Context, r ui.Named) (ui.Named, error) {
	if err := a.catalog.RemoveTenant(r.Name); err != nil {
		return ui.Named{}, explainGroup(err, "tenant", r.Name)
	}
	return ui.Named{Name: r.Name}, a.offer(ctx)
}

// Projects lists the projects.
func (a admin) Projects(context.Context) ([]ui.Project, error) {
	list, err := a.catalog.Projects()
	if err != nil {
		return nil, err
	}
	out := make([]ui.Project, 0, len(list))
	for _, p := range list {
		project, err := a.uiProject(p)
		if err != nil {
			return nil, err
		}
		out = append(out, project)
	}
	return out, nil
}

func (a admin) uiProject(p catalog.Project) (ui.Project, error) {
	out := ui.Project{Name: p.ID, Tenant: p.Tenant, Rules: a.uiRules(limits.LevelProject, p.ID, p.Rules)}
	all, err := a.keys.List()
	for _, k := range all {
		if k.Project == p.ID {
			out.Keys = append(out.Keys, k.Name)
		}
	}
	slices.Sort(out.Keys)
	return out, err
}

func (a admin) projectAnswer(ctx context.Context, p catalog.Project) (ui.ProjectAnswer, error) {
	out, err := a.uiProject(p)
	return ui.ProjectAnswer{Project: out}, errors.Join(err, a.offer(ctx))
}

// NewProject makes a project.
func (a admin) NewProject(ctx context.Context, r ui.ProjectRequest) (ui.ProjectAnswer, error) {
	p := catalog.Project{ID: r.Name}
	if r.Tenant != nil {
		p.Tenant = *r.Tenant
	}
	err := changeRules(&p.Rules, r.RulesChange)
	if err == nil {
		p, err = a.catalog.CreateProject(p)
	}
	if err != nil {
		return ui.ProjectAnswer{}, explainGroup(err, "project", r.Name)
	}
	return a.projectAnswer(ctx, p)
}

// SetProject changes a project.
func (a admin) SetProject(ctx context.Context, r ui.ProjectRequest) (ui.ProjectAnswer, error) {
	var after catalog.Project
	err := a.catalog.UpdateProject(r.Name, func(p *catalog.Project) error {
		if r.Tenant != nil {
			p.Tenant = *r.Tenant
		}
		err := changeRules(&p.Rules, r.RulesChange)
		after = *p
		return err
	})
	if err != nil {
		return ui.ProjectAnswer{}, explainGroup(err, "project", r.Name)
	}
	return a.projectAnswer(ctx, after)
}

// RemoveProject ends a project that has no key.
func (a admin) RemoveProject(ctx context.Context, r ui.Named) (ui.Named, error) {
	if err := a.catalog.RemoveProject(r.Name); err != nil {
		return ui.Named{}, explainGroup(err, "project", r.Name)
	}
	return ui.Named{Name: r.Name}, a.offer(ctx)
}

func explainGroup(err error, kind, name string) error {
	hint := fmt.Sprintf("llmgw %ss ls lists them", kind)
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("there is no %s %q", kind, name), Hint: hint, Err: err}
	case errors.Is(err, catalog.ErrTaken):
		return &ui.Error{Kind: ui.Conflict, Message: fmt.Sprintf("a %s %q exists", kind, name), Hint: fmt.Sprintf("change it with: llmgw %ss set %s", kind, name), Err: err}
	case errors.Is(err, catalog.ErrInUse):
		return &ui.Error{Kind: ui.Conflict, Code: "in_use", Message: err.Error(), Hint: "move or remove what counts for it first", Err: err}
	}
	return explainAccess(err, fmt.Sprintf("llmgw %ss --help", kind))
}

// Prices lists the price table.
func (a admin) Prices(context.Context) ([]ui.Price, error) {
	list, err := a.catalog.Prices()
	if err != nil {
		return nil, err
	}
	out := make([]ui.Price, 0, len(list))
	for _, p := range list {
		out = append(out, uiPrice(p))
	}
	return out, nil
}

func uiPrice(p catalog.Price) ui.Price {
	out := ui.Price{Model: p.Model, Provider: p.Provider}
	for _, kind := range catalog.PriceKinds() {
		if micros, ok := p.Micros[kind]; ok {
			out.Micros = append(out.Micros, ui.Micro{Kind: string(kind), Value: micros})
		}
	}
	return out
}

// SetPrice sets the prices that it names.
func (a admin) SetPrice(ctx context.Context, r ui.Price) (ui.PriceAnswer, error) {
	p := catalog.Price{Model: r.Model, Provider: r.Provider, Micros: map[catalog.PriceKind]uint64{}}
	for _, m := range r.Micros {
		p.Micros[catalog.PriceKind(m.Kind)] = m.Value
	}
	if err := a.catalog.SetPrice(p); err != nil {
		return ui.PriceAnswer{}, explainAccess(err, "llmgw prices set --help")
	}
	all, err := a.Prices(ctx)
	if err != nil {
		return ui.PriceAnswer{}, err
	}
	after := ui.PriceAnswer{Price: r}
	for _, row := range all {
		if row.Model == catalog.FoldName(r.Model) && row.Provider == catalog.FoldName(r.Provider) {
			after.Price = row
		}
	}
	return after, a.offer(ctx)
}

// RemovePrice takes a row out of the price table.
func (a admin) RemovePrice(ctx context.Context, r ui.Price) (ui.PriceAnswer, error) {
	err := a.catalog.UnsetPrice(r.Model, r.Provider)
	if errors.Is(err, catalog.ErrNotFound) {
		return ui.PriceAnswer{}, &ui.Error{Kind: ui.NotFound, Message: "no such row is in the price table", Hint: "llmgw prices ls lists them", Err: err}
	}
	if err != nil {
		return ui.PriceAnswer{}, explainAccess(err, "llmgw prices unset --help")
	}
	return ui.PriceAnswer{Price: ui.Price{Model: r.Model, Provider: r.Provider}}, a.offer(ctx)
}
