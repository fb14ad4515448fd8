package store

import (
	"log/slog"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// FailSync makes every sync to disk fail from now on.
func (s *Store) FailSync(err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	s.flush = func() error { return err }
}

// OnSync has fn called after each sync to disk, with the writer held.
func (s *Store) OnSync(fn func()) {
	s.writer.Lock()
	defer s.writer.Unlock()
	flush := s.flush
	s.flush = func() error {
		err := flush()
		fn()
		return err
	}
}

// Poke changes a raw key of the open database; a nil value deletes it.
func (s *Store) Poke(key string, value []byte) {
	err := s.db.Update(func(txn *badger.Txn) error {
		if value == nil {
			return txn.Delete([]byte(key))
		}
		return txn.Set([]byte(key), value)
	})
	if err != nil {
		panic(err)
	}
}

// BadgerOptions are those of a store in dir.
func BadgerOptions(dir string) badger.Options {
	return badgerOptions(dir, badgerLog{log: slog.New(slog.DiscardHandler)})
}

// LogTouched is how much of the log of a memtable is allocated.
const LogTouched = logTouched

// Count says how many raw keys of the open database begin with a prefix.
func (s *Store) Count(prefix string) int {
	n := 0
	err := s.db.View(func(txn *badger.Txn) error {
		return eachValue(txn, prefix, func(string, []byte) error { n++; return nil })
	})
	if err != nil {
		panic(err)
	}
	return n
}

// CheckFiles reads bytes as a list of tables, as a table, as a block of the log and as what is kept beside the rows.
func CheckFiles(data []byte) {
	_ = wholeList(data)
	_ = checkIndex(data)
	_ = eachEntry(1, data, func(uint64, []byte) (bool, error) { return true, nil })
	if swap, err := decodeSwap(data); err == nil {
		if again := swap.encode(); string(again) != string(data) {
			panic("a swap that changes when it is kept")
		}
	}
	if entry, err := decodeUnsent("k", data); err == nil {
		if _, err := entry.encode(); err != nil {
			panic(err)
		}
	}
}

// SpendEntries are all cells that are not folded.
func (s *Store) SpendEntries() []crdt.SpendEntry {
	m, _ := s.MoneyIn(crdt.MoneySums{})
	return m.Spend
}

// SpendFolds are all folded accounts.
func (s *Store) SpendFolds() []crdt.SpendFold {
	m, _ := s.MoneyIn(crdt.MoneySums{})
	return m.Folds
}

// CheckMoney says whether the sums are those of what is there.
func (s *Store) CheckMoney() bool {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	again := ledger{spend: s.ledger.spend, escrows: s.ledger.escrows}
	again.sumUp()
	return again.sums == s.ledger.sums
}

// LogSlack is how many outdated entries are kept.
const LogSlack = logSlack

// MoneyLog is how many entries the order of learning has.
func (s *Store) MoneyLog() int { return len(s.ledger.log.entries) }

// Crowded is how many tables of level 0 are compacted.
const Crowded = crowded

// Level0 is how many there are.
func (s *Store) Level0() int { return s.db.Levels()[0].NumTables }

// LogEntries is how many entries the blocks of the log hold on the disk, stale ones too.
func (s *Store) LogEntries() (n int) {
	err := s.db.View(func(txn *badger.Txn) error {
		return eachLogged(txn, 0, func(uint64, crdt.Key) (bool, error) { n++; return true, nil })
	})
	if err != nil {
		panic(err)
	}
	return n
}

// LogBlocks is how many blocks of the log are known, and how many of these are gone.
func (s *Store) LogBlocks() (known, gone int) { return len(s.blocks.all), s.blocks.gone }
