package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// checkDigest compares the digest that was kept up with one computed from the rows.
func checkDigest(t *testing.T, s *store.Store) {
	t.Helper()
	var want crdt.Digest
	items, _ := pull(t, s, 0, 1<<20)
	for _, i := range items {
		if !i.Row.Present() {
			continue
		}
		data, err := crdt.EncodeRow(i.Row)
		must(t, err)
		want.Toggle(meshKey.Bucket(i.Key), meshKey.Fingerprint(i.Key, data))
	}
	must(t, s.SetDigestKey(meshKey))
	if got := s.Digest(); got != want {
		t.Errorf("the digest differs from the rows in buckets %v", got.Diff(&want))
	}
}

var meshKey = crdt.DigestKey{9}

func TestDigestFollowsEveryChange(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := newClocked(t)
		must(t, s.SetDigestKey(meshKey))
		for range 30 {
			key := row(fmt.Sprint(random.IntN(4)))
			switch random.IntN(12) {
			case 0, 1, 2, 3:
				set(t, s.Store, key, "a", fmt.Sprint(random.Int()))
			case 4, 5:
				update(t, s.Store, func(tx *store.Tx) error { return tx.Delete(key) })
			case 6, 7, 8:
				merge(t, s.Store, crdt.Item{Key: key, Row: crdt.Row{Length: 1 + random.Uint64N(6)}})
			case 9:
				collect(t, s.Store, nil)
			case 10:
				closeStore(t, s.Store)
				s = openClocked(t, s.disk, s.wall)
			case 11:
				if random.IntN(4) == 0 {
					must(t, s.Reset())
				}
			}
		}
		checkDigest(t, s.Store)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		closeStore(t, s.Store)
	}
}

func TestDigestFindsAndRepairsADifference(t *testing.T) {
	a, b := meshOfTwo(t, "same", "differs", "only here")
	for _, s := range []clocked{a, b} {
		must(t, s.SetDigestKey(meshKey))
	}
	da, db := a.Digest(), b.Digest()
	if got := da.Diff(&db); len(got) != 0 {
		t.Fatalf("equal stores differ in %v", got)
	}
	// As a bug in tier 1 and 2 would: the cursors say that there is nothing to pull.
	set(t, a.Store, row("differs"), "a", "new")
	set(t, a.Store, row("more"), "a", "v")
	update(t, b.Store, func(tx *store.Tx) error { return tx.Delete(row("only here")) })
	da, db = a.Digest(), b.Digest()
	buckets := da.Diff(&db)
	ours, err := a.Buckets(buckets)
	must(t, err)
	theirs, err := b.Buckets(buckets)
	must(t, err)
	keys := crdt.DiffEntries(ours, theirs)
	if len(keys) != 3 {
		t.Errorf("found %v", keys)
	}
	fromA, err := a.Items(keys)
	must(t, err)
	fromB, err := b.Items(keys)
	must(t, err)
	merge(t, b.Store, fromA...)
	merge(t, a.Store, fromB...)
	da, db = a.Digest(), b.Digest()
	if got := da.Diff(&db); len(got) != 0 {
		t.Errorf("still differ in %v", got)
	}
	if got := present(t, a.Store); got["only here"] != "" || got["differs"] != "a=new" {
		t.Errorf("repaired to %v", got)
	}
}

func TestDigestKeyIsKeptAndTold(t *testing.T) {
	s := newClocked(t)
	set(t, s.Store, row("m"), "a", "v")
	before := s.Digest()
	must(t, s.SetDigestKey(meshKey))
	after := s.Digest()
	if len(before.Diff(&after)) == 0 {
		t.Error("the key has no part in the digest")
	}
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	if got := s.Digest(); got != after {
		t.Error("the key was forgotten")
	}
}
