package store

import (
	"sync"

	"llmgw/crdt"
)

// Watch tells that rows changed. C holds at most one notice, however many changes were made since it was last
// taken: after a notice, read the rows again. C is never closed.
type Watch struct {
	C <-chan struct{}

	c          chan struct{}
	namespaces map[string]bool // empty: all
	owner      *watchers
}

// Watch reports changes of rows in the given namespaces, of any row when none is given, by local writes, merges and
// Reset. The caller MUST Close it when done.
func (s *Store) Watch(namespaces ...string) *Watch {
	c := make(chan struct{}, 1)
	w := &Watch{C: c, c: c, namespaces: map[string]bool{}, owner: &s.watches}
	for _, ns := range namespaces {
		w.namespaces[ns] = true
	}
	s.watches.add(w)
	return w
}

// Close ends the watch. It may be called more than once.
func (w *Watch) Close() { w.owner.remove(w) }

func (w *Watch) wants(namespaces map[string]bool) bool {
	if len(w.namespaces) == 0 {
		return true
	}
	for ns := range namespaces {
		if w.namespaces[ns] {
			return true
		}
	}
	return false
}

func (w *Watch) wake() {
	select {
	case w.c <- struct{}{}:
	default: // The notice that is waiting covers this change too.
	}
}

// watchers is the set of open watches.
type watchers struct {
	mu  sync.Mutex
	all map[*Watch]struct{}
}

func (ws *watchers) add(w *Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all == nil {
		ws.all = map[*Watch]struct{}{}
	}
	ws.all[w] = struct{}{}
}

func (ws *watchers) remove(w *Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.all, w)
}

// notify wakes the watches of the namespaces that keys lie in.
func (ws *watchers) notify(keys []crdt.Key) {
	if len(keys) == 0 {
		return
	}
	namespaces := map[string]bool{}
	for _, k := range keys {
		namespaces[k.Namespace()] = true
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		if w.wants(namespaces) {
			w.wake()
		}
	}
}

func (ws *watchers) notifyAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		w.wake()
	}
}
