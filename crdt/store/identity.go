package store

import (
	"fmt"
	"log/slog"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// NoteAck takes in how far a peer has pulled this store's log. What the peer has leaves the outbox.
//
// A position under the own IndexID that the log never reached shows that this disk was rolled back: this store has
// forgotten what it once told. It then takes a new ID and IndexID, is overdue until it was re-seeded, and NoteAck
// says so. The caller MUST ask before it answers a pull, and tells its peers the new identity.
func (s *Store) NoteAck(c Cursor) (rolledBack bool, err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	if c.IndexID != s.index.Load() {
		return false, nil
	}
	if c.Seq > s.seq.Load() {
		if err := s.forgotten(); err != nil {
			return false, fmt.Errorf("roll on after a lost past: %w", err)
		}
		return true, nil
	}
	if len(s.outbox) == 0 {
		return false, nil
	}
	if err := s.writable(); err != nil {
		return false, err
	}
	if err := s.clearOutbox(c.Seq); err != nil {
		return false, fmt.Errorf("note acknowledgement: %w", err)
	}
	return false, nil
}

// forgotten gives a store that lost a part of its past another identity.
func (s *Store) forgotten() error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.rotate(true); err != nil {
		return err
	}
	s.log.Warn("the store was rolled back to an earlier state; it goes on under a new identity",
		slog.Uint64("store", uint64(s.ID())))
	return nil
}

// Rotate takes a new ID and IndexID, for a store of which a copy is in use elsewhere, or whose clock once ran far ahead:
// under the new ID stamps begin at the wall clock again. Peers pull everything once more.
func (s *Store) Rotate() error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	return s.rotate(false)
}

// rotate changes the identity in one transaction. Cells and counters of the former ID stay as they are; nothing is
// ever written under it again. Of the outbox only what this process wrote stays: the rest may have been sent, and
// deleted by others, in the life of the other copy. The caller holds writer.
func (s *Store) rotate(overdue bool) error {
	if err := s.doubtOutbox(); err != nil {
		return err
	}
	id, err := s.random()
	if err != nil {
		return err
	}
	index, err := s.random()
	if err != nil {
		return err
	}
	b := s.begin()
	defer b.discard()
	for _, kv := range []struct {
		key   string
		value []byte
	}{
		{sysID, number(id)}, {sysIndex, number(index)}, {sysCeiling, number(0)},
		{formerPrefix + string(number(uint64(s.ID()))), nil},
	} {
		if err := b.set([]byte(kv.key), kv.value); err != nil {
			return err
		}
	}
	if overdue {
		if err := b.set([]byte(sysRestored), nil); err != nil {
			return err
		}
	}
	if err := b.commit(); err != nil {
		return err
	}
	s.becomes(crdt.ReplicaID(id), index, overdue)
	return nil
}

// becomes makes a new identity known to readers, all of it at once.
func (s *Store) becomes(id crdt.ReplicaID, index uint64, overdue bool) {
	s.state.Lock()
	defer s.state.Unlock()
	s.id.Store(uint64(id))
	s.ledger.mu.Lock()
	// The generation was drawn by this process alone; under a new store it stays as unique as it was.
	s.ledger.by.Store = id
	s.ledger.mu.Unlock()
	s.index.Store(index)
	s.reseeding.Store(false)
	s.saved = 0
	s.clock = crdt.NewClock(s.now, 0, s.saveCeiling)
	if overdue {
		s.restored.Store(true)
	}
}

// FormerIDs lists the IDs that this store wrote under earlier, in no order.
func (s *Store) FormerIDs() ([]crdt.ReplicaID, error) {
	var ids []crdt.ReplicaID
	err := s.view(func(txn *badger.Txn) error {
		return eachValue(txn, formerPrefix, func(name string, _ []byte) error {
			if len(name) != 8 {
				return fmt.Errorf("former ID of %d bytes: %w", len(name), ErrCorrupt)
			}
			ids = append(ids, crdt.ReplicaID(beUint64([]byte(name))))
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list former IDs: %w", err)
	}
	return ids, nil
}
