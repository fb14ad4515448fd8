package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"llmgw/fetch/gguf"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/mesh/placement"
	"llmgw/ui"
)

// pairs writes labels as key=value, sorted.
func pairs(labels map[string]string) []string {
	out := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return out
}

// Why explains where a model is and why not elsewhere.
func (a admin) Why(_ context.Context, r ui.WhyRequest) (ui.WhyResult, error) {
	m, err := a.resolve(r.Model)
	if err != nil {
		return ui.WhyResult{}, err
	}
	v := a.view.Load()
	out := ui.WhyResult{Model: m.Name, State: string(m.State)}
	out.Problem, out.Fix = problemOf(v, m, v.route(m).Loaded)
	for _, e := range placement.Why(v.input, m.ID) {
		slot := ui.WhySlot{Slot: e.Slot, Owner: e.Owner, OwnerID: e.Owner, Unread: e.Unread, Reason: e.Reason, Epoch: e.Epoch, Steward: v.name(e.Steward), Unsatisfied: e.Unsatisfied, Device: e.Device, Demand: e.Demand}
		if e.Owner != "" {
			slot.Owner = v.name(e.Owner)
		}
		for _, c := range e.Candidates {
			slot.Nodes = append(slot.Nodes, ui.Candidate{Node: v.name(c.Node), Why: c.Why, Owns: c.Owns, Serves: c.Serves, Slots: c.Slots})
		}
		out.Slots = append(out.Slots, slot)
	}
	return out, nil
}

// WhatIf tells what a change would do to what is wanted now.
func (a admin) WhatIf(_ context.Context, r ui.WhatIfRequest) (ui.WhatIfResult, error) {
	v := a.view.Load()
	change, err := a.change(v, r)
	if err != nil {
		return ui.WhatIfResult{}, err
	}
	names := maps.Clone(v.names)
	if change.Add != nil {
		names[change.Add.ID] = change.Add.Name
	}
	called := func(id string) string {
		if name := names[id]; name != "" {
			return name
		}
		return id
	}
	var out ui.WhatIfResult
	for _, o := range placement.WhatIf(v.input, change) {
		model := o.Model
		if m, ok := catalog.Resolve(v.models, o.Model); ok {
			model = m.Name
		}
		outcome := ui.Outcome{Model: model, Slot: o.Slot, Before: called(o.Before), After: called(o.After), Effect: string(o.Effect), Reason: o.Reason}
		if o.After != "" && o.After != o.Before {
			outcome.Load = v.loadTime(o.Model, o.After, change.Model)
		}
		out.Outcomes = append(out.Outcomes, outcome)
	}
	return out, nil
}

func (a admin) change(v *view, r ui.WhatIfRequest) (placement.Change, error) {
	var c placement.Change
	for _, name := range r.Without {
		n, ok := v.node(name)
		if !ok {
			return c, unknownNode(v, name)
		}
		c.Without = append(c.Without, n.ID)
	}
	if r.AddBytes > 0 {
		c.Add = imaginary(v, r.AddBytes)
	}
	if r.Model == "" {
		return c, nil
	}
	m, err := a.imagine(r.Model)
	if err != nil {
		return c, err
	}
	c.Model, c.Everywhere = &m, m.Source.Digest == imagined
	return c, nil
}

// imaginary is a box with so much memory that has every engine and every file.
func imaginary(v *view, bytes int64) *placement.Node {
	n := placement.Node{ID: "new box", Name: "new box", Live: true, Presence: catalog.Presence{
		Complete: true, Engines: []catalog.EngineInfo{{Name: catalog.EngineLlamaCpp}, {Name: catalog.EngineSim}}, Inventory: catalog.Inventory{RAMFree: &bytes},
	}}
	for _, m := range v.models {
		n.Presence.Weights = append(n.Presence.Weights, m.Source.Digest)
	}
	return &n
}

// imagined stands for the digest of a file that was not read.
const imagined = "imagined"

// imagine is a model of the catalog as if it were wanted, or one made from a
// file's header.
func (a admin) imagine(name string) (catalog.Model, error) {
	path, isFile := strings.CutPrefix(name, "file:")
	if !isFile {
		m, err := a.resolve(name)
		m.Scale.Min, m.State = max(m.Scale.Min, 1), catalog.ModelServed
		return m, err
	}
	f, err := os.Open(path)
	if err != nil {
		return catalog.Model{}, &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("look at %s: %v", name, err), Err: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return catalog.Model{}, fmt.Errorf("look at %s: %w", name, err)
	}
	header, err := gguf.ReadHeader(f)
	if err != nil {
		return catalog.Model{}, &ui.Error{Kind: ui.BadInput, Message: fmt.Sprintf("look at %s: %v", name, err), Err: err}
	}
	return catalog.Model{ID: name, Name: name, State: catalog.ModelServed, Scale: catalog.Scale{Min: 1, Max: 1}, Source: catalog.Source{
		URI: name, Digest: imagined, SizeBytes: info.Size(), Format: catalog.FormatGGUF, ContextTrain: header.ContextLength(), KVBytesPerToken: header.KVBytesPerToken(2),
	}}, nil
}

func unknownNode(v *view, name string) error {
	names := make([]string, 0, len(v.nodes))
	for _, n := range v.nodes {
		if n.State != mesh.StateLeft {
			names = append(names, v.name(n.ID))
		}
	}
	return &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("no member is named %q", name), Hint: "members are: " + strings.Join(names, ", ")}
}

// SetModel changes a model's settings.
func (a admin) SetModel(ctx context.Context, r ui.ModelRequest) (ui.ModelResult, error) {
	m, err := a.resolve(r.Model)
	if err != nil {
		return ui.ModelResult{}, err
	}
	if err := a.edit(m, func(m *catalog.Model) error { return applyModel(m, r) }); err != nil {
		return ui.ModelResult{}, explainCatalog(err)
	}
	if err := a.offer(ctx); err != nil {
		return ui.ModelResult{}, err
	}
	changed, err := a.catalog.Model(m.ID)
	if err != nil {
		return ui.ModelResult{}, err
	}
	return ui.ModelResult{Model: a.model(a.view.Load(), changed)}, nil
}

func applyModel(m *catalog.Model, r ui.ModelRequest) error {
	put(&m.State, r.State, func(s string) catalog.ModelState { return catalog.ModelState(s) })
	put(&m.Scale.Min, r.Replicas, same)
	put(&m.Scale.Max, r.Max, same)
	put(&m.Scale.Idle, r.IdleSeconds, func(s int64) time.Duration { return time.Duration(s) * time.Second })
	if r.Max == nil {
		m.Scale.Max = max(m.Scale.Max, m.Scale.Min)
	}
	put(&m.Labels.Require, r.Require, noneIsNil)
	put(&m.Labels.Forbid, r.Forbid, noneIsNil)
	put(&m.Limits.Context, r.Context, same)
	put(&m.Limits.MaxOutput, r.MaxOutput, same)
	put(&m.Limits.EndRepetition, r.EndRepetition, same)
	return nil
}

// SetNode changes what is said of a node.
func (a admin) SetNode(ctx context.Context, r ui.NodeRequest) (ui.NodeResult, error) {
	v := a.view.Load()
	n, ok := v.node(r.Node)
	if !ok {
		return ui.NodeResult{}, unknownNode(v, r.Node)
	}
	if err := knownDevices(v, n, r); err != nil {
		return ui.NodeResult{}, err
	}
	err := a.catalog.UpdateNode(n.ID, func(s *catalog.NodeSettings) error {
		for key, value := range r.Labels {
			if value == "" {
				delete(s.Labels, key)
				continue
			}
			s.Labels[key] = value
		}
		if r.Location != nil {
			s.Location = *r.Location
		}
		if r.Cordoned != nil {
			cordon(s, *r.Cordoned, r.Devices)
		}
		if r.Draining != nil {
			s.Draining = *r.Draining
		}
		return nil
	})
	if err != nil {
		return ui.NodeResult{}, explainCatalog(err)
	}
	if err := a.offer(ctx); err != nil {
		return ui.NodeResult{}, err
	}
	return ui.NodeResult{Node: nodeOf(a.view.Load(), n)}, nil
}

// cordon sets or lifts a cordon, of the node or of some of its devices.
func cordon(s *catalog.NodeSettings, cordoned bool, devices []string) {
	if len(devices) == 0 {
		s.Cordoned = cordoned
		return
	}
	s.CordonedDevices = slices.DeleteFunc(s.CordonedDevices, func(d string) bool { return slices.Contains(devices, d) })
	if cordoned {
		s.CordonedDevices = append(s.CordonedDevices, devices...)
	}
}

// knownDevices refuses a device that a node that is heard has not got.
func knownDevices(v *view, n mesh.Node, r ui.NodeRequest) error {
	if r.Cordoned == nil && len(r.Devices) > 0 {
		return &ui.Error{Kind: ui.BadInput, Message: "devices are given, and not whether they are cordoned"}
	}
	var ids []string
	for _, d := range n.Presence.Inventory.Devices {
		ids = append(ids, d.ID)
	}
	for _, id := range r.Devices {
		if isLive(n) && *r.Cordoned && !slices.Contains(ids, id) {
			return &ui.Error{Kind: ui.NotFound, Message: fmt.Sprintf("%s has no device %q", v.name(n.ID), id), Hint: "it has: " + strings.Join(ids, ", ")}
		}
	}
	return nil
}
