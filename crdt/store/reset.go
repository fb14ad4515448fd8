package store

import (
	"fmt"
	"math"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// Reset drops all rows, the log and the cursors, and takes a new IndexID, for a store whose mesh is replaced by another.
// The ID, the clock and the meta values stay. A crash in between is completed by the next Open. All watches fire.
func (s *Store) Reset() error {
	s.writer.Lock()
	defer s.writer.Unlock()
	// Readers wait: half a mesh under the new index ID must not reach anybody.
	s.state.Lock()
	defer s.state.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.markReset(); err != nil {
		return fmt.Errorf("reset store: %w", err)
	}
	if err := s.finishReset(); err != nil {
		// Rows of two meshes must not mix: the next Open drops the rest.
		s.failed = fmt.Errorf("%w: reset store: %w", ErrFailed, err)
		return s.failed
	}
	s.watches.notifyAll()
	return nil
}

// markReset takes the new index ID and notes that what is there must go, in one transaction.
func (s *Store) markReset() error {
	index, err := s.random()
	if err != nil {
		return err
	}
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	if err := txn.Set([]byte(sysIndex), number(index)); err != nil {
		return err
	}
	if err := txn.Set([]byte(sysReset), nil); err != nil {
		return err
	}
	// They told of the mesh that is left.
	for _, key := range []string{sysTimes, sysRestored, sysSwap, sysDropped} {
		if err := txn.Delete([]byte(key)); err != nil {
			return err
		}
	}
	if err := s.commit(txn); err != nil {
		return err
	}
	s.index.Store(index)
	return nil
}

// finishReset drops what a noted reset has left, and does nothing without such a note.
func (s *Store) finishReset() error {
	_, pending, err := s.raw(sysReset)
	if err != nil || !pending {
		return err
	}
	for _, prefix := range []string{stagePrefix, outboxPrefix, counterPrefix, usagePrefix, dayPrefix} {
		if err := s.drop(prefix); err != nil {
			return err
		}
	}
	if err := s.dropRows(); err != nil {
		return err
	}
	s.outbox, s.raised, s.times = map[crdt.Key]uint64{}, map[crdt.Key]bool{}, times{}
	index, err := s.random()
	if err != nil {
		return err
	}
	s.ledger.reset(index)
	s.restored.Store(false)
	s.reseeding.Store(false)
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	if err := txn.Delete([]byte(sysReset)); err != nil {
		return err
	}
	return s.commit(txn)
}

// dropRows removes all rows and what goes with them.
func (s *Store) dropRows() error {
	for _, prefix := range []string{asidePrefix, logPrefix, cursorPrefix, rowPrefix, agePrefix, sysFloor} {
		if err := s.drop(prefix); err != nil {
			return err
		}
	}
	s.seq.Store(0)
	s.blocks = logBlocks{}
	s.asideFrom.Store(math.MaxUint64)
	key, _ := s.digest.get()
	s.digest.set(key, crdt.Digest{})
	return nil
}

// drop deletes everything under a prefix.
func (s *Store) drop(prefix string) error {
	for more := true; more; {
		var err error
		if more, err = s.dropSome([]byte(prefix)); err != nil {
			return fmt.Errorf("drop %s: %w", prefix, err)
		}
	}
	return nil
}

// dropSome deletes a transaction's worth of keys and says whether there may be more.
func (s *Store) dropSome(prefix []byte) (more bool, err error) {
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	keys := keysOf(txn, prefix, pageItems)
	for _, key := range keys {
		if err := txn.Delete(key); err != nil {
			return false, err
		}
	}
	if len(keys) == 0 {
		return false, nil
	}
	return len(keys) == pageItems, s.commit(txn)
}

func keysOf(txn *badger.Txn, prefix []byte, most int) [][]byte {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	var keys [][]byte
	for it.Rewind(); it.Valid() && len(keys) < most; it.Next() {
		keys = append(keys, it.Item().KeyCopy(nil))
	}
	return keys
}
