package store

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// spendMonths is how many of the newest months with spending stay, however old: perhaps it is the clock of now that is wrong.
const spendMonths = 13

// DropSpend removes the accounts of days and months, and the escrows of these, that lie before a month such as "2026-11", and
// says how many. The newest 13 months in which anything was spent stay all the same. What was dropped does not come back from
// peers that have it still: from now on nothing of those months is merged. Each store drops when it likes; where one has and
// another has not, their sums differ.
func (s *Store) DropSpend(before string) (accounts int, err error) {
	if _, ok := (crdt.Account{Period: before}).MonthOf(); !ok || len(before) != len("2006-01") {
		return 0, fmt.Errorf("drop spending before %q: %w", before, crdt.ErrMalformed)
	}
	if err := s.noteDropped(before); err != nil {
		return 0, fmt.Errorf("drop spending: %w", err)
	}
	for {
		n, more, err := s.dropSpend()
		accounts += n
		if err != nil {
			return accounts, fmt.Errorf("drop spending: %w", err)
		}
		if !more {
			return accounts, nil
		}
	}
}

// noteDropped sets the month before which nothing is merged any more. It comes first: what a crash leaves is dropped by the
// next call.
func (s *Store) noteDropped(before string) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	months := s.ledger.months()
	if len(months) < spendMonths {
		return nil
	}
	before = min(before, months[spendMonths-1])
	if before <= s.ledger.dropped {
		return nil
	}
	if err := s.setRaw(sysDropped, []byte(before)); err != nil {
		return err
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.dropped = before
	return nil
}

// accounts lists all, folded or not, and those that have an escrow alone. The caller holds mu or writer.
func (l *ledger) accounts() map[crdt.Account]bool {
	all := map[crdt.Account]bool{}
	for _, a := range l.spend.Accounts() {
		all[a] = true
	}
	for _, f := range l.spend.Folds() {
		all[f.Account] = true
	}
	for a := range l.escrows {
		all[a] = true
	}
	return all
}

// months lists those of all accounts, the newest first. The caller holds mu or writer.
func (l *ledger) months() []string {
	all := map[string]bool{}
	for a := range l.accounts() {
		if month, ok := a.MonthOf(); ok {
			all[month] = true
		}
	}
	months := slices.Sorted(maps.Keys(all))
	slices.Reverse(months)
	return months
}

// isDropped says whether an account lies before the month that is noted. The caller holds mu or writer.
func (l *ledger) isDropped(a crdt.Account) bool {
	month, ok := a.MonthOf()
	return ok && month < l.dropped
}

// dropSpend removes a transaction's worth of accounts.
func (s *Store) dropSpend() (n int, more bool, err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return 0, false, err
	}
	b := s.begin()
	defer b.discard()
	read := s.db.NewTransaction(false) // one that writes sorts its writes for each look
	defer read.Discard()
	var whole []crdt.Account
	for a := range s.ledger.accounts() {
		if !s.ledger.isDropped(a) {
			continue
		}
		if more = b.full(); more {
			break
		}
		done, err := dropAccount(read, b, a)
		if err != nil {
			return 0, false, err
		}
		if !done { // the rest of it comes with the next transaction
			more = true
			break
		}
		whole = append(whole, a)
	}
	if err := b.commit(); err != nil {
		return 0, false, err
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.forget(whole)
	return len(whole), more, nil
}

// dropAccount removes what is on disk of an account. It returns false when that is more than fits.
func dropAccount(read *badger.Txn, b *batch, a crdt.Account) (done bool, err error) {
	for _, space := range []string{spendSpace, foldSpace, escrowSpace} {
		keys := keysOf(read, counterKey(crdt.NewKey(space, a.Budget, a.Period)), pageItems)
		if err := b.removeAll(keys...); err != nil {
			return false, err
		}
		if len(keys) == pageItems {
			return false, nil
		}
	}
	return true, nil
}

// forget takes accounts out of what is known. The caller holds mu.
func (l *ledger) forget(all []crdt.Account) {
	gone := map[crdt.Account]bool{}
	var part ledger // of these accounts, to sum up
	part.escrows = map[crdt.Account]*crdt.Escrow{}
	for _, a := range all {
		gone[a] = true
		part.spend.MergeFold(l.spend.FoldOf(a))
		part.spend.Merge(l.spend.Cells(a))
		if e := l.escrows[a]; e != nil {
			part.escrows[a] = e
		}
		l.spend.Drop(a)
		delete(l.escrows, a)
	}
	part.sumUp()
	for i := range l.sums {
		l.sums[i] ^= part.sums[i]
	}
	maps.DeleteFunc(l.log.at, func(ref cellRef, _ uint64) bool { return gone[ref.account] })
	l.log.entries = slices.DeleteFunc(l.log.entries, func(e logEntry) bool { return gone[e.ref.account] })
}

// withoutDropped leaves out of what a peer told what lies before the month that is noted. The caller holds writer.
func (l *ledger) withoutDropped(m crdt.Money) crdt.Money {
	if l.dropped == "" {
		return m
	}
	out := crdt.Money{
		Spend:   slices.DeleteFunc(slices.Clone(m.Spend), func(e crdt.SpendEntry) bool { return l.isDropped(e.Account) }),
		Folds:   slices.DeleteFunc(slices.Clone(m.Folds), func(f crdt.SpendFold) bool { return l.isDropped(f.Account) }),
		Escrows: slices.DeleteFunc(slices.Clone(m.Escrows), func(p crdt.EscrowPart) bool { return l.isDropped(p.Account) }),
	}
	return out
}

// loadDropped reads the month that is noted.
func (l *ledger) loadDropped(txn *badger.Txn) error {
	value, _, err := get(txn, []byte(sysDropped))
	l.dropped = string(value)
	if _, ok := (crdt.Account{Period: l.dropped}).MonthOf(); err == nil && l.dropped != "" && !ok {
		return fmt.Errorf("month of dropped spending %q: %w", l.dropped, ErrCorrupt)
	}
	return err
}
