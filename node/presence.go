package node

import (
	"context"
	"slices"
	"sync"

	"llmgw/fetch"
	"llmgw/mesh/catalog"
)

// presence is what this node tells of itself now.
func (n *Node) presence() catalog.Presence {
	return catalog.Presence{
		Peer: n.mesh.Self(), Name: n.cfg.Name, Version: n.build.Version, API: n.apiAddresses(),
		Inventory: n.hardware.Inventory(context.Background()),
		Engines:   n.engines.get(),
		Replicas:  n.supervisor.Status(),
		Weights:   n.fetch.Digests(),
		Fetches:   n.fetches.list(),
		Stopping:  n.stopping.Load(),
		DiskFree:  n.fetch.DiskFree(),
	}
}

// engineList is the engines installed here. Looking asks the disk and runs
// programs, so it is done at boot and after an installation only.
type engineList struct {
	mu   sync.Mutex
	list []catalog.EngineInfo
}

func (e *engineList) set(list []catalog.EngineInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = list
}

func (e *engineList) get() []catalog.EngineInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// fetches is the downloads in progress here.
type fetches struct {
	mu      sync.Mutex
	running []*catalog.FetchStatus
}

// begin lists a download until end is called.
func (f *fetches) begin(source, as string) (step func(fetch.Progress), end func()) {
	status := &catalog.FetchStatus{Source: source, As: as, Phase: fetch.PhaseQueued}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = append(f.running, status)
	step = func(p fetch.Progress) {
		f.mu.Lock()
		defer f.mu.Unlock()
		status.Phase, status.Done, status.Total = p.Phase, p.Done, p.Total
	}
	end = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running = slices.DeleteFunc(f.running, func(s *catalog.FetchStatus) bool { return s == status })
	}
	return step, end
}

func (f *fetches) list() []catalog.FetchStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]catalog.FetchStatus, 0, len(f.running))
	for _, s := range f.running {
		out = append(out, *s)
	}
	return out
}
