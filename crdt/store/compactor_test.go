package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// writeMuch writes half a MiB that does not compress, so many times, to so many rows in turn.
func writeMuch(t *testing.T, s *store.Store, times, rows int) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{1})
	for i := range times {
		update(t, s, func(tx *store.Tx) error {
			for cell := range 4 {
				value := make([]byte, crdt.MaxValueBytes)
				if _, err := random.Read(value); err != nil {
					return err
				}
				if err := tx.Set(crdt.NewKey("models", fmt.Sprint("m", i%rows)), fmt.Sprint(cell), value); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Without a compaction badger would block at the 15th memtable for ever.
func TestFullMemtablesAreCompacted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	writeMuch(t, s, 230, 40)
	deadline := time.Now().Add(2 * time.Minute)
	for s.Level0() >= store.Crowded {
		if time.Now().After(deadline) {
			t.Fatalf("%d tables lie in level 0", s.Level0())
		}
		time.Sleep(10 * time.Millisecond)
	}
	want := all(t, s)
	closeStore(t, s)
	s = open(t, dir)
	got := all(t, s)
	if len(got) != len(want) {
		t.Errorf("%d of %d rows are there after reopening", len(got), len(want))
	}
	for key, row := range want {
		if got[key] != row {
			t.Errorf("row %s is another one", key)
		}
	}
}
