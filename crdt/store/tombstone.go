package store

import (
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

// stableAge is how long a tombstone stays after all members have it: a message that was on its way when they pulled must
// have arrived or been lost by then.
const stableAge = 10 * time.Minute

// Collected says what CollectTombstones did.
type Collected struct {
	Stable int // dropped: every member has acknowledged them
	Aged   int // dropped: kept for TombstoneAge
	Kept   int
	// Blocking counts per member the kept tombstones that it has not acknowledged.
	Blocking map[string]int
}

// CollectTombstones drops the tombstones that can go. members holds, for every member of the roster but this one, live or not,
// how far it has acknowledged this store's log, the zero Cursor when that is not known. Without members there is
// nobody to whom a deletion could still have to be told.
func (s *Store) CollectTombstones(members map[string]Cursor) (Collected, error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	done := Collected{Blocking: map[string]int{}}
	var old []aged
	err := s.db.View(func(txn *badger.Txn) (err error) { old, err = readAges(txn); return err })
	for len(old) > 0 && err == nil {
		if err = s.writable(); err == nil {
			old, err = s.collectPage(old, members, &done)
		}
	}
	if err != nil {
		return done, fmt.Errorf("collect tombstones: %w", err)
	}
	return done, nil
}

// aged is one tombstone and the uptime at which this store learned of it.
type aged struct {
	key   crdt.Key
	since time.Duration
}

func readAges(txn *badger.Txn) ([]aged, error) {
	var all []aged
	err := eachValue(txn, agePrefix, func(name string, value []byte) error {
		if len(value) != 8 {
			return fmt.Errorf("age of tombstone %s: %d bytes: %w", crdt.Key(name), len(value), ErrCorrupt)
		}
		all = append(all, aged{crdt.Key(name), time.Duration(beUint64(value))})
		return nil
	})
	return all, err
}

// collectPage goes through a transaction's worth and returns the rest.
func (s *Store) collectPage(all []aged, members map[string]Cursor, done *Collected) ([]aged, error) {
	b := s.begin()
	defer b.discard()
	page := *done
	for len(all) > 0 && !b.full() {
		if err := s.collect(b, all[0], members, &page); err != nil {
			return nil, err
		}
		all = all[1:]
	}
	if b.writes > 0 {
		// The log may lose its newest entry: its number must not be given out again.
		if err := b.set([]byte(sysFloor), number(b.seq)); err != nil {
			return nil, err
		}
	}
	if err := b.commit(); err != nil {
		return nil, err
	}
	*done = page
	return all, nil
}

func (s *Store) collect(b *batch, t aged, members map[string]Cursor, done *Collected) error {
	row, seq, err := readRow(b.txn, t.key)
	if err != nil {
		return err
	}
	if seq == 0 || row.Present() {
		return fmt.Errorf("age of %s, which is no tombstone: %w", t.key, ErrCorrupt)
	}
	age := s.times.own - t.since
	behind := s.behindOf(seq, members)
	switch {
	case len(members) == 0 || len(behind) == 0 && age >= stableAge:
		done.Stable++
	case age >= TombstoneAge:
		done.Aged++
	default:
		done.Kept++
		for _, m := range behind {
			done.Blocking[m]++
		}
		return nil
	}
	return b.purge(t.key, row, seq)
}

// behindOf names the members that have not acknowledged the log up to seq.
func (s *Store) behindOf(seq uint64, members map[string]Cursor) []string {
	var behind []string
	for name, c := range members {
		if c.IndexID != s.index.Load() || c.Seq < seq {
			behind = append(behind, name)
		}
	}
	return behind
}

// purge removes every trace of a deleted row, and what of its former life still waits aside.
func (b *batch) purge(key crdt.Key, row crdt.Row, seq uint64) error {
	aside, err := readAside(b.txn, key)
	if err != nil {
		return err
	}
	b.retire(seq)
	keys := [][]byte{rowKey(key), ageKey(key)}
	if aside.Length != 0 && aside.Length < row.Length {
		keys = append(keys, asideKey(key))
	}
	if err := b.removeAll(keys...); err != nil {
		return err
	}
	if _, posted := b.store.outbox[key]; posted {
		return b.dropOutbox(key)
	}
	return nil
}

// age notes since when a tombstone is here, or forgets it when the row is present again.
func (b *batch) age(key crdt.Key, had, now crdt.Row) error {
	switch {
	case !now.Present():
		return b.set(ageKey(key), number(uint64(b.store.times.own)))
	case had.Length != 0 && !had.Present():
		return b.remove(ageKey(key))
	}
	return nil
}

// ageFromNow notes tombstones of which no age is known, those of a store that an older llmgw wrote.
func (s *Store) ageFromNow(keys []crdt.Key) error {
	for len(keys) > 0 {
		n := min(len(keys), pageItems)
		b := s.begin()
		for _, key := range keys[:n] {
			if err := b.set(ageKey(key), number(uint64(s.times.own))); err != nil {
				b.discard()
				return err
			}
		}
		if err := b.commit(); err != nil {
			b.discard()
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func ageKey(key crdt.Key) []byte { return append([]byte(agePrefix), key...) }
