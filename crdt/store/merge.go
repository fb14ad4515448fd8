package store

import (
	"fmt"

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
	for n < len(items) && !b.full() {
		if err := b.take(items[n], limit); err != nil {
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
