package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// Report is what Verify found.
type Report struct {
	Rows       int // tombstones included
	Tombstones int
	LogEntries int // the stale ones not counted
	StaleLog   int // entries of the log that are stale
	Aside      int // rows of which cells wait aside
	Unsent     int // rows in the outbox
	// Problems names what is wrong, the first 100 of it; none when the store is well.
	Problems []string
	More     int // problems beyond these
}

// maxProblems bounds a report on a store that is damaged throughout.
const maxProblems = 100

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) == maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// Verify reads everything again, and compares the rows with the log, with what is noted beside them and with the digest. Writes
// wait meanwhile. An error means that it could not be read; what is wrong is in the report.
func (s *Store) Verify() (Report, error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	var r Report
	err := s.view(func(txn *badger.Txn) error {
		told, err := s.verifyLog(txn, &r)
		return errors.Join(err, s.verifyRows(txn, told, &r), s.verifyBeside(txn, &r))
	})
	if err != nil {
		return r, fmt.Errorf("verify store: %w", err)
	}
	return r, nil
}

// verifyRows compares the rows with the entries of the log.
func (s *Store) verifyRows(txn *badger.Txn, told map[uint64]crdt.Key, r *Report) error {
	key, kept := s.digest.get()
	var sum crdt.Digest
	err := eachValue(txn, rowPrefix, func(name string, record []byte) error {
		r.Rows++
		k := crdt.Key(name)
		row, seq, err := parseRecord(k, record)
		if err := errors.Join(k.Validate(), err); err != nil {
			r.problem("%v", err)
			return nil
		}
		if row.Present() {
			sum.Toggle(key.Bucket(k), key.Fingerprint(k, record[8:]))
		} else {
			r.Tombstones++
			if _, known, err := get(txn, ageKey(k)); err != nil || !known {
				r.problem("tombstone %s has no age", k)
			}
		}
		if pointed, known := told[seq]; !known || pointed != k || seq > s.seq.Load() {
			r.problem("row %s is number %d in the log, which has %q there and ends at %d", k, seq, string(pointed), s.seq.Load())
		}
		return nil
	})
	if different := sum.Diff(&kept); len(different) > 0 {
		r.problem("the digest differs from the rows in %d buckets", len(different))
	}
	return err
}

// verifyLog returns the entries of the log that are not noted as stale.
func (s *Store) verifyLog(txn *badger.Txn, r *Report) (map[uint64]crdt.Key, error) {
	told := map[uint64]crdt.Key{}
	err := eachValue(txn, logPrefix, func(name string, data []byte) error {
		first, err := parseLogKey([]byte(logPrefix + name))
		if err == nil {
			err = eachEntry(first, data, func(seq uint64, key []byte) (bool, error) {
				if s.verifyEntry(txn, change{seq, crdt.Key(key)}, r) {
					told[seq] = crdt.Key(key)
				}
				return true, nil
			})
		}
		if err != nil {
			r.problem("%v", err)
		}
		return nil
	})
	return told, err
}

// verifyEntry counts an entry and says whether it is not stale.
func (s *Store) verifyEntry(txn *badger.Txn, c change, r *Report) bool {
	block := s.blocks.find(c.seq)
	live := block != nil && !block.isStale(c.seq)
	if live {
		r.LogEntries++
	} else {
		r.StaleLog++
	}
	// A row that does not decode is reported with the rows.
	_, at, err := readRow(txn, c.key)
	if err != nil {
		return live
	}
	if stale, err := staleEntry(txn, c, at); err != nil {
		r.problem("%v", err)
	} else if stale == live {
		r.problem("log entry %d names row %s, which is number %d and was not when it was last looked at", c.seq, c.key, at)
	}
	return live
}

// verifyBeside looks at what is kept beside the rows.
func (s *Store) verifyBeside(txn *badger.Txn, r *Report) error {
	ages, err := readAges(txn)
	if err != nil {
		r.problem("%v", err)
	}
	for _, age := range ages {
		if row, seq, err := readRow(txn, age.key); err == nil && (seq == 0 || row.Present()) {
			r.problem("age of %s, which is no tombstone", age.key)
		}
	}
	if err := asideRows(txn, func(crdt.Key, crdt.Row) { r.Aside++ }); err != nil {
		r.problem("%v", err)
	}
	return eachValue(txn, outboxPrefix, func(name string, value []byte) error {
		r.Unsent++
		if _, err := decodeUnsent(crdt.Key(name), value); err != nil {
			r.problem("%v", err)
		}
		return nil
	})
}

// Compact gives the space of overwritten and deleted rows back. It returns the bytes on disk before and after, 0 for a store
// in memory; some of it goes only when the store is closed. Reads and writes go on.
func (s *Store) Compact() (before, after int64, err error) {
	s.state.RLock()
	defer s.state.RUnlock()
	if s.closed {
		return 0, 0, ErrClosed
	}
	if before, err = s.size(); err != nil {
		return 0, 0, fmt.Errorf("compact store: %w", err)
	}
	if err := s.room(); err != nil {
		return 0, 0, fmt.Errorf("compact store: %w", err)
	}
	err = s.flatten()
	for err == nil && s.disk == nil {
		err = s.db.RunValueLogGC(0.5)
	}
	if err != nil && !errors.Is(err, badger.ErrNoRewrite) {
		return 0, 0, fmt.Errorf("compact store: %w", err)
	}
	if after, err = s.size(); err != nil {
		return 0, 0, fmt.Errorf("compact store: %w", err)
	}
	return before, after, nil
}

func (s *Store) flatten() error {
	if s.mapped == nil {
		return s.db.Flatten(compactors)
	}
	return s.mapped.compactor.flatten()
}

// size adds up the tables; the logs beside them are sparse files of a fixed size.
func (s *Store) size() (int64, error) {
	if s.disk != nil {
		return 0, nil
	}
	var sum int64
	tables, err := filepath.Glob(filepath.Join(s.dir, "*.sst"))
	for _, table := range tables {
		info, err := os.Stat(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue // compacted away meanwhile
		}
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, err
}
