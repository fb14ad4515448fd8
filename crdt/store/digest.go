package store

import (
	"fmt"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// digest sums up the present rows that are on disk. It is kept up with each commit and computed anew by Open and Verify.
type digest struct {
	mu  sync.Mutex
	key crdt.DigestKey
	sum crdt.Digest
}

// mark is one row that enters or leaves the digest.
type mark struct {
	bucket int
	hash   crdt.Fingerprint
}

func (d *digest) apply(marks []mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range marks {
		d.sum.Toggle(m.bucket, m.hash)
	}
}

func (d *digest) set(key crdt.DigestKey, sum crdt.Digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.key, d.sum = key, sum
}

func (d *digest) get() (crdt.DigestKey, crdt.Digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.key, d.sum
}

// Digest returns the digest of the present rows under the key of SetDigestKey. Two stores that have pulled from each
// other, and neither of which has rows aside, must have the same.
func (s *Store) Digest() crdt.Digest {
	_, sum := s.digest.get()
	return sum
}

// DigestUntil is a digest that sums up at least what the log told up to the cursor.
func (s *Store) DigestUntil() (crdt.Digest, Cursor) {
	c := Cursor{IndexID: s.index.Load(), Seq: s.seq.Load()}
	return s.Digest(), c
}

// KnownBeside says what of a peer's rows this store has already, although it did not pull them there, given the peer's DigestUntil.
// It names at most so many rows one by one.
func (s *Store) KnownBeside(theirs *crdt.Digest, until uint64, most int) (Known, error) {
	ours := s.Digest()
	known := Known{Until: until, Differs: map[int]bool{}, Has: map[uint64]bool{}}
	buckets := ours.Diff(theirs)
	for _, b := range buckets {
		known.Differs[b] = true
	}
	own, err := s.Buckets(buckets)
	for _, e := range own[:min(len(own), most)] {
		known.Has[e.Hash.Short()] = true
	}
	return known, err
}

// SetDigestKey sets the key of the digest, which is the same on all members of a mesh, and computes the digest anew when
// it changed. The key is kept. Until it is set it is zero.
func (s *Store) SetDigestKey(key crdt.DigestKey) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	if had, _ := s.digest.get(); had == key {
		return nil
	}
	var found scan
	if err := s.db.View(func(txn *badger.Txn) (err error) { found, err = scanRows(txn, key); return err }); err != nil {
		return fmt.Errorf("set digest key: %w", err)
	}
	if err := s.setRaw(sysDigestKey, key[:]); err != nil {
		return fmt.Errorf("set digest key: %w", err)
	}
	s.digest.set(key, found.digest)
	return nil
}

// Buckets lists the rows that fall into the given buckets of the digest, in key order.
func (s *Store) Buckets(buckets []int) ([]crdt.DigestEntry, error) {
	wanted := map[int]bool{}
	for _, b := range buckets {
		wanted[b] = true
	}
	key, _ := s.digest.get()
	var entries []crdt.DigestEntry
	err := s.view(func(txn *badger.Txn) error {
		return eachRecord(txn, func(k crdt.Key, encoded []byte, row crdt.Row, _ uint64) {
			if row.Present() && wanted[key.Bucket(k)] {
				entries = append(entries, crdt.DigestEntry{Key: k, Hash: key.Fingerprint(k, encoded)})
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list buckets: %w", err)
	}
	return entries, nil
}

// Items returns the rows of the given keys, tombstones included, leaving out those that were never made: what repairs
// a difference at the peer that merges them.
func (s *Store) Items(keys []crdt.Key) ([]crdt.Item, error) {
	var items []crdt.Item
	err := s.view(func(txn *badger.Txn) error {
		for _, key := range keys {
			row, seq, err := readRow(txn, key)
			if err != nil {
				return err
			}
			if seq != 0 {
				items = append(items, crdt.Item{Key: key, Row: row})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	return items, nil
}
