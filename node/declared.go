package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/mesh/placement"
	"llmgw/ui"
)

// declaredModels are the models of this box's config file. This node keeps them
// in the catalog as the file says; nobody edits them elsewhere.
type declaredModels struct {
	file   string
	models map[string]modelDoc // by name as written

	mu      sync.Mutex
	trouble map[string]trouble // why a model is not as declared, by name
}

type trouble struct {
	why string
	at  time.Time
}

func (d *declaredModels) note(name string, err error, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		delete(d.trouble, name)
		return
	}
	if d.trouble == nil {
		d.trouble = map[string]trouble{}
	}
	d.trouble[name] = trouble{err.Error(), now}
}

func (d *declaredModels) failedSince(name string, since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, failed := d.trouble[name]
	return failed && t.at.After(since)
}

// problems lists what keeps declared models from being as declared.
func (d *declaredModels) problems() []ui.Problem {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []ui.Problem
	for _, name := range slices.Sorted(maps.Keys(d.trouble)) {
		out = append(out, ui.Problem{Text: fmt.Sprintf("model %s is not as %s declares it: %s", name, d.file, d.trouble[name].why)})
	}
	return out
}

// declareAgain is how often a model that could not be declared is tried anew.
const declareAgain = 30 * time.Second

// declare keeps the declared models until ctx ends. Pulls are made here, beside
// the control loop, since they take long.
func (n *Node) declare(ctx context.Context) error {
	changed := n.catalog.Watch(catalog.NamespaceModels)
	defer changed.Close()
	members := n.mesh.Changes()
	defer members.Close()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		if n.settled.Load() {
			if err := n.declareAll(ctx); err != nil && ctx.Err() == nil {
				n.log.Error("declared models are not kept", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed.C:
		case <-members.C:
		case <-ticker.C:
		}
	}
}

// declareAll looks at every declared model, but leaves those that failed alone
// for a while.
func (n *Node) declareAll(ctx context.Context) error {
	if err := n.undeclare(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(n.declared.models)) {
		if n.declared.failedSince(name, n.now().Add(-declareAgain)) {
			continue
		}
		err := n.declareModel(ctx, name, n.declared.models[name])
		if ctx.Err() != nil {
			return nil
		}
		n.declared.note(name, err, n.now())
	}
	return nil
}

// declareModel makes one entry as declared, and gets its file onto this disk.
func (n *Node) declareModel(ctx context.Context, name string, d modelDoc) error {
	have, err := n.catalog.Model(catalog.FoldName(name))
	if err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return err
	}
	exists := err == nil
	v := n.view.Load()
	mine := have.Declared.Node == n.mesh.Self()
	if exists && !mine && v.declared(have) {
		return fmt.Errorf("%s declares it too, in %s, and was first", v.name(have.Declared.Node), have.Declared.File)
	}
	source, err := n.declaredSource(ctx, name, d, have)
	if err != nil {
		return err
	}
	if exists && !mine && have.Source.Digest != source.Digest {
		return fmt.Errorf("the catalog has that name with another source, %s", have.Source.URI)
	}
	want, err := n.asDeclared(v, name, d, source)
	if err != nil {
		return err
	}
	if !exists {
		n.log.Info("a declared model is in the catalog", "model", name, "file", n.declared.file)
		return n.catalog.CreateModel(want)
	}
	want.ID, want.Created, want.Unloaded = have.ID, have.Created, have.Unloaded
	if reflect.DeepEqual(normal(want), normal(have)) {
		return nil
	}
	n.log.Info("a model is made as declared", "model", name, "file", n.declared.file)
	return n.catalog.UpdateModel(have.ID, func(m *catalog.Model) error { *m = want; return nil })
}

// normal tells no empty list from none.
func normal(m catalog.Model) catalog.Model {
	m.Aliases, m.Profiles = append([]string(nil), m.Aliases...), append([]catalog.Profile(nil), m.Profiles...)
	for i := range m.Profiles {
		m.Profiles[i].Args = append([]string(nil), m.Profiles[i].Args...)
	}
	m.Labels.Require, m.Labels.Forbid = noneIsNil(m.Labels.Require), noneIsNil(m.Labels.Forbid)
	return m
}

// declaredSource pulls the source unless what the catalog and this disk have is it.
func (n *Node) declaredSource(ctx context.Context, name string, d modelDoc, have catalog.Model) (catalog.Source, error) {
	uri := d.Source.URI
	if pin := d.Source.Digest; pin != "" && !strings.Contains(uri, "#") {
		uri += "#" + strings.Replace(pin, ":", "=", 1)
	}
	if _, here := n.fetch.Path(have.Source.Digest); here && have.Source.URI == d.Source.URI {
		return have.Source, nil
	}
	step, end := n.fetches.begin(uri, name)
	defer end()
	source, err := n.fetch.Pull(ctx, uri, step)
	n.wake()
	if err != nil {
		return catalog.Source{}, err
	}
	source.URI = d.Source.URI
	return source, nil
}

func (n *Node) asDeclared(v *view, name string, d modelDoc, source catalog.Source) (catalog.Model, error) {
	profile, ok := placement.DefaultProfile(source.Format)
	if !ok {
		return catalog.Model{}, fmt.Errorf("no engine reads the format %q", source.Format)
	}
	m := catalog.Model{Name: name, State: catalog.ModelServed, Source: source, Profiles: []catalog.Profile{profile}}
	pin := ""
	if d.Pin != nil && *d.Pin != "" {
		var err error
		if pin, _, err = v.member(*d.Pin); err != nil {
			return catalog.Model{}, err
		}
	}
	d.Source = nil
	d.apply(&m, pin, true)
	m.Declared = catalog.Declaration{Node: n.mesh.Self(), File: n.declared.file}
	return m, checkModel(m)
}

// undeclare lets go of models that this node declared and its file no longer
// does: the entries stay, and can be edited.
func (n *Node) undeclare() error {
	models, err := n.catalog.Models()
	if err != nil {
		return err
	}
	still := map[string]bool{} // by model ID
	for name := range n.declared.models {
		still[catalog.FoldName(name)] = true
	}
	for _, m := range models {
		if m.Declared.Node != n.mesh.Self() || still[m.ID] {
			continue
		}
		n.log.Info("a model is no longer declared; its entry stays", "model", m.Name)
		err := n.catalog.UpdateModel(m.ID, func(m *catalog.Model) error { m.Declared = catalog.Declaration{}; return nil })
		if err != nil {
			return err
		}
	}
	return nil
}

// declared says whether a node's config file owns an entry. A node that is no
// longer a member owns nothing.
func (v *view) declared(m catalog.Model) bool {
	if m.Declared == (catalog.Declaration{}) {
		return false
	}
	n, ok := v.node(m.Declared.Node)
	return ok && n.State != mesh.StateLeft
}

func (n *Node) declaredError(v *view, m catalog.Model) error {
	where := v.name(m.Declared.Node)
	return &ui.Error{Kind: ui.Conflict, Code: "declared_in_file",
		Message: fmt.Sprintf("%s is declared in %s on %s and is changed only there", m.Name, m.Declared.File, where),
		Hint:    fmt.Sprintf("edit %s on %s, then type there: llmgw restart", m.Declared.File, where)}
}

// edit changes a model for an admin, unless a config file owns it and something
// would change.
func (a admin) edit(m catalog.Model, change func(*catalog.Model) error) error {
	return a.catalog.UpdateModel(m.ID, a.undeclared(change))
}

// undeclared is a change that refuses to change what a config file owns.
func (a admin) undeclared(change func(*catalog.Model) error) func(*catalog.Model) error {
	v := a.view.Load()
	return func(m *catalog.Model) error {
		before := normal(*m)
		if err := change(m); err != nil {
			return err
		}
		if v.declared(before) && !reflect.DeepEqual(before, normal(*m)) {
			return a.declaredError(v, before)
		}
		return nil
	}
}
