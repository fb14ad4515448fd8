package lab

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// benchRows is how much a box has to catch up with that joins a mesh late.
const (
	benchRows     = 100_000
	benchRowBytes = 120 // in three cells of random bytes, which nothing compresses
)

// BenchmarkColdJoin measures what it takes a new box to get 10^5 rows: the time
// from `llmgw join` until it has them all, and what its peer sent in that time,
// headers included, against the rows as they are encoded.
func BenchmarkColdJoin(b *testing.B) {
	for b.Loop() {
		l := New(b)
		boxes := l.startBoxes("a", "b")
		a, joiner := boxes[0], boxes[1]
		a.Stop()
		plain := a.stuff(benchRows)
		a.Start()
		before, began := l.sent(boxes[:1]), time.Now()
		joiner.CLI("join", a.CLI("token", "new"))
		admin := joiner.Admin()
		Eventually(b, 3*time.Minute, "the new box has all rows", func() (bool, string) {
			r, err := admin.VerifyState(b.Context())
			return err == nil && r.Rows >= benchRows, fmt.Sprint(r.Rows, err)
		})
		took := time.Since(began)
		b.ReportMetric(took.Seconds(), "s-to-join")
		b.ReportMetric(float64(benchRows)/took.Seconds(), "rows/s")
		b.ReportMetric(float64(l.sent(boxes[:1])-before)/float64(plain), "bytes/row-bytes")
		for _, box := range boxes {
			box.Stop()
		}
	}
}

// stuff writes rows into the store of a box whose daemon does not run, and
// returns their size.
func (b *Box) stuff(rows int) (bytes int) {
	b.tb.Helper()
	s := b.openStore()
	const page = 1000
	for at := 0; at < rows; at += page {
		keys, err := s.Update(func(tx *store.Tx) error {
			for i := at; i < at+page; i++ {
				for _, cell := range []string{"x", "y", "z"} {
					value := make([]byte, benchRowBytes/3)
					_, _ = rand.Read(value)
					if err := tx.Set(crdt.NewKey("bench", fmt.Sprintf("row-%06d", i)), cell, value); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			b.tb.Fatal(err)
		}
		items, err := s.Items(keys)
		if err != nil {
			b.tb.Fatal(err)
		}
		encoded, err := crdt.EncodeItems(items)
		if err != nil {
			b.tb.Fatal(err)
		}
		bytes += len(encoded)
	}
	if err := s.Close(); err != nil {
		b.tb.Fatal(err)
	}
	return bytes
}

// openStore opens the store of a box whose daemon does not run.
func (b *Box) openStore() *store.Store {
	b.tb.Helper()
	s, err := store.Open(filepath.Join(b.StateDir(), "state"), store.Options{})
	if err != nil {
		b.tb.Fatal(err)
	}
	return s
}
