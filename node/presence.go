package node

import (
	"context"
	"slices"
	"sync"

	"llmgw/fetch"
	"llmgw/mesh/catalog"
)

// presence is what this node tells of itself now, given the catalog's models.
func (n *Node) presence(models []catalog.Model) catalog.Presence {
	engines, known := n.engines.get()
	replicas := n.supervisor.Status()
	n.usage.tell(replicas, models, n.now())
	return catalog.Presence{
		Peer: n.mesh.Self(), Name: n.cfg.Name, Version: n.build.Version, API: n.apiAddresses(),
		Inventory: n.hardware.Inventory(context.Background()),
		Engines:   engines,
		Replicas:  replicas,
		Wants:     n.wants.list(models, n.now()),
		Weights:   n.fetch.Digests(),
		Fetches:   n.fetches.list(),
		Stopping:  n.stopping.Load(),
		Complete:  known,
		DiskFree:  n.fetch.DiskFree(),
		Hosts:     n.hosted.list(),
	}
}

// engineList is the engines installed here. Looking asks the disk and runs
// programs, so it is done beside the boot and after an installation only.
type engineList struct {
	mu    sync.Mutex
	known bool
	list  []catalog.EngineInfo
}

func (e *engineList) set(list []catalog.EngineInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known, e.list = true, list
}

// get says false before the first look has ended: then nothing is known, which
// is not the same as no engine.
func (e *engineList) get() ([]catalog.EngineInfo, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list), e.known
}

// findEngines looks for the engines that are here already.
func (n *Node) findEngines(ctx context.Context) error {
	n.engines.set(n.installer.Installed(ctx))
	n.wake()
	return nil
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
