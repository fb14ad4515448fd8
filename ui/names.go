package ui

import (
	"context"
	"encoding/json"
)

// RouteAdmin shows and changes the names that stand for models.
type RouteAdmin interface {
	Routes(ctx context.Context) ([]Route, error)
	// SetRoute writes a route or replaces it whole.
	SetRoute(ctx context.Context, r Route) (RouteResult, error)
	RemoveRoute(ctx context.Context, name string) error
}

// Route is a name that stands for models, and what it does to parameters.
type Route struct {
	Name    string                     `json:"name"`
	Targets List[string]               `json:"targets"`           // in order; MODEL or MODEL@NODE
	Rule    string                     `json:"rule"`              // first, loaded-only, balance
	Default map[string]json.RawMessage `json:"default,omitempty"` // set where a request has none
	Force   map[string]json.RawMessage `json:"force,omitempty"`   // set whatever a request has
	Strip   List[string]               `json:"strip"`             // taken out of requests
}

// RouteList is the answer of GET /admin/v1/routes.
type RouteList struct {
	Schema
	Routes List[Route] `json:"routes"`
}

// RouteResult is a route as it is kept.
type RouteResult struct {
	Schema
	Route    Route        `json:"route"`
	Warnings List[string] `json:"warnings"` // such as a target that is not there yet
}

func (u *UI) nameRoutes() []route {
	b := u.cfg.Backend
	return []route{
		{"GET", "routes", session, read(listed(b.Routes, func(l List[Route]) RouteList { return RouteList{Routes: l} }))},
		{"POST", "routes", socketOnly, accept(b.SetRoute)},
		{"DELETE", "routes/{name}", socketOnly, remove("name", b.RemoveRoute)},
	}
}

// Routes lists the names that stand for models.
func (c *Client) Routes(ctx context.Context) (RouteList, error) {
	return get[RouteList](ctx, c, "routes")
}

// SetRoute writes a route.
func (c *Client) SetRoute(ctx context.Context, r Route) (RouteResult, error) {
	return post[RouteResult](ctx, c, "routes", r)
}

// RemoveRoute ends a route.
func (c *Client) RemoveRoute(ctx context.Context, name string) error {
	return c.remove(ctx, "routes", name)
}
