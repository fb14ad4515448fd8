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
	s.writer.Lock()
	defer s.writer.Unlock()
	now, before := s.Escrow(a), s.Escrow(a)
	err := fn(s.ID(), &now)
	if cells := before.Merge(now.Entries()); err == nil && len(cells) > 0 {
		_, err = s.writeEscrows([]crdt.EscrowPart{{Account: a, Cells: cells}})
	}
	if err != nil {
		return fmt.Errorf("update escrow: %w", err)
	}
	return nil
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
	var news []crdt.EscrowPart
	for ; n < len(parts) && !b.full(); n++ {
		part := parts[n]
		known := s.Escrow(part.Account)
		if part.Cells = known.Merge(part.Cells); len(part.Cells) == 0 {
			continue
		}
		if !slices.ContainsFunc(news, func(p crdt.EscrowPart) bool { return p.Account == part.Account }) {
			if part, err = s.enter(part); err != nil {
				return 0, err
			}
		}
		if err := b.setEscrow(part); err != nil {
			return 0, err
		}
		news = append(news, part)
	}
	if err := b.commit(); err != nil {
		return 0, err
	}
	s.ledger.mu.Lock()
	s.ledger.takeEscrow(news)
	s.ledger.mu.Unlock()
	self := s.ID()
	if slices.ContainsFunc(news, func(p crdt.EscrowPart) bool {
		return slices.ContainsFunc(p.Cells, func(c crdt.EscrowEntry) bool { return c.From == self })
	}) {
		s.tellSpend()
	}
	return n, nil
}

func (b *batch) setEscrow(p crdt.EscrowPart) error {
	for _, c := range p.Cells {
		key := escrowKey(p.Account, c)
		if err := key.Validate(); err != nil {
			return err
		}
		if err := b.set(counterKey(key), number(c.Micros)); err != nil {
			return err
		}
	}
	return nil
}

// enter adds to the first cells of an escrow that come here what this store has spent before it knew of it. From then on
// overdraw counts. The caller holds writer.
func (s *Store) enter(p crdt.EscrowPart) (crdt.EscrowPart, error) {
	spent := s.ledger.spend.ByStore(p.Account)[s.ID()]
	if s.ledger.escrows[p.Account] != nil || spent == 0 {
		return p, nil
	}
	var e crdt.Escrow
	e.Merge(p.Cells)
	if err := e.Overdraw(s.ID(), spent-min(spent, e.Counted(s.ID()))); err != nil {
		return p, err
	}
	return crdt.EscrowPart{Account: p.Account, Cells: e.Entries()}, nil
}

// overdraw counts what was spent without being reserved in the escrows that are known. The caller holds writer.
func (s *Store) overdraw(b *batch, spent map[crdt.Account]uint64) (parts []crdt.EscrowPart, err error) {
	for a, micros := range spent {
		if s.ledger.escrows[a] == nil {
			continue
		}
		now, before := s.Escrow(a), s.Escrow(a)
		if err := now.Overdraw(s.ID(), micros); err != nil {
			return nil, err
		}
		part := crdt.EscrowPart{Account: a, Cells: before.Merge(now.Entries())}
		if err := b.setEscrow(part); err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// Debts is what other stores than this one lack for what they spent of a hard budget without rights, as far as is known
// here; nil: nothing. See crdt.Escrow.Debts.
func (s *Store) Debts(a crdt.Account) map[crdt.ReplicaID]uint64 {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	e := s.ledger.escrows[a]
	if e == nil {
		return nil
	}
	debts := e.Debts(s.ledger.spend.ByStore(a))
	delete(debts, s.ID())
	return debts
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
