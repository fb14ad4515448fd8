package store

import (
	"fmt"
	"log/slog"
	"sync"

	"llmgw/crdt"
)

// Merge joins remote rows or parts of rows into the store and returns the keys of the rows that changed. It is
// idempotent. Large inputs are written in several transactions, each on disk before the next; after an error the
// keys say what was taken, and merging the same items again completes it.
//
// Items are taken as they are: whether their sender may write them is the caller's check.
func (s *Store) Merge(items []crdt.Item) ([]crdt.Key, error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	var changed []crdt.Key
	// Deferred, because watchers must also hear of pages that were taken before one failed.
	defer func() { s.watches.notify(changed) }()
	for len(items) > 0 {
		keys, n, err := s.mergePage(items)
		changed = append(changed, keys...)
		if err != nil {
			return changed, fmt.Errorf("merge: %w", err)
		}
		items = items[n:]
	}
	return changed, nil
}

// mergePage merges items until the transaction is full enough, and says how many it took.
func (s *Store) mergePage(items []crdt.Item) (changed []crdt.Key, n int, err error) {
	if err := s.writable(); err != nil {
		return nil, 0, err
	}
	b := s.begin()
	defer b.discard()
	for n < len(items) && !b.full() {
		if _, err := b.merge(items[n]); err != nil {
			return nil, 0, err
		}
		s.observe(items[n])
		n++
	}
	if err := b.commit(); err != nil {
		return nil, 0, err
	}
	return b.changed, n, nil
}

// observe lets the clock follow the stamps of a merged item.
func (s *Store) observe(item crdt.Item) {
	for _, cell := range item.Row.Cells {
		if !s.clock.Observe(cell.At) && s.ahead.first(cell.By) {
			s.log.Warn("a store stamps its writes far ahead of this node's clock",
				slog.Uint64("store", uint64(cell.By)), slog.Time("stamp", cell.At.Time()),
				slog.String("key", item.Key.String()))
		}
	}
}

// aheadWriters remembers which writers were warned about, each once per run of the daemon.
type aheadWriters struct {
	mu   sync.Mutex
	seen map[crdt.ReplicaID]bool
}

// maxAheadWriters bounds the memory that invented writers can take.
const maxAheadWriters = 1000

func (a *aheadWriters) first(by crdt.ReplicaID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[by] || len(a.seen) >= maxAheadWriters {
		return false
	}
	if a.seen == nil {
		a.seen = map[crdt.ReplicaID]bool{}
	}
	a.seen[by] = true
	return true
}
