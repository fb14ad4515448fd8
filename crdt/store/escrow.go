package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// UpdateEscrow changes the escrow of a hard budget. What fn did to it is on disk when UpdateEscrow returns nil, so that a
// transfer may be told; nothing of it happened after an error. fn MUST write no cells but those of this store's ID.
func (s *Store) UpdateEscrow(a crdt.Account, fn func(self crdt.ReplicaID, e *crdt.Escrow) error) error {
	changed, err := s.updateEscrow(a, fn)
	if err != nil {
		return fmt.Errorf("update escrow: %w", err)
	}
	if changed {
		s.tellSpend()
	}
	return nil
}

func (s *Store) updateEscrow(a crdt.Account, fn func(self crdt.ReplicaID, e *crdt.Escrow) error) (changed bool, err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	now, before := s.Escrow(a), s.Escrow(a)
	if err := fn(s.ID(), &now); err != nil {
		return false, err
	}
	part := crdt.EscrowPart{Account: a, Cells: before.Merge(now.Entries())}
	if len(part.Cells) == 0 {
		return false, nil
	}
	_, err = s.writeEscrows([]crdt.EscrowPart{part})
	return err == nil, err
}

// mergeEscrows takes as many parts as fit into a transaction. It says whether one has more of this store's own cells than the
// store itself. The caller holds writer.
func (s *Store) mergeEscrows(parts []crdt.EscrowPart) (n int, passed bool, err error) {
	self := s.ID()
	for _, p := range parts {
		known := s.Escrow(p.Account)
		passed = passed || slices.ContainsFunc(p.Cells, func(c crdt.EscrowEntry) bool {
			return c.From == self && c.Micros > known.Of(c.From, c.To)
		})
	}
	n, err = s.writeEscrows(parts)
	return n, passed && err == nil, err
}

// writeEscrows writes the cells that are news, of as many parts as fit into a transaction. The caller holds writer.
func (s *Store) writeEscrows(parts []crdt.EscrowPart) (n int, err error) {
	if err := s.writable(); err != nil {
		return 0, err
	}
	b := s.begin()
	defer b.discard()
	for ; n < len(parts) && !b.full(); n++ {
		known := s.Escrow(parts[n].Account)
		for _, c := range known.Merge(parts[n].Cells) {
			key := escrowKey(parts[n].Account, c)
			if err := key.Validate(); err != nil {
				return 0, err
			}
			if err := b.set(counterKey(key), number(c.Micros)); err != nil {
				return 0, err
			}
		}
	}
	if err := b.commit(); err != nil {
		return 0, err
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.takeEscrow(parts[:n])
	return n, nil
}

// Escrow returns the escrow of a hard budget; it is the caller's own.
func (s *Store) Escrow(a crdt.Account) crdt.Escrow {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	if e := s.ledger.escrows[a]; e != nil {
		return e.Clone()
	}
	return crdt.Escrow{}
}

// Rights is what a store may spend or give of a hard budget, and total how large that is, as far as is known here.
func (s *Store) Rights(a crdt.Account, of crdt.ReplicaID) (rights int64, total uint64) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	if e := s.ledger.escrows[a]; e != nil {
		return e.Rights(of), e.Total()
	}
	return 0, 0
}

// escrowAccounts lists the accounts of hard budgets in a fixed order. The caller holds mu.
func (l *ledger) escrowAccounts() []crdt.Account {
	return slices.SortedFunc(maps.Keys(l.escrows), crdt.Account.Compare)
}

// loadEscrows reads the escrows of all accounts.
func (l *ledger) loadEscrows(txn *badger.Txn) error {
	l.escrows = map[crdt.Account]*crdt.Escrow{}
	prefix := counterPrefix + string(crdt.NewKey(escrowSpace))
	return eachValue(txn, prefix, func(name string, value []byte) error {
		parts, err := crdt.Key(strings.TrimPrefix(prefix, counterPrefix) + name).Parts()
		if err != nil || len(parts) != 4 || len(parts[2]) != 8 || len(parts[3]) != 8 || len(value) != 8 {
			return fmt.Errorf("cell of an escrow: %w", ErrCorrupt)
		}
		a := crdt.Account{Budget: parts[0], Period: parts[1]}
		if l.escrows[a] == nil {
			l.escrows[a] = &crdt.Escrow{}
		}
		l.escrows[a].Merge([]crdt.EscrowEntry{{
			From: crdt.ReplicaID(beUint64([]byte(parts[2]))), To: crdt.ReplicaID(beUint64([]byte(parts[3]))), Micros: beUint64(value),
		}})
		return nil
	})
}

func escrowKey(a crdt.Account, e crdt.EscrowEntry) crdt.Key {
	return crdt.NewKey(escrowSpace, a.Budget, a.Period, string(number(uint64(e.From))), string(number(uint64(e.To))))
}
