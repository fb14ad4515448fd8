package store

import (
	"fmt"
	"slices"

	"llmgw/crdt"
)

// MoneyCursor is a place in the order in which a store learned of spending. That order lives as long as the process: under
// another Index a Seq is worth nothing.
type MoneyCursor struct{ Index, Seq uint64 }

// cellRef names one cell of spending or of an escrow.
type cellRef struct {
	account crdt.Account
	escrow  bool
	a, b    uint64 // store and generation, or from and to
}

// by is the store that alone writes the cell.
func (r cellRef) by() crdt.ReplicaID { return crdt.ReplicaID(r.a) }

func spendRef(e crdt.SpendEntry) cellRef {
	return cellRef{account: e.Account, a: uint64(e.By.Store), b: e.By.Generation}
}

func escrowRef(a crdt.Account, e crdt.EscrowEntry) cellRef {
	return cellRef{account: a, escrow: true, a: uint64(e.From), b: uint64(e.To)}
}

// moneyLog is the order in which cells changed since the store was opened. A cell that changes again moves to the end; its
// earlier entry stays until there are too many of these.
type moneyLog struct {
	index, last uint64
	entries     []logEntry
	at          map[cellRef]uint64
}

type logEntry struct {
	seq uint64
	ref cellRef
}

// logSlack is how many entries out of date are kept beside the others.
const logSlack = 1000

func (l *moneyLog) note(ref cellRef) {
	l.last++
	if l.at == nil {
		l.at = map[cellRef]uint64{}
	}
	l.at[ref] = l.last
	l.entries = append(l.entries, logEntry{l.last, ref})
	if len(l.entries) > 2*len(l.at)+logSlack {
		l.entries = slices.DeleteFunc(l.entries, func(e logEntry) bool { return l.at[e.ref] != e.seq })
	}
}

// after lists what changed after seq, oldest first, and each cell once.
func (l *moneyLog) after(seq uint64) []logEntry {
	from, _ := slices.BinarySearchFunc(l.entries, seq+1, func(e logEntry, seq uint64) int {
		return int(min(max(int64(e.seq-seq), -1), 1))
	})
	return slices.DeleteFunc(slices.Clone(l.entries[from:]), func(e logEntry) bool { return l.at[e.ref] != e.seq })
}

// takeSpend joins cells that are on disk, and fold when it has an account. The caller holds mu.
func (l *ledger) takeSpend(entries []crdt.SpendEntry, fold crdt.SpendFold) {
	for _, e := range slices.Concat(entries, fold.Entries()) {
		had := e
		if had.Micros = l.spend.Of(e.Account, e.By); e.Micros <= had.Micros {
			continue
		}
		l.sums.ToggleSpend(had)
		l.sums.ToggleSpend(e)
		l.spend.Merge([]crdt.SpendEntry{e})
		l.log.note(spendRef(e))
	}
	if len(fold.Cells) > 0 {
		l.spend.MergeFold(fold)
	}
}

// takeEscrow joins cells that are on disk. The caller holds mu.
func (l *ledger) takeEscrow(parts []crdt.EscrowPart) {
	for _, p := range parts {
		e := l.escrows[p.Account]
		if e == nil {
			e = &crdt.Escrow{}
			l.escrows[p.Account] = e
		}
		for _, c := range p.Cells {
			had := c
			if had.Micros = e.Of(c.From, c.To); c.Micros <= had.Micros {
				continue
			}
			l.sums.ToggleEscrow(p.Account, had)
			l.sums.ToggleEscrow(p.Account, c)
			e.Merge([]crdt.EscrowEntry{c})
			l.log.note(escrowRef(p.Account, c))
		}
	}
}

// read gives the cells named by log entries as they are now.
func (l *ledger) read(entries []logEntry) (m crdt.Money) {
	for _, entry := range entries {
		ref := entry.ref
		if ref.escrow {
			e := crdt.EscrowEntry{From: crdt.ReplicaID(ref.a), To: crdt.ReplicaID(ref.b)}
			e.Micros = l.escrows[ref.account].Of(e.From, e.To)
			m.AddEscrow(ref.account, e)
			continue
		}
		by := crdt.SpendID{Store: crdt.ReplicaID(ref.a), Generation: ref.b}
		m.Spend = append(m.Spend, crdt.SpendEntry{Account: ref.account, By: by, Micros: l.spend.Of(ref.account, by)})
	}
	return m
}

// OnSpend sets the function that is called after each commit that changed cells of this store itself. It MUST NOT wait, and
// MUST NOT use the store.
func (s *Store) OnSpend(fn func()) { s.spent.Store(&fn) }

// tellSpend calls the hook.
func (s *Store) tellSpend() {
	if fn := s.spent.Load(); fn != nil {
		(*fn)()
	}
}

// MoneyState is what this store knows of spending, in sums that are equal where that is the same, and how far its order of
// learning is.
func (s *Store) MoneyState() (crdt.MoneySums, MoneyCursor) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.sums, MoneyCursor{s.ledger.log.index, s.ledger.log.last}
}

// MoneySince returns the cells that changed after c, as they are now, and where that ends. It returns false when c is none of
// this process; MoneyIn then tells what a peer lacks.
func (s *Store) MoneySince(c MoneyCursor) (m crdt.Money, next MoneyCursor, ok bool) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	l := &s.ledger
	if c.Index != l.log.index || c.Seq > l.log.last {
		return m, next, false
	}
	return l.read(l.log.after(c.Seq)), MoneyCursor{l.log.index, l.log.last}, true
}

// OwnMoneySince is MoneySince for the cells that this store itself writes; under another index it begins at the start.
func (s *Store) OwnMoneySince(c MoneyCursor) (m crdt.Money, next MoneyCursor) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	l := &s.ledger
	if c.Index != l.log.index {
		c.Seq = 0
	}
	own := slices.DeleteFunc(l.log.after(c.Seq), func(e logEntry) bool { return e.ref.by() != l.by.Store })
	return l.read(own), MoneyCursor{l.log.index, l.log.last}
}

// MoneyIn returns everything of the accounts in the buckets in which theirs differ from what is known here, in a fixed order,
// and how far the order of learning was then. Folded accounts come as folds.
func (s *Store) MoneyIn(theirs crdt.MoneySums) (m crdt.Money, next MoneyCursor) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	l := &s.ledger
	differs := func(a crdt.Account) bool {
		bucket := crdt.MoneyBucket(a)
		return theirs[bucket] != l.sums[bucket]
	}
	for _, e := range l.spend.Entries() {
		if differs(e.Account) {
			m.Spend = append(m.Spend, e)
		}
	}
	for _, f := range l.spend.Folds() {
		if differs(f.Account) {
			m.Folds = append(m.Folds, f)
		}
	}
	for _, a := range l.escrowAccounts() {
		if differs(a) {
			m.Escrows = append(m.Escrows, crdt.EscrowPart{Account: a, Cells: l.escrows[a].Entries()})
		}
	}
	return m, MoneyCursor{l.log.index, l.log.last}
}

// MergeMoney joins what peers told. A spend cell of this store's own that is higher than here shows that this process itself
// was copied or set back, memory and all: the cell stays as the peer has it, and this store counts on under a new generation.
// A cell of an escrow that is shows that its disk was rolled back or is in use twice: the store then takes a new identity, as
// NoteAck does, its rights under the former one are stranded, and MergeMoney says so.
func (s *Store) MergeMoney(m crdt.Money) (rolledBack bool, err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	m = s.ledger.withoutDropped(m)
	if rolledBack, err = s.mergeCells(m); err != nil {
		return rolledBack, fmt.Errorf("merge money: %w", err)
	}
	for _, f := range m.Folds {
		if err := s.mergeFold(f); err != nil {
			return rolledBack, fmt.Errorf("merge money: %w", err)
		}
	}
	if rolledBack {
		if err := s.forgotten(); err != nil {
			return rolledBack, fmt.Errorf("merge money: %w", err)
		}
	}
	return rolledBack, nil
}

// Passes says whether m has more of this store's own counts than the store itself, by which MergeMoney would give it another
// identity.
func (s *Store) Passes(m crdt.Money) bool {
	self := s.ID()
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	l := &s.ledger
	return slices.ContainsFunc(m.Spend, func(e crdt.SpendEntry) bool { return e.By == l.by && e.Micros > l.spend.Of(e.Account, e.By) }) ||
		slices.ContainsFunc(m.Folds, func(f crdt.SpendFold) bool { return passes(f, l.by, l.spend.Of(f.Account, l.by)) }) ||
		slices.ContainsFunc(m.Escrows, func(p crdt.EscrowPart) bool {
			e := l.escrows[p.Account]
			return slices.ContainsFunc(p.Cells, func(c crdt.EscrowEntry) bool {
				return c.From == self && (e == nil && c.Micros > 0 || e != nil && c.Micros > e.Of(c.From, c.To))
			})
		})
}

// mergeCells writes all cells in as many transactions as it takes. The caller holds writer.
func (s *Store) mergeCells(m crdt.Money) (rolledBack bool, err error) {
	for spend := m.Spend; len(spend) > 0; {
		n, err := s.mergeSpend(spend)
		if err != nil {
			return false, err
		}
		spend = spend[n:]
	}
	for parts := m.Escrows; len(parts) > 0; {
		n, passed, err := s.mergeEscrows(parts)
		rolledBack = rolledBack || passed
		if err != nil {
			return rolledBack, err
		}
		parts = parts[n:]
	}
	return rolledBack, nil
}
