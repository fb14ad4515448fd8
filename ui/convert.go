package ui

import (
	"time"

	"llmgw/mesh/catalog"
)

// HardwareOf turns an inventory of a presence into what the API shows.
func HardwareOf(inv catalog.Inventory) Hardware {
	h := Hardware{
		Arch: inv.Arch, OS: inv.OS, Threads: known(inv.Threads),
		RAMTotal: inv.RAMTotal, RAMFree: inv.RAMFree, Notes: inv.Notes,
	}
	for _, d := range inv.Devices {
		h.Devices = append(h.Devices, Device{
			ID: d.ID, Kind: string(d.Kind), Name: d.Name, MemoryTotal: d.MemoryTotal,
			MemoryFree: d.MemoryFree, BusyPercent: d.BusyPercent, Celsius: d.Celsius,
		})
	}
	return h
}

// EngineOf turns an engine of a presence into what the API shows.
func EngineOf(node, nodeName string, e catalog.EngineInfo) Engine {
	return Engine{
		Node: node, NodeName: nodeName, Name: e.Name, Version: e.Version,
		From: e.From, Path: e.Path, Build: e.Build,
	}
}

// FetchOf turns a download of a presence into what the API shows.
func FetchOf(f catalog.FetchStatus) Fetch {
	return Fetch{Source: f.Source, As: f.As, Phase: f.Phase, Done: f.Done, Total: known(f.Total)}
}

// ReplicaOf turns a replica of a presence into what the API shows. Its age is
// by now, which may be another clock than the holder's: a start in the future
// is an unknown age.
func ReplicaOf(node, nodeName, modelName string, r catalog.ReplicaStatus, now time.Time) Replica {
	out := Replica{
		Model: modelName, Slot: r.Slot, Node: node, NodeName: nodeName, Epoch: r.Epoch,
		State: string(r.State), Reason: r.Reason, LastLines: r.LastLines, Engine: r.Engine,
		Profile: r.Profile, Device: r.Device, Context: known(r.Context), Slots: known(r.Slots),
		Restarts: r.Restarts, Adopted: r.Adopted, PID: known(r.PID),
	}
	if age := now.Unix() - r.Since; r.Since > 0 && age >= 0 {
		out.StateSeconds = &age
	}
	// Only a process has requests in flight; for it, none is a measured zero.
	if r.PID > 0 {
		out.InFlight = &r.InFlight
	}
	return out
}
