package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
		Limits:     ui.ModelLimits{Context: m.Limits.Context, MaxOutput: m.Limits.MaxOutput, EndRepetition: m.Limits.EndRepetition},
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
		out = append(out, a.hostReplicas(v, n)...)
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
	if r.LoadKnown {
		out.Waiting = &r.Waiting
	}
	if r.KVTokens > 0 {
		out.KVTokens, out.KVUse = &r.KVTokens, &r.KVUse
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
	if _, err := a.catalog.Model(catalog.FoldName(name)); err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return catalog.Model{}, explainUnreadable(err, "llmgw models rm "+name+a.stateDirFlag())
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
