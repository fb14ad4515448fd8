package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func benchStore(b *testing.B) *store.Store {
	b.Helper()
	s, err := store.Open(b.TempDir(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkUpdate is a thousand admin writes, one after the other, and the flush of the disk that each has: how long one takes
// in the middle and at worst, how many flushes it needs, and how much longer it takes than the flush alone.
func BenchmarkUpdate(b *testing.B) {
	const writes = 1000
	s := benchStore(b)
	flushes := 0
	s.OnSync(func() { flushes++ })
	var took, alone []time.Duration
	for b.Loop() {
		for i := range writes {
			took = append(took, timed(b, func() error {
				_, err := s.Update(func(tx *store.Tx) error {
					return tx.Set(crdt.NewKey("models", fmt.Sprint("m", i%10)), "a", fmt.Append(nil, len(took)))
				})
				return err
			}))
		}
		alone = append(alone, flushAlone(b, writes)...)
	}
	slices.Sort(took)
	slices.Sort(alone)
	at := func(times []time.Duration, share float64) float64 {
		return times[int(float64(len(times)-1)*share)].Seconds() * 1000
	}
	b.ReportMetric(at(took, 0.5), "p50-ms")
	b.ReportMetric(at(took, 0.99), "p99-ms")
	b.ReportMetric(float64(flushes)/float64(len(took)), "flushes/write")
	b.ReportMetric(at(took, 0.5)/at(alone, 0.5), "to-flush-ratio")
}

// flushAlone appends to a file and flushes it, as often as that.
func flushAlone(b *testing.B, times int) (took []time.Duration) {
	b.Helper()
	file, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fallocate(int(file.Fd()), 0, 0, 1<<20); err != nil {
		b.Fatal(err)
	}
	for i := range times {
		took = append(took, timed(b, func() error {
			_, err := file.WriteAt(make([]byte, 400), int64(i)*400)
			return errors.Join(err, unix.Fdatasync(int(file.Fd())))
		}))
	}
	return took
}

// BenchmarkMergeSame is anti-entropy between peers that hold the same: 1000 rows that change nothing.
func BenchmarkMergeSame(b *testing.B) {
	s := benchStore(b)
	items := make([]crdt.Item, 1000)
	for i := range items {
		items[i] = item(crdt.NewKey("models", fmt.Sprint(i)), "a", remote(1, 2, "v"))
	}
	for b.Loop() {
		if _, err := s.Merge(items); err != nil {
			b.Fatal(err)
		}
	}
}

const (
	benchRows = 20_000
	// benchPage is how many rows arrive at once: what fits into a frame of a pull.
	benchPage = 1000
)

// benchItems are rows as a catalog has them: six cells, some 300 bytes. order, which shares no divisor with their number, says how they
// are mixed.
func benchItems(stamp, order int) []crdt.Item {
	items := make([]crdt.Item, benchRows)
	for i := range items {
		row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{}}
		for c := range 6 {
			row.Cells[fmt.Sprint("cell", c)] = remote(crdt.HLC(1<<40+stamp), 1<<60+3, string(bytes.Repeat([]byte{byte('a' + c)}, 24)))
		}
		items[i] = crdt.Item{Key: crdt.NewKey("models", fmt.Sprintf("m%09d", i*order%benchRows)), Row: row}
	}
	return items
}

// BenchmarkMergeAgainstBadger is rows that arrive from a peer, new ones, changed ones in the same order, and changed ones in another,
// of which each page thins out all blocks of the log, against the same rows written to badger alone, encoded and one key each, in the same pages and with a sync after each. Pages take turns, so that what
// else the machine does hits both.
func BenchmarkMergeAgainstBadger(b *testing.B) {
	var merged, raw [3]time.Duration
	orders := []int{7919, 7919, 3331}
	for b.Loop() {
		s, db := benchStore(b), benchBadger(b)
		for state, order := range orders {
			for items := benchItems(state, order); len(items) > 0; items = items[benchPage:] {
				raw[state] += timed(b, func() error { return writeRaw(db, items[:benchPage]) })
				merged[state] += timed(b, func() error { return mergePage(s, items[:benchPage]) })
			}
		}
	}
	for state, name := range []string{"new", "changed", "mixed"} {
		b.ReportMetric(float64(benchRows*b.N)/merged[state].Seconds(), name+"-rows/s")
		b.ReportMetric(raw[state].Seconds()/merged[state].Seconds(), name+"-ratio")
	}
}

func timed(b *testing.B, fn func() error) time.Duration {
	b.Helper()
	start := time.Now()
	if err := fn(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func mergePage(s *store.Store, items []crdt.Item) error {
	changed, err := s.Merge(items)
	if err == nil && len(changed) != len(items) {
		err = fmt.Errorf("%d of %d rows changed", len(changed), len(items))
	}
	return err
}

func benchBadger(b *testing.B) *badger.DB {
	b.Helper()
	db, err := badger.Open(store.BadgerOptions(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

func writeRaw(db *badger.DB, items []crdt.Item) error {
	txn := db.NewTransaction(true)
	defer txn.Discard()
	for _, i := range items {
		data, err := crdt.EncodeRow(i.Row)
		if err != nil {
			return err
		}
		if err := txn.Set([]byte(i.Key), data); err != nil {
			return err
		}
	}
	if err := txn.Commit(); err != nil {
		return err
	}
	return db.Sync()
}
