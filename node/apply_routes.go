package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
	"llmgw/ui"

	"go.yaml.in/yaml/v3"
)

// routeDoc is a name that stands for models.
type routeDoc struct {
	Targets *[]string             `yaml:"targets,omitempty"` // models in order, each by name or as model@node
	Rule    *string               `yaml:"rule,omitempty"`
	Default *map[string]jsonValue `yaml:"default,omitempty"` // parameters set where the request has none
	Force   *map[string]jsonValue `yaml:"force,omitempty"`   // set whatever it has
	Strip   *[]string             `yaml:"strip,omitempty"`   // taken out
}

// jsonValue is the value of a request's parameter.
type jsonValue struct{ raw json.RawMessage }

// MarshalYAML writes it as YAML has it.
func (v jsonValue) MarshalYAML() (any, error) { return plainValue(v.json()) }

// plainValue reads JSON; whole numbers are not made floats, which would round them.
func plainValue(raw json.RawMessage) (value any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err = dec.Decode(&value)
	return withNumbers(value), err
}

func withNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String() // beyond what a float holds
		}
		return f
	case []any:
		for i := range v {
			v[i] = withNumbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = withNumbers(v[key])
		}
	}
	return value
}

// UnmarshalYAML takes what JSON can say.
func (v *jsonValue) UnmarshalYAML(n *yaml.Node) error {
	var value any
	err := n.Decode(&value)
	if err == nil {
		v.raw, err = json.Marshal(value)
	}
	if err != nil {
		return fmt.Errorf("line %d: no value of a parameter: %w", n.Line, err)
	}
	return nil
}

// json is null where YAML had a null, which calls no UnmarshalYAML.
func (v jsonValue) json() json.RawMessage {
	if v.raw == nil {
		return json.RawMessage("null")
	}
	return v.raw
}

// plainJSON writes equal values equally, as a document that was exported has them.
func plainJSON(raw json.RawMessage) string {
	if value, err := plainValue(raw); err == nil {
		if plain, err := json.Marshal(value); err == nil {
			return string(plain)
		}
	}
	return string(raw)
}

func (a admin) exportRoutes(d *document) error {
	routes, err := a.catalog.Routes()
	d.Routes = map[string]routeDoc{}
	for _, r := range routes {
		d.Routes[r.Name] = routeDocOf(r)
	}
	return err
}

func routeDocOf(r catalog.Route) routeDoc {
	rule := string(r.Rule)
	values := func(from map[string]json.RawMessage) *map[string]jsonValue {
		out := map[string]jsonValue{}
		for name, raw := range from {
			out[name] = jsonValue{raw}
		}
		return &out
	}
	strip := append([]string{}, r.Params.Strip...)
	return routeDoc{&r.Targets, &rule, values(r.Params.Default), values(r.Params.Force), &strip}
}

// apply makes of a route, which may be none yet, what d wants. With prune, parameters
// that d does not name go.
func (d routeDoc) apply(r catalog.Route, prune bool) catalog.Route {
	put(&r.Targets, d.Targets, func(t []string) []string { return slices.Clone(t) })
	put(&r.Rule, d.Rule, func(s string) catalog.RouteRule { return catalog.RouteRule(s) })
	r.Params.Default = setValues(r.Params.Default, d.Default, prune)
	r.Params.Force = setValues(r.Params.Force, d.Force, prune)
	if d.Strip != nil {
		strip := slices.Clone(*d.Strip)
		if !prune {
			strip = append(strip, r.Params.Strip...)
		}
		slices.Sort(strip)
		r.Params.Strip = slices.Compact(strip)
	}
	return r
}

// setValues keeps a value as it is where the new one says the same.
func setValues(have map[string]json.RawMessage, want *map[string]jsonValue, prune bool) map[string]json.RawMessage {
	if want == nil {
		return have
	}
	out := map[string]json.RawMessage{}
	if !prune {
		maps.Copy(out, have)
	}
	for name, v := range *want {
		out[name] = v.json()
		if old, ok := have[name]; ok && plainJSON(old) == plainJSON(v.json()) {
			out[name] = old
		}
	}
	return out
}

func (p *plan) routes(d document) error {
	if d.Routes == nil {
		return nil
	}
	have, err1 := p.catalog.Routes()
	models, err2 := p.modelsThen(d)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var errs []error
	named := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.Routes)) {
		named[catalog.FoldName(name)] = true
		errs = append(errs, p.route(name, d.Routes[name], have, models))
	}
	for _, r := range have {
		if !p.prune || named[r.ID] {
			continue
		}
		p.changes = append(p.changes, ui.Change{Action: ui.ActionDelete, Kind: "route", Name: r.Name})
		p.writes = append(p.writes, func() error { return p.catalog.DeleteRoute(r.Name) })
	}
	return errors.Join(errs...)
}

func (p *plan) route(name string, doc routeDoc, all []catalog.Route, models []catalog.Model) error {
	before, known := catalog.ResolveRoute(all, name)
	if !known {
		before = catalog.Route{Name: name, Rule: catalog.RuleFirst}
	}
	want := doc.apply(before, p.prune || !known)
	if err := catalog.CheckRoute(want); err != nil {
		return err
	}
	if m, taken := catalog.Resolve(models, name); taken {
		return &catalog.RouteError{Name: name, Why: fmt.Sprintf("the model %s has this name already", m.Name)}
	}
	then := *p.view
	then.models = models
	p.warnings = append(p.warnings, then.missingTargets(want)...)
	p.write("route", before.Name, known, routeFields(before), routeFields(want), func() error {
		// A route is one cell: what another box wrote meanwhile is looked at once more.
		now, err := p.catalog.Routes()
		if err != nil {
			return err
		}
		if r, ok := catalog.ResolveRoute(now, name); ok {
			want = doc.apply(r, p.prune)
		}
		return p.catalog.PutRoute(want)
	})
	return nil
}

// modelsThen are the models that there are once the document is applied, as far as names go.
func (p *plan) modelsThen(d document) ([]catalog.Model, error) {
	have, err := p.catalog.Models()
	if err != nil {
		return nil, err
	}
	named := map[string]modelDoc{}
	for name, doc := range d.Models {
		named[catalog.FoldName(name)] = doc
	}
	var out []catalog.Model
	for _, m := range have {
		doc, ok := named[m.ID]
		if !ok && p.prune && d.Models != nil && !p.view.declared(m) {
			continue
		}
		if ok && doc.Aliases != nil {
			m.Aliases = doc.aliases(m.Aliases, p.prune)
		}
		out = append(out, m)
		delete(named, m.ID)
	}
	for id, doc := range named {
		m := catalog.Model{ID: id, Name: id}
		if doc.Aliases != nil {
			m.Aliases = *doc.Aliases
		}
		out = append(out, m)
	}
	return out, nil
}

func routeFields(r catalog.Route) []field {
	out := []field{{"targets", strings.Join(r.Targets, ",")}, {"rule", string(r.Rule)}, {"strip", strings.Join(r.Params.Strip, ",")}}
	for _, set := range []struct {
		name   string
		values map[string]json.RawMessage
	}{{"default ", r.Params.Default}, {"force ", r.Params.Force}} {
		for _, name := range slices.Sorted(maps.Keys(set.values)) {
			out = append(out, field{set.name + name, plainJSON(set.values[name])})
		}
	}
	return out
}
