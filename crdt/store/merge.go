package store

import (
	"fmt"
	"runtime"
	"sync"

	"llmgw/crdt"
)

// Merge joins remote rows or parts of rows into the store and returns the keys of the rows that changed. It is
// idempotent. Large inputs are written in several transactions, each on disk before the next; after an error the
// keys say what was taken, and merging the same items again completes it.
//
// Cells stamped over 24 h ahead wait aside, see Aside; what waited and is due is merged first.
//
// Items are taken as they are: whether their sender may write them is the caller's check.
func (s *Store) Merge(items []crdt.Item) ([]crdt.Key, error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	changed, err := s.releaseAside()
	// Deferred, because watchers must also hear of pages that were taken before one failed.
	defer func() { s.watches.notify(changed) }()
	if err != nil {
		return changed, fmt.Errorf("merge: %w", err)
	}
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
	limit := s.nearLimit()
	ahead := s.joinAhead(items[:min(len(items), pageItems)], limit)
	for n < len(items) && !b.full() {
		if n < len(ahead) && ahead[n] != nil {
			err = b.apply(items[n].Key, *ahead[n])
		} else {
			err = b.take(items[n], limit)
		}
		if err != nil {
			return nil, 0, err
		}
		n++
	}
	if err := b.commit(); err != nil {
		return nil, 0, err
	}
	s.observe(items[:n])
	return b.changed, n, nil
}

const (
	// aheadFrom is how many items there have to be for their rows to be joined by several goroutines.
	aheadFrom = 64
	// aheadMost bounds these.
	aheadMost = 4
)

// joinAhead reads, joins and encodes the rows of many items at once, which takes longer than to write them. Nobody else writes
// meanwhile. Left out, as nil, are items of which a part has to wait aside, and all but the first with a key.
func (s *Store) joinAhead(items []crdt.Item, limit crdt.HLC) []*joined {
	workers := min(runtime.GOMAXPROCS(0), aheadMost)
	if len(items) < aheadFrom || workers < 2 {
		return nil
	}
	first := make([]bool, len(items))
	seen := make(map[crdt.Key]bool, len(items))
	for i, item := range items {
		first[i] = !seen[item.Key]
		seen[item.Key] = true
	}
	digest, _ := s.digest.get()
	ahead := make([]*joined, len(items))
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			txn := s.db.NewTransaction(false)
			defer txn.Discard()
			for i := w; i < len(items); i += workers {
				if first[i] && newest(items[i].Row) <= limit {
					j := joinRow(txn, digest, items[i])
					ahead[i] = &j
				}
			}
		})
	}
	all.Wait()
	return ahead
}
