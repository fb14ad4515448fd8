package node

import (
	"context"
	"errors"
	"fmt"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// Routes lists the names that stand for models.
func (a admin) Routes(context.Context) ([]ui.Route, error) {
	routes, err := a.catalog.Routes()
	if err != nil {
		return nil, err
	}
	var out []ui.Route
	for _, r := range routes {
		out = append(out, shownRoute(r))
	}
	return out, nil
}

func shownRoute(r catalog.Route) ui.Route {
	return ui.Route{
		Name: r.Name, Targets: r.Targets, Rule: string(r.Rule),
		Default: r.Params.Default, Force: r.Params.Force, Strip: r.Params.Strip,
	}
}

// SetRoute writes a route or replaces it whole.
func (a admin) SetRoute(ctx context.Context, r ui.Route) (ui.RouteResult, error) {
	route := catalog.Route{
		Name: r.Name, Targets: r.Targets, Rule: catalog.RouteRule(r.Rule),
		Params: catalog.Params{Default: r.Default, Force: r.Force, Strip: r.Strip},
	}
	if err := a.catalog.PutRoute(route); err != nil {
		var bad *catalog.RouteError
		var name *catalog.NameError
		if errors.As(err, &bad) || errors.As(err, &name) {
			return ui.RouteResult{}, &ui.Error{Kind: ui.BadInput, Code: "bad_route", Message: err.Error(), Hint: "llmgw routes set --help"}
		}
		return ui.RouteResult{}, err
	}
	v, err := a.look()
	if err = errors.Join(err, a.offer(ctx)); err != nil {
		return ui.RouteResult{}, err
	}
	kept, _ := catalog.ResolveRoute(v.routes, r.Name)
	return ui.RouteResult{Route: shownRoute(kept), Warnings: v.missingTargets(kept)}, nil
}

// missingTargets says which targets of a route are not there now. They may come.
func (v *view) missingTargets(r catalog.Route) []string {
	var out []string
	for _, target := range r.Targets {
		model, node := catalog.SplitTarget(target)
		if _, ok := catalog.Resolve(v.models, model); !ok {
			out = append(out, fmt.Sprintf("no model is named %q yet: requests pass it over", model))
			continue
		}
		if _, ok := v.node(node); node != "" && !ok {
			out = append(out, fmt.Sprintf("no node is named %q yet: requests pass %s over", node, target))
		}
	}
	return out
}

// RemoveRoute ends a route.
func (a admin) RemoveRoute(ctx context.Context, name string) error {
	if err := a.catalog.DeleteRoute(name); errors.Is(err, catalog.ErrNotFound) {
		return &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("no route is named %q", name), Hint: "llmgw routes lists them"}
	} else if err != nil {
		return err
	}
	_, err := a.look()
	return errors.Join(err, a.offer(ctx))
}
