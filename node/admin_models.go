package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"llmgw/fetch"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/mesh/placement"
	"llmgw/ui"
)

// Models lists the catalog with where each model is served.
func (a admin) Models(context.Context) ([]ui.Model, error) {
	v := a.view.Load()
	out := make([]ui.Model, 0, len(v.models))
	for _, m := range v.models {
		out = append(out, a.model(v, m))
	}
	return out, nil
}

func (a admin) model(v *view, m catalog.Model) ui.Model {
	profile := bestProfile(m)
	context, need := m.ContextTokens(profile), m.MemoryNeed(profile)
	size := m.Source.SizeBytes
	out := ui.Model{
		ID: m.ID, Name: m.Name, Aliases: m.Aliases, Source: m.Source.URI, Digest: m.Source.Digest, SizeBytes: &size,
		Format: m.Source.Format, Architecture: m.Source.Architecture, State: string(m.State), Wanted: m.Scale.Min, Max: m.Scale.Max, IdleSeconds: int64(m.Scale.Idle / time.Second),
		Embeddings: profile.Embeddings, Context: &context, MemoryNeed: &need,
	}
	out.Require, out.Forbid = pairs(m.Labels.Require), pairs(m.Labels.Forbid)
	if m.Pin != "" {
		out.Pin = v.name(m.Pin)
	}
	if v.declared(m) {
		out.DeclaredOn, out.DeclaredIn = v.name(m.Declared.Node), m.Declared.File
	}
	for _, n := range v.nodes {
		if !isLive(n) {
			continue
		}
		if slices.Contains(n.Presence.Weights, m.Source.Digest) {
			out.OnDisk = append(out.OnDisk, v.name(n.ID))
		}
		if slices.ContainsFunc(n.Presence.Replicas, func(r catalog.ReplicaStatus) bool { return r.Model == m.ID && r.State == catalog.ReplicaReady }) {
			out.LoadedOn = append(out.LoadedOn, v.name(n.ID))
		}
	}
	out.Loaded = len(out.LoadedOn) > 0
	out.Problem, out.Fix = problemOf(v, m, out.Loaded)
	return out
}

// bestProfile is the profile that figures for a person are told of.
func bestProfile(m catalog.Model) catalog.Profile {
	p, _ := placement.DefaultProfile(m.Source.Format)
	for i, candidate := range m.Profiles {
		if i == 0 || candidate.Priority > p.Priority {
			p = candidate
		}
	}
	return p
}

// problemOf says why a wanted model is not served and what to do.
func problemOf(v *view, m catalog.Model, loaded bool) (problem, fix string) {
	d, ok := v.decision(m.ID)
	wanted := m.Scale.Min > 0 || ok && (d.Unsatisfied || d.Owner != "")
	if loaded || !wanted || m.State == catalog.ModelStopped {
		return "", ""
	}
	switch {
	case !ok:
		return "no decision was taken about it yet", ""
	case d.Unsatisfied:
		return d.Reason, fixFor(d.Reason)
	}
	holder, ok := v.node(d.Owner)
	if !ok {
		return "its node " + v.name(d.Owner) + " is not known here", ""
	}
	r, ok := holder.Presence.Replica(m.ID, d.Slot)
	switch {
	case !isLive(holder):
		return fmt.Sprintf("its node %s does not answer now", v.name(d.Owner)), ""
	case !ok:
		return fmt.Sprintf("%s is about to start it", v.name(d.Owner)), ""
	case r.Reason != "":
		return fmt.Sprintf("%s on %s: %s", r.State, v.name(d.Owner), r.Reason), ""
	}
	return fmt.Sprintf("%s on %s", r.State, v.name(d.Owner)), ""
}

// fixFor takes the command that a reason names in brackets.
func fixFor(reason string) string {
	_, rest, ok := strings.Cut(reason, "(llmgw ")
	if !ok {
		return ""
	}
	command, _, _ := strings.Cut(rest, ")")
	return "llmgw " + command
}

// Replicas lists what runs, on all nodes that are heard.
func (a admin) Replicas(context.Context) ([]ui.Replica, error) {
	v := a.view.Load()
	var out []ui.Replica
	for _, n := range v.nodes {
		if n.State == mesh.StateDead || n.State == mesh.StateLeft {
			continue
		}
		for _, r := range n.Presence.Replicas {
			out = append(out, a.replica(v, n, r))
		}
	}
	slices.SortStableFunc(out, func(x, y ui.Replica) int { return strings.Compare(x.Model, y.Model) })
	return out, nil
}

func (a admin) replica(v *view, n mesh.Node, r catalog.ReplicaStatus) ui.Replica {
	name := r.Model
	if m, ok := catalog.Resolve(v.models, r.Model); ok {
		name = m.Name
	}
	out := ui.Replica{
		Model: name, Slot: r.Slot, Node: n.ID, NodeName: v.name(n.ID), Epoch: r.Epoch, State: string(r.State), Reason: r.Reason,
		LastLines: r.LastLines, Engine: r.Engine, Profile: r.Profile, Device: r.Device, Restarts: r.Restarts, Adopted: r.Adopted,
		Context: known(r.Context), Slots: known(r.Slots), PID: known(r.PID),
	}
	if r.PID != 0 {
		out.InFlight = &r.InFlight
	}
	if seconds := a.now().Unix() - r.Since; r.Since > 0 && seconds >= 0 {
		out.StateSeconds = &seconds
	}
	return out
}

// known is nil for the zero that stands for "not told".
func known(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

func (a admin) resolve(name string) (catalog.Model, error) {
	models, err := a.catalog.Models()
	if err != nil {
		return catalog.Model{}, err
	}
	if m, ok := catalog.Resolve(models, name); ok {
		return m, nil
	}
	hint := "the catalog is empty; get a model with: llmgw pull SOURCE --as NAME"
	if len(models) > 0 {
		names := make([]string, len(models))
		for i, m := range models {
			names[i] = m.Name
		}
		hint = "there are: " + strings.Join(names, ", ")
	}
	return catalog.Model{}, &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("no model is named %q", name), Hint: hint}
}

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
	a.retry(m.ID)
	if err := a.offer(ctx); err != nil {
		return ui.LoadResult{}, err
	}
	result.NodeName, result.Reason = a.expect(m.ID)
	return result, nil
}

// loadOnDemand loads a model as a request would: it stays until it is idle.
func (a admin) loadOnDemand(ctx context.Context, m catalog.Model, r ui.LoadRequest, result ui.LoadResult) (ui.LoadResult, error) {
	if r.Node != "" {
		return ui.LoadResult{}, &ui.Error{Kind: ui.BadInput, Message: "a model that is loaded on demand goes where it fits, not to a node of choice", Hint: "leave out --node or --on-demand"}
	}
	if err := a.wantOnce(m); err != nil {
		return ui.LoadResult{}, err
	}
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

// Unload asks for no replica.
func (a admin) Unload(ctx context.Context, r ui.UnloadRequest) (ui.UnloadResult, error) {
	m, err := a.resolve(r.Model)
	if err != nil {
		return ui.UnloadResult{}, err
	}
	err = a.edit(m, func(m *catalog.Model) error { m.Scale.Min, m.Pin = 0, ""; return nil })
	if err != nil {
		return ui.UnloadResult{}, err
	}
	a.wants.end(func(o oneWant) bool { return o.model == m.ID })
	return ui.UnloadResult{Model: m.Name}, errors.Join(a.vacateDemand(m.ID), a.offer(ctx))
}

// vacateDemand takes away the slots that requests had asked for: the model's
// settings do not say that they should end.
func (a admin) vacateDemand(model string) error {
	all, err := a.catalog.Assignments()
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Model != model || s.Owner == "" || !s.Demand {
			continue
		}
		vacant := catalog.Assignment{Model: model, Slot: s.Slot, Epoch: s.Epoch + 1, Steward: a.mesh.Self(), Reason: "unloaded"}
		if err := a.catalog.PutAssignment(vacant); err != nil {
			return err
		}
	}
	return nil
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
