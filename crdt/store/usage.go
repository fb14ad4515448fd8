package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// UsageRecords calls each with the usage records from number from on, oldest first, until it returns false.
func (s *Store) UsageRecords(from uint64, each func(n uint64, record []byte) bool) error {
	return s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(usagePrefix), PrefetchValues: true, PrefetchSize: 100})
		defer it.Close()
		for it.Seek(usageKey(from)); it.Valid(); it.Next() {
			n, err := parseUsageKey(it.Item().Key())
			if err != nil {
				return err
			}
			record, err := it.Item().ValueCopy(nil)
			if err != nil {
				return fmt.Errorf("read usage: %w", err)
			}
			if !each(n, record) {
				return nil
			}
		}
		return nil
	})
}

// nextUsage is one more than the newest usage record.
func nextUsage(txn *badger.Txn) (uint64, error) {
	it := txn.NewIterator(badger.IteratorOptions{Reverse: true})
	defer it.Close()
	it.Seek(append(usageKey(^uint64(0)), 0xff))
	if !it.ValidForPrefix([]byte(usagePrefix)) {
		return 0, nil
	}
	n, err := parseUsageKey(it.Item().Key())
	return n + 1, err
}

var errUsageKey = errors.New("usage key of another length")

func parseUsageKey(key []byte) (uint64, error) {
	if len(key) != len(usagePrefix)+8 {
		return 0, fmt.Errorf("%w: %w", errUsageKey, ErrCorrupt)
	}
	return beUint64(key[len(usagePrefix):]), nil
}

func usageKey(n uint64) []byte { return append([]byte(usagePrefix), number(n)...) }

// noDay stands for a day that is not known.
const noDay = -1

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// markDay notes with the first record of a day which one that is, so that old records can be told. It returns the day of the
// newest record. The caller holds writer.
func (s *Store) markDay(b *batch, written bool) (int64, error) {
	today := dayOf(s.now())
	if !written || today == s.ledger.day || today < 0 {
		return s.ledger.day, nil
	}
	key := dayKey(today)
	_, known, err := get(b.txn, key)
	if err != nil || known { // opened again, or the clock was set back
		return today, err
	}
	return today, b.set(key, number(s.ledger.next))
}

func dayKey(day int64) []byte { return append([]byte(dayPrefix), number(uint64(day))...) }

// DropUsage removes the usage records of the days before that of t, and says how many. Days are those of the clock when they
// were written, and a clock may have been wrong: nothing goes that was written after a day that is not old. One that is yet to
// come says nothing. The newest day stays, however old: perhaps it is the clock of now that is wrong.
func (s *Store) DropUsage(t time.Time) (dropped int, err error) {
	marks, err := s.dayMarks()
	if err != nil {
		return 0, fmt.Errorf("drop usage records: %w", err)
	}
	old, first, last := 0, dayOf(t), dayOf(s.now())
	for i, m := range marks {
		if m.day < first {
			old = i + 1
		} else if m.day <= last {
			break
		}
	}
	if old == 0 || old == len(marks) {
		return 0, nil
	}
	for more := true; more; {
		n, err := s.dropUsage(marks[old].first)
		dropped += n
		if err != nil {
			return dropped, fmt.Errorf("drop usage records: %w", err)
		}
		more = n == pageItems
	}
	return dropped, s.dropDays(marks[:old])
}

// dayMark is the number of the first record of a day.
type dayMark struct {
	day   int64
	first uint64
}

// dayMarks lists all, the oldest first.
func (s *Store) dayMarks() (marks []dayMark, err error) {
	err = s.view(func(txn *badger.Txn) error {
		return eachValue(txn, dayPrefix, func(name string, value []byte) error {
			if len(name) != 8 || len(value) != 8 {
				return fmt.Errorf("day of usage: %w", ErrCorrupt)
			}
			marks = append(marks, dayMark{int64(beUint64([]byte(name))), beUint64(value)})
			return nil
		})
	})
	slices.SortFunc(marks, func(a, b dayMark) int { return cmp.Compare(a.first, b.first) })
	return marks, err
}

// dropUsage removes a transaction's worth of the oldest records numbered below end.
func (s *Store) dropUsage(end uint64) (n int, err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return 0, err
	}
	b := s.begin()
	defer b.discard()
	for _, key := range keysOf(b.txn, []byte(usagePrefix), pageItems) {
		number, err := parseUsageKey(key)
		if err != nil {
			return 0, err
		}
		if number >= end {
			break
		}
		if err := b.remove(key); err != nil {
			return 0, err
		}
		n++
	}
	return n, b.commit()
}

func (s *Store) dropDays(marks []dayMark) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	b := s.begin()
	defer b.discard()
	for _, m := range marks {
		if err := b.remove(dayKey(m.day)); err != nil {
			return fmt.Errorf("drop usage records: %w", err)
		}
	}
	return b.commit()
}
