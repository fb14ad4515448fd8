package node

import (
	"context"
	"time"

	"llmgw/fetch"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// Engines lists the engines of all nodes that are heard.
func (a admin) Engines(context.Context) ([]ui.Engine, error) {
	v := a.view.Load()
	var out []ui.Engine
	for _, n := range v.nodes {
		engines := n.Presence.Engines
		if n.State == mesh.StateSelf {
			engines, _ = a.engines.get()
		}
		for _, e := range engines {
			out = append(out, engineOf(v, n.ID, e))
		}
	}
	return out, nil
}

func engineOf(v *view, node string, e catalog.EngineInfo) ui.Engine {
	return ui.Engine{Node: node, NodeName: v.name(node), Name: e.Name, Version: e.Version, From: e.From, Path: e.Path, Build: e.Build}
}

// InstallEngine gets an engine onto this node.
func (a admin) InstallEngine(ctx context.Context, r ui.InstallRequest, progress func(ui.Progress)) (ui.Engine, error) {
	info, err := a.installer.Install(ctx, r.Engine, func(p fetch.Progress) { progress(ui.Progress(p)) })
	if err != nil {
		return ui.Engine{}, explainInstall(err)
	}
	a.engines.set(a.installer.Installed(ctx))
	return engineOf(a.view.Load(), a.mesh.Self(), info), a.refresh()
}

// Nodes lists the members and the boxes seen beside them.
func (a admin) Nodes(context.Context) ([]ui.Node, []ui.Sighting, error) {
	v := a.view.Load()
	nodes := make([]ui.Node, 0, len(v.nodes))
	for _, n := range v.nodes {
		nodes = append(nodes, nodeOf(v, n))
	}
	var seen []ui.Sighting
	for _, s := range a.mesh.Sightings() {
		seen = append(seen, ui.Sighting{ID: s.ID, Name: s.Name, Addresses: s.Addrs, Reason: s.Reason})
	}
	return nodes, seen, nil
}

func nodeOf(v *view, n mesh.Node) ui.Node {
	p := n.Presence
	said := v.settings[n.ID]
	out := ui.Node{
		Labels: pairs(said.Labels), Location: said.Location, Cordoned: said.Cordoned, Draining: said.Draining, CordonedDevices: said.CordonedDevices,
		ID: n.ID, Name: v.name(n.ID), Role: string(n.Role), State: string(n.State), Version: p.Version, Path: n.Path, API: p.API,
		Stopping: p.Stopping, DiskFree: p.DiskFree, Mismatch: n.Mismatch,
		Hardware: ui.Hardware{Arch: p.Inventory.Arch, OS: p.Inventory.OS, Threads: known(p.Inventory.Threads),
			RAMTotal: p.Inventory.RAMTotal, RAMFree: p.Inventory.RAMFree, Notes: p.Inventory.Notes},
	}
	if n.Heard && n.State != mesh.StateSelf {
		out.LastContactSeconds, out.SkewSeconds = secondsOf(n.LastHeard), secondsOf(n.Skew)
	}
	if n.RoundTrip > 0 {
		ms := n.RoundTrip.Seconds() * 1000
		out.RoundTripMS = &ms
	}
	if n.Synced {
		out.LastSyncSeconds = secondsOf(n.LastSync)
	}
	out.RemembersDeletions = n.Blocks
	for _, d := range p.Inventory.Devices {
		out.Hardware.Devices = append(out.Hardware.Devices, ui.Device{ID: d.ID, Kind: string(d.Kind), Name: d.Name,
			MemoryTotal: d.MemoryTotal, MemoryFree: d.MemoryFree, BusyPercent: d.BusyPercent, Celsius: d.Celsius})
	}
	for _, e := range p.Engines {
		out.Engines = append(out.Engines, engineOf(v, n.ID, e))
	}
	for _, f := range p.Fetches {
		fetch := ui.Fetch{Source: f.Source, As: f.As, Phase: f.Phase, Done: f.Done}
		if f.Total > 0 {
			fetch.Total = &f.Total
		}
		out.Fetches = append(out.Fetches, fetch)
	}
	return out
}

func secondsOf(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}
