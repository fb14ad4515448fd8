package process

import (
	"context"
	"fmt"
	"log/slog"
	"math/bits"
	"net/http"

	"llmgw/engines"
	"llmgw/engines/kvevents"
	"llmgw/mesh/catalog"
)

// load asks for the engine's load.
func (a asker) load(ctx context.Context) (engines.Load, error) {
	status, body, err := a.do(ctx, http.MethodGet, a.probe.MetricsPath, nil)
	switch {
	case err != nil:
		return engines.Load{}, err
	case status != http.StatusOK:
		return engines.Load{}, fmt.Errorf("read metrics: status %d", status)
	}
	return a.probe.Load(body), nil
}

// measure asks the engine for its load and tells it. An engine that does not
// answer is as it last told: whether it hangs is asked elsewhere.
func (r *replica) measure() {
	if r.engine.ask.probe.Load == nil {
		return
	}
	l, err := await(r, r.sup.cfg.Timing.Probe, r.engine.ask.load)
	if err != nil {
		return
	}
	r.update(func(v *catalog.ReplicaStatus) {
		e := r.engine
		// One look may see requests that came together and are about to be begun.
		if v.AtOnce = 0; l.Waiting > 0 && e.load.Waiting > 0 {
			v.AtOnce = max(l.Running, e.load.Running)
		}
		e.load = l
		v.LoadKnown, v.Waiting, v.KVUse = l.Known, l.Waiting, catalog.KVStepped(l.KVUse)
		e.tellCache(v)
	})
}

// working says whether the load may have changed since it was measured.
func (r *replica) working() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.engine.load
	return r.view.InFlight > 0 || l.Running > 0 || l.Waiting > 0 || l.KVUse > 0
}

// followCache listens to what the engine publishes of its KV cache until the
// function that it returns is called.
func (r *replica) followCache() (stop func()) {
	if r.engine.ask.probe.Events == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	e := r.engine
	go func() {
		defer close(done)
		kvevents.Follow(ctx, e.ask.probe.Events(r.dir), func(s kvevents.State) {
			r.update(func(v *catalog.ReplicaStatus) {
				e.cache = s
				e.tellCache(v)
			})
		})
	}()
	return func() {
		cancel()
		<-done
	}
}

// tellCache writes what is known of the cache: how much it held when it was full
// goes before what it was made for, of which running requests take a part.
func (e *engine) tellCache(v *catalog.ReplicaStatus) {
	tokens := e.load.KVTokens
	if e.cache.Room > 0 {
		tokens = e.cache.Room
	}
	v.KVTokens = coarse(tokens)
	// What a former daemon told goes on: a number that fell back would have heads forget
	// a cache that is there.
	if e.cache.All {
		v.Cleared = max(e.adopted, e.cache.Cleared)
	} else {
		v.Cleared = e.adopted + e.cache.Cleared
	}
}

// keepCleared records how often the cache was emptied, for the next daemon.
func (r *replica) keepCleared() {
	told := r.status().Cleared
	if told == r.engine.record.Cleared {
		return
	}
	r.engine.record.Cleared = told
	if err := writePidfile(r.dir, r.engine.record); err != nil {
		r.log.Warn("pidfile not updated", slog.Any("error", err))
	}
}

// coarse leaves the four highest bits of a number, so that one that wavers is
// not told each time.
func coarse(n int64) int64 {
	if shift := bits.Len64(uint64(n)) - 4; shift > 0 {
		return n >> shift << shift
	}
	return n
}
