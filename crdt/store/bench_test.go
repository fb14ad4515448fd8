package store_test

import (
	"fmt"
	"testing"

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

// BenchmarkUpdate is one admin write: mostly the sync to disk.
func BenchmarkUpdate(b *testing.B) {
	s := benchStore(b)
	for i := 0; b.Loop(); i++ {
		if _, err := s.Update(func(tx *store.Tx) error {
			return tx.Set(crdt.NewKey("models", "m"), "a", fmt.Append(nil, i))
		}); err != nil {
			b.Fatal(err)
		}
	}
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
