package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"llmgw/fetch"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/mesh/placement"
	"llmgw/ui"
)

// Load asks for one replica, on a node of the caller's choice if one is named.
func (a admin) Load(ctx context.Context, r ui.LoadRequest) (ui.LoadResult, error) {
	m, err := a.resolve(r.Model)
	if err != nil {
		return ui.LoadResult{}, err
	}
	result := ui.LoadResult{Model: m.Name}
	if r.OnDemand {
		return a.loadOnDemand(ctx, m, r, result)
	}
	pin := m.Pin
	if r.Node != "" {
		warning := ""
		if pin, warning, err = a.pin(m, r.Node); err != nil {
			return ui.LoadResult{}, err
		}
		if warning != "" {
			result.Warnings = append(result.Warnings, warning)
		}
	}
	err = a.edit(m, func(m *catalog.Model) error {
		m.Scale.Min, m.Scale.Max, m.Pin, m.State = max(m.Scale.Min, 1), max(m.Scale.Max, 1), pin, catalog.ModelServed
		return nil
	})
	if err != nil {
		return ui.LoadResult{}, err
	}
	return a.loading(ctx, m, result)
}

// loadOnDemand loads a model as a request would: it stays until it is idle.
func (a admin) loadOnDemand(ctx context.Context, m catalog.Model, r ui.LoadRequest, result ui.LoadResult) (ui.LoadResult, error) {
	if r.Node != "" {
		return ui.LoadResult{}, &ui.Error{Kind: ui.BadInput, Message: "a model that is loaded on demand goes where it fits, not to a node of choice", Hint: "leave out --node or --on-demand"}
	}
	if err := a.wantOnce(m); err != nil {
		return ui.LoadResult{}, err
	}
	return a.loading(ctx, m, result)
}

// loading tells what was just asked for, and where it will be.
func (a admin) loading(ctx context.Context, m catalog.Model, result ui.LoadResult) (ui.LoadResult, error) {
	a.retry(m.ID)
	if err := a.offer(ctx); err != nil {
		return ui.LoadResult{}, err
	}
	result.NodeName, result.Reason = a.expect(m.ID)
	return result, nil
}

// retry gives replicas of the model that were given up here another chance.
func (a admin) retry(model string) {
	for _, r := range a.supervisor.Status() {
		if r.Model == model && (r.State == catalog.ReplicaQuarantined || r.State == catalog.ReplicaFailed) {
			a.supervisor.Retry(r.Model, r.Slot)
		}
	}
}

// pin checks a node that shall hold a model. One that is unknown or cannot run
// the format is refused; one that is away is taken with a warning.
func (a admin) pin(m catalog.Model, node string) (id, warning string, err error) {
	v := a.view.Load()
	n, ok := v.node(node)
	if !ok || n.State == mesh.StateLeft {
		return "", "", unknownNode(v, node)
	}
	if !isLive(n) {
		return n.ID, fmt.Sprintf("%s does not answer now; the model loads when it is back", v.name(n.ID)), nil
	}
	if _, missing, ok := placement.ChooseProfile(m, n.Presence.Engines); !ok {
		return "", "", &ui.Error{Kind: ui.Conflict, Code: "engine_missing",
			Message: fmt.Sprintf("%s cannot run %s: none of its engines %v is installed there", v.name(n.ID), m.Name, missing),
			Hint:    "on that box: llmgw engines install " + strings.Join(missing, " ")}
	}
	return n.ID, "", nil
}

// expect tells what the placement of a changed model will be.
func (a admin) expect(model string) (node, reason string) {
	v := a.view.Load()
	d, ok := v.decision(model)
	if !ok {
		return "", "it is not wanted"
	}
	if d.Owner == "" {
		return "", d.Reason
	}
	return v.name(d.Owner), d.Reason
}

// Unload asks for no replica, and ends what requests have asked for until now.
func (a admin) Unload(ctx context.Context, r ui.UnloadRequest) (ui.UnloadResult, error) {
	m, err := a.resolve(r.Model)
	if err != nil {
		return ui.UnloadResult{}, err
	}
	err = a.catalog.UnloadModel(m.ID, a.undeclared(func(m *catalog.Model) error { m.Scale.Min, m.Pin = 0, ""; return nil }))
	if err != nil {
		return ui.UnloadResult{}, err
	}
	return ui.UnloadResult{Model: m.Name}, a.offer(ctx)
}

// RemoveModel ends a catalog entry; what serves it ends with it.
func (a admin) RemoveModel(ctx context.Context, r ui.RemoveModelRequest) (ui.RemoveModelResult, error) {
	m, err := a.resolve(r.Model)
	if unreadable := (*catalog.UnreadableError)(nil); errors.As(err, &unreadable) {
		id := catalog.FoldName(r.Model)
		return ui.RemoveModelResult{Model: id}, errors.Join(a.catalog.RemoveUnreadable(catalog.NamespaceModels, id), a.offer(ctx))
	}
	if err != nil {
		return ui.RemoveModelResult{}, err
	}
	if v := a.view.Load(); v.declared(m) {
		return ui.RemoveModelResult{}, a.declaredError(v, m)
	}
	if err := a.catalog.DeleteModel(m.ID); err != nil {
		return ui.RemoveModelResult{}, err
	}
	return ui.RemoveModelResult{Model: m.Name}, a.offer(ctx)
}

// Pull gets weights onto this box and writes the catalog entry.
func (a admin) Pull(ctx context.Context, r ui.PullRequest, progress func(ui.Progress)) (ui.Model, error) {
	if err := catalog.CheckName(r.As); err != nil { // before anything is downloaded for it
		return ui.Model{}, explainCatalog(err)
	}
	step, end := a.fetches.begin(r.Source, r.As)
	defer end()
	source, err := a.fetch.Pull(ctx, r.Source, func(p fetch.Progress) {
		step(p)
		progress(ui.Progress(p))
	})
	if err != nil {
		return ui.Model{}, explainFetch(err)
	}
	profile, ok := placement.DefaultProfile(source.Format)
	if !ok {
		return ui.Model{}, fmt.Errorf("no engine reads the format %q", source.Format)
	}
	profile.Embeddings = r.Embeddings
	m := catalog.Model{Name: r.As, Source: source, Profiles: []catalog.Profile{profile}}
	if err := a.catalog.CreateModel(m); err != nil {
		return ui.Model{}, explainCatalog(err)
	}
	if err := a.offer(ctx); err != nil {
		return ui.Model{}, err
	}
	created, err := a.catalog.Model(catalog.FoldName(r.As))
	if err != nil {
		return ui.Model{}, err
	}
	return a.model(a.view.Load(), created), nil
}
