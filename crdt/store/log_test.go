package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func keysOf(items []crdt.Item) []string {
	var keys []string
	for _, i := range items {
		keys = append(keys, i.Key.String())
	}
	return keys
}

func TestLogHasOneEntryAKeyOldestChangeFirst(t *testing.T) {
	s := open(t, t.TempDir())
	for _, name := range []string{"a", "b", "c", "a", "b", "a"} {
		set(t, s, crdt.NewKey(name), "n", fmt.Sprint(s.Sequence()))
	}
	items, next := pull(t, s, 0, 1<<20)
	if got := keysOf(items); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("got %v", got)
	}
	if next != 6 || s.Sequence() != 6 {
		t.Errorf("next %d, sequence %d, want 6", next, s.Sequence())
	}
	if got := string(items[2].Row.Cells["n"].Value); got != "5" {
		t.Errorf("the log gave an old state of the row: %q", got)
	}
}

func TestLogPagesResumeAndFit(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 50 {
		set(t, s, crdt.NewKey("models", fmt.Sprint("m", i)), "a", strings.Repeat("v", i*10))
	}
	var items []crdt.Item
	pages := 0
	for seq, more := uint64(0), true; more; pages++ {
		page, err := s.Since(seq, 2000)
		if err != nil {
			t.Fatal(err)
		}
		data, err := crdt.EncodeItems(page.Items)
		if err != nil || len(data) > 2000 {
			t.Fatalf("page of %d bytes, %v", len(data), err)
		}
		if page.IndexID != s.IndexID() {
			t.Errorf("page of index %d, store of %d", page.IndexID, s.IndexID())
		}
		items, seq, more = append(items, page.Items...), page.Next, page.More
	}
	if len(items) != 50 || pages < 6 || pages > 20 {
		t.Errorf("%d items in %d pages", len(items), pages)
	}
}

func TestLogServesARowLargerThanThePage(t *testing.T) {
	s := open(t, t.TempDir())
	set(t, s, crdt.NewKey("small"), "a", "v")
	set(t, s, crdt.NewKey("large"), "a", strings.Repeat("v", 5000))
	set(t, s, crdt.NewKey("small2"), "a", "v")
	items, _ := pull(t, s, 0, 1000)
	if got := keysOf(items); !slices.Equal(got, []string{"small", "large", "small2"}) {
		t.Errorf("got %v", got)
	}
}

func TestLogRowsChangedWhilePaging(t *testing.T) {
	s := open(t, t.TempDir())
	for _, name := range []string{"a", "b", "c"} {
		set(t, s, crdt.NewKey(name), "n", "1")
	}
	page, err := s.Since(0, 1)
	if err != nil || !page.More || !slices.Equal(keysOf(page.Items), []string{"a"}) {
		t.Fatalf("first page %v, %v", keysOf(page.Items), err)
	}
	set(t, s, crdt.NewKey("b"), "n", "2")
	set(t, s, crdt.NewKey("a"), "n", "2")
	items, next := pull(t, s, page.Next, 1)
	if got := keysOf(items); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("got %v", got)
	}
	if items, after := pull(t, s, next, 1); len(items) != 0 || after != next {
		t.Errorf("there is more after the end: %v, next %d", keysOf(items), after)
	}
}

func TestLogOfAnEmptyStore(t *testing.T) {
	s := open(t, t.TempDir())
	page, err := s.Since(0, 100)
	if err != nil || len(page.Items) != 0 || page.More || page.Next != 0 {
		t.Errorf("got %+v, %v", page, err)
	}
}

// A cursor beyond the log comes from a peer that pulled from this store before it lost writes.
func TestCursorBeyondTheLogGetsEverything(t *testing.T) {
	s := open(t, t.TempDir())
	set(t, s, crdt.NewKey("a"), "n", "1")
	items, next := pull(t, s, 1000, 100)
	if len(items) != 1 || next != 1 {
		t.Errorf("got %v, next %d", keysOf(items), next)
	}
}

func TestTombstonesAreInTheLog(t *testing.T) {
	s := open(t, t.TempDir())
	set(t, s, crdt.NewKey("a"), "n", "1")
	update(t, s, func(tx *store.Tx) error { return tx.Delete(crdt.NewKey("a")) })
	items, _ := pull(t, s, 1, 100)
	if len(items) != 1 || items[0].Row.Length != 2 {
		t.Errorf("got %+v", items)
	}
}

func TestCursorsAreKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if c, err := s.Cursor("peer"); err != nil || c != (store.Cursor{}) {
		t.Errorf("unknown peer: %+v, %v", c, err)
	}
	want := store.Cursor{IndexID: 1<<63 + 5, Seq: 9, Proof: [16]byte{1, 15: 16}}
	if err := s.SetCursor("peer", want); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = open(t, dir)
	if c, err := s.Cursor("peer"); err != nil || c != want {
		t.Errorf("got %+v, %v", c, err)
	}
	if c, err := s.Cursor("peer2"); err != nil || c != (store.Cursor{}) {
		t.Errorf("a peer with a longer name: %+v, %v", c, err)
	}
	if err := s.SetCursor("", want); !errors.Is(err, crdt.ErrMalformed) {
		t.Errorf("cursor without a peer: %v", err)
	}
}

func TestResetDropsTheMeshAndKeepsTheStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	// More than one transaction of deletes.
	var items []crdt.Item
	for i := range 2500 {
		items = append(items, item(crdt.NewKey("models", fmt.Sprint(i)), "a", remote(1, 2, "v")))
	}
	merge(t, s, items...)
	if err := errors.Join(s.SetCursor("peer", store.Cursor{IndexID: 1, Seq: 2}), s.SetMeta("boot", []byte("7"))); err != nil {
		t.Fatal(err)
	}
	id, index := s.ID(), s.IndexID()
	w := s.Watch("other")
	defer w.Close()
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if len(w.C) != 1 {
		t.Error("a watch did not hear of the reset")
	}
	check := func(when string) {
		t.Helper()
		rows := all(t, s)
		cursor, err := s.Cursor("peer")
		if err != nil || len(rows) != 0 || s.Sequence() != 0 || cursor != (store.Cursor{}) {
			t.Errorf("%s: %d rows, sequence %d, cursor %+v, %v", when, len(rows), s.Sequence(), cursor, err)
		}
		if meta, known, err := s.Meta("boot"); !known || err != nil || string(meta) != "7" {
			t.Errorf("%s: meta %q, %v, %v", when, meta, known, err)
		}
		if s.ID() != id || s.IndexID() == index {
			t.Errorf("%s: ID %d was %d, index ID %d was %d", when, s.ID(), id, s.IndexID(), index)
		}
	}
	check("after the reset")
	index2 := s.IndexID()
	closeStore(t, s)
	s = open(t, dir)
	check("after reopening")
	if s.IndexID() != index2 {
		t.Error("the new index ID was not kept")
	}
	set(t, s, crdt.NewKey("models", "new"), "a", "v")
	if s.Sequence() != 1 {
		t.Errorf("the log goes on at %d", s.Sequence())
	}
}

func TestInterruptedResetIsFinishedByOpen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	set(t, s, crdt.NewKey("a"), "a", "old mesh")
	closeStore(t, s)
	poke(t, dir, map[string][]byte{"m/sys/reset": {}})
	s = open(t, dir)
	if rows := all(t, s); len(rows) != 0 || s.Sequence() != 0 {
		t.Errorf("%d rows of the old mesh are left, sequence %d", len(rows), s.Sequence())
	}
	set(t, s, crdt.NewKey("b"), "a", "new mesh")
	closeStore(t, s)
	if s = open(t, dir); len(all(t, s)) != 1 {
		t.Error("the reset was done again")
	}
}
