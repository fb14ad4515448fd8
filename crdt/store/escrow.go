package store

import (
	"fmt"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// UpdateEscrow changes the escrow of a hard budget. What fn did to it is on disk when UpdateEscrow returns nil, so that a
// transfer may be told; nothing of it happened after an error. fn MUST write no cells but those of this store's ID.
func (s *Store) UpdateEscrow(a crdt.Account, fn func(self crdt.ReplicaID, e *crdt.Escrow) error) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	err := s.changeEscrow(a, func(e *crdt.Escrow) ([]crdt.EscrowEntry, error) {
		var before crdt.Escrow
		before.Merge(e.Entries())
		if err := fn(s.ID(), e); err != nil {
			return nil, err
		}
		return before.Merge(e.Entries()), nil
	})
	if err != nil {
		return fmt.Errorf("update escrow: %w", err)
	}
	return nil
}

// MergeEscrow joins cells of peers. One of this store's own that is higher than here shows that its disk was rolled back or
// is in use twice: it then takes a new identity, as NoteAck does, and its rights under the former one are stranded.
func (s *Store) MergeEscrow(a crdt.Account, entries []crdt.EscrowEntry) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	passed := false
	err := s.changeEscrow(a, func(e *crdt.Escrow) ([]crdt.EscrowEntry, error) {
		news := e.Merge(entries)
		for _, n := range news {
			passed = passed || n.From == s.ID()
		}
		return news, nil
	})
	if err == nil && passed {
		err = s.forgotten()
	}
	if err != nil {
		return fmt.Errorf("merge escrow: %w", err)
	}
	return nil
}

// changeEscrow writes the cells that change returns. The caller holds writer.
func (s *Store) changeEscrow(a crdt.Account, change func(*crdt.Escrow) ([]crdt.EscrowEntry, error)) error {
	if err := s.writable(); err != nil {
		return err
	}
	b := s.begin()
	defer b.discard()
	e, err := readEscrow(b.txn, a)
	if err != nil {
		return err
	}
	changed, err := change(&e)
	if err != nil {
		return err
	}
	for _, c := range changed {
		key := escrowKey(a, c)
		if err := key.Validate(); err != nil {
			return err
		}
		if err := b.set(counterKey(key), number(c.Micros)); err != nil {
			return err
		}
	}
	return b.commit()
}

// Escrow returns the escrow of a hard budget; it is the caller's own.
func (s *Store) Escrow(a crdt.Account) (e crdt.Escrow, err error) {
	err = s.view(func(txn *badger.Txn) error {
		e, err = readEscrow(txn, a)
		return err
	})
	return e, err
}

func readEscrow(txn *badger.Txn, a crdt.Account) (crdt.Escrow, error) {
	var e crdt.Escrow
	prefix := counterPrefix + string(crdt.NewKey(escrowSpace, a.Budget, a.Period))
	err := eachValue(txn, prefix, func(name string, value []byte) error {
		parts, err := crdt.Key(strings.TrimPrefix(prefix, counterPrefix) + name).Parts()
		if err != nil || len(parts) != 4 || len(parts[2]) != 8 || len(parts[3]) != 8 || len(value) != 8 {
			return fmt.Errorf("escrow of %s: %w", a.Budget, ErrCorrupt)
		}
		e.Merge([]crdt.EscrowEntry{{
			From: crdt.ReplicaID(beUint64([]byte(parts[2]))), To: crdt.ReplicaID(beUint64([]byte(parts[3]))), Micros: beUint64(value),
		}})
		return nil
	})
	return e, err
}

func escrowKey(a crdt.Account, e crdt.EscrowEntry) crdt.Key {
	return crdt.NewKey(escrowSpace, a.Budget, a.Period, string(number(uint64(e.From))), string(number(uint64(e.To))))
}
