package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmgw/engines"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/ui"
)

func (p *plan) models(d document) error {
	if d.Models == nil {
		return nil
	}
	models, err := p.catalog.Models()
	if err != nil {
		return err
	}
	errs := []error{}
	named := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.Models)) {
		named[catalog.FoldName(name)] = true
		i := slices.IndexFunc(models, func(m catalog.Model) bool { return m.ID == catalog.FoldName(name) })
		if i < 0 {
			errs = append(errs, p.create(name, d.Models[name]))
			continue
		}
		errs = append(errs, p.change(models[i], d.Models[name]))
	}
	for _, m := range models {
		if !p.prune || named[m.ID] || p.view.declared(m) {
			continue
		}
		p.changes = append(p.changes, ui.Change{Action: ui.ActionDelete, Kind: "model", Name: m.Name})
		p.writes = append(p.writes, func() error { return p.catalog.DeleteModel(m.ID) })
	}
	return errors.Join(errs...)
}

func (p *plan) create(name string, d modelDoc) error {
	if err := catalog.CheckName(name); err != nil {
		return err
	}
	if d.Source == nil || d.Source.Digest == "" || d.Source.Format == "" {
		return fmt.Errorf("model %q is not in the catalog, and its source has no digest and format; get it first: llmgw pull SOURCE --as %s", name, name)
	}
	pin, err := p.pinOf(d)
	m := catalog.Model{Name: name, State: catalog.ModelServed}
	d.apply(&m, pin, true)
	if err := errors.Join(err, checkModel(m)); err != nil {
		return err
	}
	p.changes = append(p.changes, ui.Change{Action: ui.ActionCreate, Kind: "model", Name: name, After: m.Source.URI})
	p.writes = append(p.writes, func() error { return p.catalog.CreateModel(m) })
	return nil
}

func (p *plan) change(have catalog.Model, d modelDoc) error {
	if d.Source != nil && d.Source.Digest == "" && d.Source.URI != have.Source.URI {
		return fmt.Errorf("model %q has source %s; another needs its digest and format too", have.Name, have.Source.URI)
	}
	pin, err := p.pinOf(d)
	want := copyModel(have)
	d.apply(&want, pin, p.prune)
	if err := errors.Join(err, checkModel(want)); err != nil {
		return err
	}
	if !p.differ("model", have.Name, modelFields(p.view, have), modelFields(p.view, want)) {
		return nil
	}
	if p.view.declared(have) {
		return p.declaredError(p.view, have)
	}
	p.writes = append(p.writes, func() error {
		return p.catalog.UpdateModel(have.ID, func(m *catalog.Model) error { d.apply(m, pin, p.prune); return nil })
	})
	return nil
}

// copyModel shares no slice with m.
func copyModel(m catalog.Model) catalog.Model {
	m.Aliases, m.Profiles = slices.Clone(m.Aliases), slices.Clone(m.Profiles)
	return m
}

// checkModel checks what the catalog does, and flags by their engine.
func checkModel(m catalog.Model) error {
	if err := catalog.CheckModel(m); err != nil {
		return err
	}
	adapters := engines.Adapters()
	for _, p := range m.Profiles {
		adapter, ok := adapters[p.Engine]
		if !ok {
			return &catalog.ModelError{Model: m.Name, Field: "profile " + p.ID, Why: fmt.Sprintf("names the engine %q; there are %s", p.Engine, strings.Join(slices.Sorted(maps.Keys(adapters)), ", "))}
		}
		if !slices.Contains(adapter.Formats(), m.Source.Format) {
			return &catalog.ModelError{Model: m.Name, Field: "profile " + p.ID, Why: fmt.Sprintf("names the engine %s, which does not read the format %q", p.Engine, m.Source.Format)}
		}
		if err := adapter.Validate(p, nil); err != nil {
			return &catalog.ModelError{Model: m.Name, Field: "profile " + p.ID, Why: "cannot be used: " + err.Error()}
		}
	}
	return nil
}

// pinOf is the peer ID that a document's pin means. One that is no member's may
// be a box that is yet to join.
func (p *plan) pinOf(d modelDoc) (string, error) {
	if d.Pin == nil || *d.Pin == "" {
		return "", nil
	}
	return p.nodeID(*d.Pin)
}

func (p *plan) nodeID(name string) (string, error) {
	id, known, err := p.view.member(name)
	if err == nil && !known {
		p.warnings = append(p.warnings, name+" is no member yet; what is said of it waits")
	}
	return id, err
}

// member is the peer ID of who is called so. A peer ID of no member is taken as
// it is, and known is false.
func (v *view) member(name string) (id string, known bool, err error) {
	var found []string
	for _, n := range v.nodes {
		switch {
		case n.ID == name:
			return n.ID, true, nil
		case n.State != mesh.StateLeft && catalog.FoldName(n.Name) == catalog.FoldName(name):
			found = append(found, n.ID)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], true, nil
	case len(found) > 1:
		return "", false, fmt.Errorf("%d members are named %q; write the peer ID: %s", len(found), name, strings.Join(found, ", "))
	case isPeerID(name):
		return name, false, nil
	}
	return "", false, unknownNode(v, name)
}

// isPeerID: ed25519 peer IDs are of one length and begin alike.
func isPeerID(text string) bool { return len(text) == 52 && strings.HasPrefix(text, "12D3KooW") }

// modelFields are the settings of a model as a diff shows them.
func modelFields(v *view, m catalog.Model) []field {
	out := []field{
		{"source", m.Source.URI}, {"digest", m.Source.Digest}, {"state", string(m.State)},
		{"scale.min", fmt.Sprint(m.Scale.Min)}, {"scale.max", fmt.Sprint(m.Scale.Max)}, {"scale.idle", m.Scale.Idle.String()},
		{"pin", v.spell(m.Pin)}, {"limits.context", fmt.Sprint(m.Limits.Context)}, {"limits.max_output", fmt.Sprint(m.Limits.MaxOutput)},
		{"limits.end_repetition", fmt.Sprint(m.Limits.EndRepetition)},
		{"require", strings.Join(pairs(m.Labels.Require), ",")}, {"forbid", strings.Join(pairs(m.Labels.Forbid), ",")},
		{"aliases", strings.Join(m.Aliases, ",")}, {"source details", fmt.Sprint(m.Source)},
	}
	for _, p := range m.Profiles {
		out = append(out, field{"profile " + p.ID, fmt.Sprintf("engine %s, args %q, context %d, parallel %d, embeddings %t, priority %d, weight %v",
			p.Engine, p.Args, p.Context, p.Parallel, p.Embeddings, p.Priority, p.Weight)})
	}
	return out
}
