package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// Export writes what admins made of this mesh, without secrets: settings, tenants,
// projects, models, prices, routes and what is said of nodes.
func (a admin) Export(context.Context) (ui.Document, error) {
	d, err := a.export()
	if err != nil {
		return ui.Document{}, err
	}
	text, err := d.text()
	return ui.Document{Document: text}, err
}

func (a admin) export() (document, error) {
	models, err1 := a.catalog.Models()
	nodes, err2 := a.catalog.NodeSettings()
	settings, err3 := a.catalog.Settings()
	if err := errors.Join(err1, err2, err3); err != nil {
		return document{}, err
	}
	v := a.view.Load()
	d := document{Version: documentVersion, Settings: map[string]plainText{}, Models: map[string]modelDoc{}, Nodes: map[string]nodeDoc{}}
	for key, value := range settings {
		d.Settings[key] = plainText(value)
	}
	for _, m := range models {
		d.Models[m.Name] = docOf(m, v.spell)
	}
	for id, s := range nodes {
		if s.Unreadable {
			continue
		}
		if len(s.Labels) > 0 || s.Location != "" || s.Cordoned || s.Draining || len(s.CordonedDevices) > 0 {
			d.Nodes[v.spell(id)] = nodeDocOf(s)
		}
	}
	return d, errors.Join(a.exportGroups(&d), a.exportPrices(&d), a.exportRoutes(&d))
}

func nodeDocOf(s catalog.NodeSettings) nodeDoc {
	labels, devices := labelsOf(s.Labels), append([]string{}, s.CordonedDevices...)
	return nodeDoc{Labels: &labels, Location: &s.Location, Cordoned: &s.Cordoned, Draining: &s.Draining, CordonedDevices: &devices}
}

// spell is the name of a node if that means it alone, else its peer ID: a
// document should outlive the identities of boxes.
func (v *view) spell(id string) string {
	named := 0
	for _, n := range v.nodes {
		if n.State != mesh.StateLeft && catalog.FoldName(n.Name) == catalog.FoldName(v.name(id)) {
			named++
		}
	}
	if named == 1 {
		return v.name(id)
	}
	return id
}

// plan is what an apply would do: the changes for a person, and the writes.
type plan struct {
	admin
	view     *view
	prune    bool
	changes  []ui.Change
	warnings []string
	writes   []func() error
}

// Apply makes the mesh as a document says. The whole document is validated
// before the first write.
func (a admin) Apply(ctx context.Context, r ui.ApplyRequest) (ui.ApplyResult, error) {
	d, err := parseDocument(r.Document)
	if err != nil {
		return ui.ApplyResult{}, badDocument(err)
	}
	v, err := a.look() // names of what was just written count
	if err != nil {
		return ui.ApplyResult{}, err
	}
	p := &plan{admin: a, view: v, prune: r.Prune}
	if err := errors.Join(p.settings(d), p.groups(d), p.models(d), p.prices(d), p.routes(d), p.nodes(d)); err != nil {
		return ui.ApplyResult{}, badDocument(err)
	}
	out := ui.ApplyResult{DryRun: r.DryRun, Changes: p.changes, Warnings: p.warnings}
	if r.DryRun || len(p.writes) == 0 {
		return out, nil
	}
	made := p.make()
	// What was written is followed also when the rest was not.
	followed := errors.Join(a.followSettings(), a.offer(ctx))
	if made != nil {
		return ui.ApplyResult{}, made
	}
	return out, followed
}

// make writes in order, up to the first that fails.
func (p *plan) make() error {
	for done, write := range p.writes {
		if err := write(); err != nil {
			return cutShort(err, done, len(p.writes))
		}
	}
	return nil
}

// badDocument makes of all that is wrong one refusal.
func badDocument(err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	return &ui.Error{Kind: ui.BadInput, Code: "bad_document", Message: "the document cannot be applied: " + text, Hint: "nothing was changed", Err: err}
}

// cutShort tells that only the first done of all writes were made.
func cutShort(err error, done, all int) error {
	kind := ui.BadInput
	if errors.Is(err, syscall.ENOSPC) {
		kind = ui.NoSpace
	}
	return &ui.Error{
		Kind: kind, Code: "applied_in_part", Message: fmt.Sprintf("%d of %d changes were made, the next failed: %v", done, all, err),
		Hint: "mend what failed and apply the document again: what is as it says is left alone", Err: err,
	}
}

// field is one setting of something, as text.
type field struct{ name, text string }

// differ notes each field that changes from have to want.
func (p *plan) differ(kind, name string, have, want []field) (changed bool) {
	before := map[string]string{}
	for _, f := range have {
		before[f.name] = f.text
	}
	for _, f := range want {
		if old := before[f.name]; old != f.text {
			p.changes = append(p.changes, ui.Change{Action: ui.ActionChange, Kind: kind, Name: name, Field: f.name, Before: old, After: f.text})
			changed = true
		}
		delete(before, f.name)
	}
	for _, gone := range slices.Sorted(maps.Keys(before)) {
		if before[gone] != "" {
			p.changes = append(p.changes, ui.Change{Action: ui.ActionChange, Kind: kind, Name: name, Field: gone, Before: before[gone]})
			changed = true
		}
	}
	return changed
}

func (p *plan) settings(d document) error {
	if d.Settings == nil {
		return nil
	}
	have, err := p.catalog.Settings()
	if err != nil {
		return err
	}
	want := map[string]string{}
	if !p.prune {
		want = maps.Clone(have)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(d.Settings)) {
		s, ok := catalog.MeshSetting(key)
		if !ok {
			errs = append(errs, &catalog.SettingError{Key: key, Why: "is no setting of the mesh"})
			continue
		}
		value, err := s.Check(string(d.Settings[key]))
		errs = append(errs, err)
		want[key] = value
		if s.Restart && have[key] != value {
			p.warnings = append(p.warnings, key+" is taken by each node when its daemon starts: llmgw restart on each box")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(merged(have, want))) {
		old, had := have[key]
		value, has := want[key]
		if old == value && had == has {
			continue
		}
		p.changes = append(p.changes, ui.Change{Action: action(had, has), Kind: "setting", Name: key, Before: old, After: value})
		p.writes = append(p.writes, func() error { return p.catalog.UpdateSettings(keepOrDrop(key, value, has)) })
	}
	return errors.Join(errs...)
}

func merged(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// keepOrDrop sets one setting of the mesh, or unsets it.
func keepOrDrop(key, value string, keep bool) func(map[string]string) error {
	return func(s map[string]string) error {
		if s[key] = value; !keep {
			delete(s, key)
		}
		return nil
	}
}

func action(had, has bool) string {
	switch {
	case !had:
		return ui.ActionCreate
	case !has:
		return ui.ActionDelete
	}
	return ui.ActionChange
}
