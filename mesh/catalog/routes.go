package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// NamespaceRoutes holds the names that stand for models.
const NamespaceRoutes = "routes"

// Route is a name that stands for one or more models. With one target and
// parameters it is a preset: it shares the target's replicas and cache.
type Route struct {
	ID      string    `json:"id"`      // the folded name; the row's key
	Name    string    `json:"name"`    // as the user spelled it
	Targets []string  `json:"targets"` // models in order, each by name or as model@node
	Rule    RouteRule `json:"rule"`
	Params  Params    `json:"params"`
}

// RouteRule says which target of a route is taken. Targets that cannot do what
// a request asks for are left out under each of them.
type RouteRule string

const (
	// RuleFirst takes the first target that is loaded or can be loaded.
	RuleFirst RouteRule = "first"
	// RuleLoaded takes the first target that is loaded, and loads none.
	RuleLoaded RouteRule = "loaded-only"
	// RuleBalance takes among the replicas of all loaded targets the one that
	// answers first.
	RuleBalance RouteRule = "balance"
)

// RouteRules are all rules, the default first.
func RouteRules() []RouteRule { return []RouteRule{RuleFirst, RuleLoaded, RuleBalance} }

// Params are what a route does to the parameters of a request. Values are JSON.
type Params struct {
	Default map[string]json.RawMessage `json:"default,omitempty"` // set where the request has none
	Force   map[string]json.RawMessage `json:"force,omitempty"`   // set whatever the request has
	Strip   []string                   `json:"strip,omitempty"`   // taken out
}

// IsZero says that requests stay as they are.
func (p Params) IsZero() bool { return len(p.Default)+len(p.Force)+len(p.Strip) == 0 }

// RouteError says why a route cannot be kept.
type RouteError struct{ Name, Why string }

func (e *RouteError) Error() string { return fmt.Sprintf("route %q: %s", e.Name, e.Why) }

const (
	maxTargets = 32
	maxParams  = 64
	// maxParamBytes is room for a JSON schema.
	maxParamBytes = 16 << 10
)

// keptParams decide what a request is and where it goes: they are the client's.
var keptParams = []string{"model", "stream", "messages", "prompt", "input"}

// SplitTarget takes a name of the form model@node apart.
func SplitTarget(name string) (model, node string) {
	model, node, _ = strings.Cut(name, "@")
	return model, node
}

func checkRoute(r Route) error {
	fail := func(format string, args ...any) error { return &RouteError{r.Name, fmt.Sprintf(format, args...)} }
	switch {
	case len(r.Targets) == 0:
		return fail("names no model to go to")
	case len(r.Targets) > maxTargets:
		return fail("has more than %d targets", maxTargets)
	case r.Rule != "" && !slices.Contains(RouteRules(), r.Rule):
		return fail("the rule %q is none of %v", r.Rule, RouteRules())
	}
	for _, target := range r.Targets {
		model, node := SplitTarget(target)
		if err := CheckName(model); err != nil {
			return fail("target %q: %v", target, err)
		}
		if strings.Contains(target, "@") && node == "" {
			return fail("target %q names no node after the @", target)
		}
	}
	if err := checkParams(r.Params, fail); err != nil {
		return err
	}
	if cell, why := checkCells(map[string]any{cellRecord: r}); why != "" {
		return fail("its %s %s", cell, why)
	}
	return nil
}

func checkParams(p Params, fail func(string, ...any) error) error {
	if len(p.Default)+len(p.Force)+len(p.Strip) > maxParams {
		return fail("has more than %d parameters", maxParams)
	}
	check := func(name string, value json.RawMessage) error {
		switch {
		case name == "" || len(name) > 64 || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == '"' || c == '\\' || c > '~' }):
			return fail("%q is no name of a parameter", name)
		case slices.Contains(keptParams, name):
			return fail("the parameter %s is the client's to set", name)
		case value != nil && (len(value) > maxParamBytes || !json.Valid(value)):
			return fail("the value of %s is no JSON of at most %d bytes", name, maxParamBytes)
		}
		return nil
	}
	for _, set := range []map[string]json.RawMessage{p.Default, p.Force} {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if set[name] == nil {
				return fail("the parameter %s has no value", name)
			}
			if err := check(name, set[name]); err != nil {
				return err
			}
		}
	}
	for _, name := range p.Strip {
		if err := check(name, nil); err != nil {
			return err
		}
		if _, forced := p.Force[name]; forced {
			return fail("the parameter %s is both forced and taken out", name)
		}
	}
	return nil
}

// PutRoute writes a route, or replaces it whole. What cannot be kept, or has the
// name of a model, is a *RouteError or *NameError. A route or model of that name that
// cannot be read is an *UnreadableError.
func (c *Catalog) PutRoute(r Route) error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if r.Rule == "" {
		r.Rule = RuleFirst
	}
	if err := checkRoute(r); err != nil {
		return err
	}
	r.ID = FoldName(r.Name)
	_, err := c.store.Update(func(tx *store.Tx) error {
		models, err := c.Models() // here, so that none takes the name meanwhile
		if err != nil {
			return err
		}
		if m, taken := Resolve(models, r.Name); taken {
			return &RouteError{r.Name, fmt.Sprintf("the model %s has this name already", m.Name)}
		}
		if err := readable(tx, modelKey(r.ID), modelFromRow); err != nil {
			return err
		}
		key := crdt.NewKey(NamespaceRoutes, r.ID)
		if err := readable(tx, key, routeFromRow); err != nil {
			return err
		}
		return set(tx, key, cellRecord, r)
	})
	if err != nil {
		return fmt.Errorf("write route %q: %w", r.Name, err)
	}
	return nil
}

// Routes lists the routes, ordered by ID, without those that cannot be read.
func (c *Catalog) Routes() ([]Route, error) {
	out, err := listRows(c, NamespaceRoutes, routeFromRow)
	slices.SortFunc(out, func(a, b Route) int { return strings.Compare(a.ID, b.ID) })
	return out, err
}

func routeFromRow(key crdt.Key, row crdt.Row) (Route, error) {
	parts, err := keyParts(key, "route", 1)
	if err != nil {
		return Route{}, unreadable(key, row, err)
	}
	var r Route
	if err := decode(row, cellRecord, &r); err != nil {
		return Route{}, unreadable(key, row, err)
	}
	r.ID = parts[0]
	return r, nil
}

// DeleteRoute removes a route by name, without case; ErrNotFound if there is none.
func (c *Catalog) DeleteRoute(name string) error {
	if err := CheckName(name); err != nil {
		return errors.Join(ErrNotFound, err)
	}
	return c.deleteRecord(NamespaceRoutes, FoldName(name))
}

// ResolveRoute finds a route by name, without case.
func ResolveRoute(routes []Route, name string) (Route, bool) {
	folded := FoldName(name)
	i := slices.IndexFunc(routes, func(r Route) bool { return r.ID == folded })
	if i < 0 {
		return Route{}, false
	}
	return routes[i], true
}
