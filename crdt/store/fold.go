package store

import (
	"fmt"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// FoldSpend takes the spend cells of closed accounts into one entry for each account, and says of how many accounts. closed
// says which are: those whose period ended so long ago that hardly anything comes late. What does come late counts all the
// same, and is folded by the next call. Each store folds when it likes.
func (s *Store) FoldSpend(closed func(crdt.Account) bool) (accounts int, err error) {
	s.ledger.mu.Lock()
	open := s.ledger.spend.Accounts()
	s.ledger.mu.Unlock()
	for _, a := range open {
		if !closed(a) {
			continue
		}
		done, err := s.foldAccount(a)
		if err != nil {
			return accounts, fmt.Errorf("fold spending of %s in %s: %w", a.Budget, a.Period, err)
		}
		if done {
			accounts++
		}
	}
	return accounts, nil
}

// foldAccount folds one account, unless it has too many writers for one entry.
func (s *Store) foldAccount(a crdt.Account) (bool, error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	var trial crdt.Spend
	trial.MergeFold(s.ledger.spend.FoldOf(a))
	trial.Merge(s.ledger.spend.Cells(a))
	f, folded := trial.Fold(a)
	if !folded {
		return false, nil
	}
	return true, s.keepFold(f)
}

// keepFold writes the fold, then drops the cells that it holds. Where it ends between these, cells are left that say what the
// fold says. The caller holds writer.
func (s *Store) keepFold(f crdt.SpendFold) error {
	if err := s.writeFold(f); err != nil {
		return err
	}
	s.ledger.mu.Lock()
	s.ledger.takeSpend(nil, f)
	s.ledger.mu.Unlock()
	return s.dropFolded(f)
}

func (s *Store) writeFold(f crdt.SpendFold) error {
	if err := s.writable(); err != nil {
		return err
	}
	data, err := crdt.EncodeFolds([]crdt.SpendFold{f})
	if err != nil {
		return err
	}
	key := crdt.NewKey(foldSpace, f.Account.Budget, f.Account.Period)
	if err := key.Validate(); err != nil {
		return err
	}
	return s.setRaw(string(counterKey(key)), data)
}

// dropFolded removes the cells from the disk that a fold holds.
func (s *Store) dropFolded(f crdt.SpendFold) error {
	for rest := f.Cells; len(rest) > 0; {
		b := s.begin()
		for len(rest) > 0 && !b.full() {
			key := counterKey(accountKey(f.Account, rest[0].By))
			value, known, err := get(b.txn, key)
			if err == nil && known && len(value) == 8 && beUint64(value) <= rest[0].Micros {
				err = b.remove(key)
			}
			if err != nil {
				b.discard()
				return err
			}
			rest = rest[1:]
		}
		if err := b.commit(); err != nil {
			b.discard()
			return err
		}
	}
	return nil
}

// mergeFold joins a folded account of a peer, which is then folded here too. The caller holds writer.
func (s *Store) mergeFold(f crdt.SpendFold) error {
	var trial crdt.Spend
	trial.MergeFold(s.ledger.spend.FoldOf(f.Account))
	now, changed := trial.MergeFold(f)
	if now.Account != f.Account || passes(f, s.ledger.by, s.ledger.spend.Of(f.Account, s.ledger.by)) {
		// Too much for one entry, or a count of this process itself that it never made.
		_, err := s.mergeCells(crdt.Money{Spend: f.Entries()})
		return err
	}
	if !changed {
		return nil
	}
	return s.keepFold(now)
}

// passes says whether a fold has more of a writer than it has counted itself.
func passes(f crdt.SpendFold, by crdt.SpendID, own uint64) bool {
	for _, c := range f.Cells {
		if c.By == by {
			return c.Micros > own
		}
	}
	return false
}

// loadFolds reads the folded accounts.
func (s *Store) loadFolds(txn *badger.Txn) error {
	prefix := counterPrefix + string(crdt.NewKey(foldSpace))
	return eachValue(txn, prefix, func(name string, value []byte) error {
		folds, err := crdt.DecodeFolds(value)
		if err != nil || len(folds) != 1 {
			return fmt.Errorf("folded spending: %w", ErrCorrupt)
		}
		parts, err := crdt.Key(strings.TrimPrefix(prefix, counterPrefix) + name).Parts()
		if err != nil || len(parts) != 2 || folds[0].Account != (crdt.Account{Budget: parts[0], Period: parts[1]}) {
			return fmt.Errorf("folded spending: %w", ErrCorrupt)
		}
		s.ledger.spend.MergeFold(folds[0])
		return nil
	})
}
