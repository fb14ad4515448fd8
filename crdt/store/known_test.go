package store_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// known is what b has of a, as a comparison of digests tells.
func known(t *testing.T, a, b *store.Store) store.Known {
	t.Helper()
	digest, until := a.DigestUntil()
	k, err := b.KnownBeside(&digest, until.Seq, 1000)
	must(t, err)
	return k
}

// pullBut reads the log of a from the start without what is known.
func pullBut(t *testing.T, a *store.Store, k store.Known) (items []crdt.Item) {
	t.Helper()
	for seq, more := uint64(0), true; more; {
		page, err := a.SinceBut(seq, 300, k)
		must(t, err)
		items, seq, more = append(items, page.Items...), page.Next, page.More
	}
	return items
}

func rowsOf(n int, stamp crdt.HLC) (items []crdt.Item) {
	for i := range n {
		items = append(items, item(crdt.NewKey("models", fmt.Sprint(i)), "a", remote(stamp, 1<<60, "v")))
	}
	return items
}

func TestRowsThatAreKnownAreNotTold(t *testing.T) {
	a, b := newClocked(t), newClocked(t)
	merge(t, a.Store, rowsOf(300, 1<<40)...)
	merge(t, b.Store, rowsOf(300, 1<<40)...)
	if got := pullBut(t, a.Store, known(t, a.Store, b.Store)); len(got) != 0 {
		t.Errorf("equal stores: %d rows", len(got))
	}
	one := item(crdt.NewKey("models", "17"), "b", remote(1<<41, 1<<60, "w"))
	gone := crdt.Item{Key: crdt.NewKey("models", "18"), Row: crdt.Row{Length: 2}}
	merge(t, a.Store, one, gone)
	k := known(t, a.Store, b.Store)
	got := pullBut(t, a.Store, k)
	if len(got) != 2 {
		t.Errorf("a change and a deletion: %d rows", len(got))
	}
	// What changes after the digest is told in whatever bucket it lies, also when it changed back to what was known then.
	for i := range 300 {
		merge(t, a.Store, item(crdt.NewKey("models", fmt.Sprint(i)), "c", remote(1<<42, 1<<60, "x")))
	}
	if got := pullBut(t, a.Store, k); len(got) != 300 {
		t.Errorf("all changed since: %d rows", len(got))
	}
	merge(t, b.Store, got...)
	if got := pullBut(t, a.Store, store.Known{}); len(got) != 300 {
		t.Errorf("nothing is known: %d rows", len(got))
	}
}

// Whatever two stores hold, what is told makes the one that asks have all of the other.
func TestNothingIsMissingAfterAComparison(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, b := newClocked(t), newClocked(t)
		defer closeStore(t, a.Store)
		defer closeStore(t, b.Store)
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) crdt.Item {
			i := item(crdt.NewKey("models", fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "key"))), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "cell"),
				remote(crdt.HLC(rapid.Uint64Range(1, 4).Draw(t, "at")), 1<<60, "v"))
			if rapid.IntRange(0, 5).Draw(t, "gone") == 0 {
				i.Row = crdt.Row{Length: 2}
			}
			return i
		}), 0, 30)
		merge(t, a.Store, items.Draw(r, "a")...)
		merge(t, b.Store, items.Draw(r, "b")...)
		k := known(t, a.Store, b.Store)
		merge(t, a.Store, items.Draw(r, "meanwhile")...)
		merge(t, b.Store, pullBut(t, a.Store, k)...)
		before := all(t, b.Store)
		if changed := merge(t, b.Store, pullBut(t, a.Store, store.Known{})...); len(changed) != 0 {
			r.Fatalf("%v were missing, of %v", changed, before)
		}
	})
}
