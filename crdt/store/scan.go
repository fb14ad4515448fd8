package store

import (
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// scan is what reading every row finds.
type scan struct {
	rows, tombstones int
	digest           crdt.Digest
	unaged           []crdt.Key // tombstones of which it is not noted since when they are here
	numbers          []uint64   // of all log entries that are not stale, in order
}

// scanRows reads every row and computes the digest. A row that does not decode is ErrCorrupt.
func scanRows(txn *badger.Txn, key crdt.DigestKey) (scan, error) {
	var found scan
	err := eachRecord(txn, func(k crdt.Key, encoded []byte, row crdt.Row, seq uint64) {
		found.rows++
		found.numbers = append(found.numbers, seq)
		if row.Present() {
			found.digest.Toggle(key.Bucket(k), key.Fingerprint(k, encoded))
			return
		}
		found.tombstones++
		found.unaged = append(found.unaged, k)
	})
	if err != nil {
		return scan{}, err
	}
	slices.Sort(found.numbers)
	aged := 0
	for _, k := range found.unaged {
		_, known, err := get(txn, ageKey(k))
		if err != nil {
			return scan{}, err
		}
		if !known {
			found.unaged[aged] = k
			aged++
		}
	}
	found.unaged = found.unaged[:aged]
	return found, nil
}

// eachRecord calls each with every row, its canonical encoding and its log number, in key order.
func eachRecord(txn *badger.Txn, each func(key crdt.Key, encoded []byte, row crdt.Row, seq uint64)) error {
	return eachValue(txn, rowPrefix, func(name string, record []byte) error {
		key := crdt.Key(name)
		if err := key.Validate(); err != nil {
			return fmt.Errorf("row %s: %w: %w", key, ErrCorrupt, err)
		}
		row, seq, err := parseRecord(key, record)
		if err != nil {
			return err
		}
		each(key, record[8:], row, seq)
		return nil
	})
}

// scanAtOpen reads every row once, so that damage shows before anything is served, and fills what is kept in memory.
func (s *Store) scanAtOpen() error {
	key, _ := s.digest.get()
	// The highest number ever given out under this index ID is the end of the log, or what that was when entries at the end
	// were removed.
	last, _, err := s.number(sysFloor)
	if err != nil {
		return err
	}
	var found scan
	err = s.db.View(func(txn *badger.Txn) (err error) {
		if found, err = scanRows(txn, key); err != nil {
			return err
		}
		var end uint64
		if s.blocks, end, err = loadLog(txn, found.numbers); err != nil {
			return err
		}
		s.seq.Store(max(last, end))
		return s.loadOutbox(txn)
	})
	if err != nil {
		return err
	}
	s.digest.set(key, found.digest)
	return s.ageFromNow(found.unaged)
}
