package mesh

import (
	"context"
	"fmt"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// rowsFor counts what a tells b that pulls for the first time.
func rowsFor(t *testing.T, b, a *box, known *syncKnown) (rows int) {
	t.Helper()
	v := b.mesh.view.Load()
	s, err := b.mesh.open(context.Background(), a.peer(), protocolSync)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	members, err := b.store.List(nsMembers)
	if err != nil {
		t.Fatal(err)
	}
	roster, err := digestRows(members)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.mesh.writeSync(s, syncAsk{Kind: askPull, Mesh: v.mesh[:], Roster: roster, Known: known}); err != nil {
		t.Fatal(err)
	}
	for {
		var page syncPage
		if err := b.mesh.readSync(s, &page); err != nil {
			t.Fatal(err)
		}
		if len(page.Items) > 0 {
			items, err := crdt.DecodeItems(page.Items)
			if err != nil {
				t.Fatal(err)
			}
			rows += len(items)
		}
		if !page.More {
			return rows
		}
	}
}

// TestEqualBoxesPullNothingFromEachOther: two that have the same rows from others, and one
// whose peer has a new log.
func TestEqualBoxesPullNothingFromEachOther(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	_, err := a.store.Update(func(tx *store.Tx) error {
		for i := range 400 {
			if err := tx.Set(crdt.NewKey("things", fmt.Sprint(i)), "v", []byte("1")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	equal := func() bool { return a.store.Digest() == b.store.Digest() }
	eventually(t, "both have the same", equal)
	if rows := rowsFor(t, b, a, nil); rows < 400 {
		t.Fatalf("without a comparison %d rows are told", rows)
	}
	eventually(t, "nothing but rows that no digest has", func() bool { return rowsFor(t, b, a, b.mesh.compareFirst(a.peer())) < 5 })
	b.mesh.puller.hold()
	a.store.OnLocalWrite(func([]crdt.Item) {})
	a.put("17", "2")
	a.put("new", "3")
	if rows := rowsFor(t, b, a, b.mesh.compareFirst(a.peer())); rows < 2 || rows > 7 {
		t.Errorf("two changes: %d rows are told", rows)
	}
	// The whole pull, after the peer's log began anew.
	if err := a.store.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := b.mesh.pull(context.Background(), a.peer()); err != nil {
		t.Fatal(err)
	}
	cursor, err := b.store.Cursor(a.id())
	if err != nil || cursor.IndexID != a.store.IndexID() || cursor.Seq != a.store.Sequence() || b.get("17") != "2" || b.get("new") != "3" {
		t.Errorf("cursor %+v, log %d at %d, rows %q %q: %v", cursor, a.store.IndexID(), a.store.Sequence(), b.get("17"), b.get("new"), err)
	}
}

// TestComparisonsThatHelpNobody: one of another log, and one that names what is not there.
func TestComparisonsThatHelpNobody(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	a.put("x", "1")
	all := rowsFor(t, b, a, nil)
	if got := rowsFor(t, b, a, &syncKnown{Index: a.store.IndexID() + 1, Until: 1 << 60}); got < all {
		t.Errorf("%d of %d rows for one who compared with another log", got, all)
	}
	if got := rowsFor(t, b, a, &syncKnown{Index: a.store.IndexID(), Until: 0, Buckets: []int{-1, 5000}, Has: []uint64{1}}); got < all {
		t.Errorf("%d of %d rows for one who knows nothing", got, all)
	}
	if known := b.mesh.compareFirst(a.peer()); known != nil {
		t.Errorf("compared for a few rows: %+v", known)
	}
}
