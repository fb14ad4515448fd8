package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// sync lets to pull everything from from, as members do.
func syncFrom(t *testing.T, to, from clocked, name string) {
	t.Helper()
	told := from.MeshUptime()
	cursor, err := to.Cursor(name)
	must(t, err)
	if cursor.IndexID != from.IndexID() {
		cursor.Seq = 0
	}
	items, next := pull(t, from.Store, cursor.Seq, 1000)
	merge(t, to.Store, items...)
	must(t, to.SetCursor(name, store.Cursor{IndexID: from.IndexID(), Seq: next}))
	if _, err := from.NoteAck(store.Cursor{IndexID: from.IndexID(), Seq: next}); err != nil {
		t.Fatal(err)
	}
	must(t, to.NoteSync(told))
}

// reseed lets to re-seed from a peer.
func reseed(t *testing.T, to, from clocked, name string) {
	t.Helper()
	told := from.MeshUptime()
	r, err := to.BeginReseed()
	must(t, err)
	items, next := pull(t, from.Store, 0, 1000)
	must(t, r.Merge(items))
	must(t, r.Finish(name, store.Cursor{IndexID: from.IndexID(), Seq: next}, told))
}

func row(name string) crdt.Key { return crdt.NewKey("models", name) }

// meshOf two stores that have the same rows.
func meshOfTwo(t *testing.T, names ...string) (a, b clocked) {
	t.Helper()
	a, b = newClocked(t), newClocked(t)
	for _, n := range names {
		set(t, a.Store, row(n), "a", "from a")
	}
	uptime(t, a.Store, time.Hour)
	uptime(t, b.Store, time.Hour)
	syncFrom(t, b, a, "a")
	syncFrom(t, a, b, "b")
	return a, b
}

func TestAllNodesAwayForAMonth(t *testing.T) {
	a, b := meshOfTwo(t, "kept", "gone")
	update(t, a.Store, func(tx *store.Tx) error { return tx.Delete(row("gone")) })
	// Everything is off, and a clock comes up wrong.
	*a.wall, *b.wall = a.wall.Add(30*day), b.wall.Add(-300*day)
	if a.Overdue(b.MeshUptime()) || b.Overdue(a.MeshUptime()) {
		t.Error("a mesh that was switched off for a month would re-seed")
	}
	if got := collect(t, a.Store, map[string]store.Cursor{"b": {}}); got.Kept != 1 {
		t.Errorf("a tombstone went while everything was off: %+v", got)
	}
	syncFrom(t, b, a, "a")
	if here, _, err := b.Get(row("gone")); here.Present() || err != nil {
		t.Errorf("the deletion did not arrive: %+v, %v", here, err)
	}
}

func TestOneNodeAwayForAMonth(t *testing.T) {
	a, b := meshOfTwo(t, "kept", "gone", "edited")
	// b writes while it is cut off: a new row, one made and deleted, an edit, an edit of a row that goes meanwhile.
	set(t, b.Store, row("made"), "a", "by b")
	set(t, b.Store, row("passing"), "a", "by b")
	update(t, b.Store, func(tx *store.Tx) error { return tx.Delete(row("passing")) })
	set(t, b.Store, row("edited"), "b", "by b")
	set(t, b.Store, row("gone"), "b", "by b")
	// And it holds something of a third node that nobody else has.
	merge(t, b.Store, item(row("foreign"), "a", remote(5, 77, "by another")))
	// The mesh goes on for a month, and forgets the deletion.
	update(t, a.Store, func(tx *store.Tx) error { return tx.Delete(row("gone")) })
	uptime(t, a.Store, 30*day)
	if got := collect(t, a.Store, map[string]store.Cursor{"b": {}}); got.Aged != 1 {
		t.Fatalf("got %+v", got)
	}
	if !b.Overdue(a.MeshUptime()) {
		t.Fatal("the returning node does not know that it is overdue")
	}
	if a.Overdue(b.MeshUptime()) {
		t.Error("the mesh takes itself for overdue")
	}
	index, w := b.IndexID(), b.Watch("other")
	defer w.Close()
	reseed(t, b, a, "a")
	want := map[string]string{"kept": "a=from a", "edited": "a=from a b=by b", "made": "a=by b"}
	if diff := cmp.Diff(want, present(t, b.Store)); diff != "" {
		t.Errorf("after the re-seed: %s", diff)
	}
	if b.IndexID() == index || len(w.C) != 1 || b.Overdue(a.MeshUptime()) {
		t.Errorf("index kept: %v, notices %d, overdue %v", b.IndexID() == index, len(w.C), b.Overdue(a.MeshUptime()))
	}
	if c, err := b.Cursor("a"); err != nil || c.IndexID != a.IndexID() || c.Seq != a.Sequence() {
		t.Errorf("cursor %+v, %v", c, err)
	}
	// What b wrote reaches the mesh now, and only then is it settled.
	syncFrom(t, a, b, "b")
	syncFrom(t, b, a, "a")
	if diff := cmp.Diff(want, present(t, a.Store)); diff != "" {
		t.Errorf("at the peer: %s", diff)
	}
	closeStore(t, b.Store)
	b = openClocked(t, b.disk, b.wall)
	if diff := cmp.Diff(want, present(t, b.Store)); diff != "" {
		t.Errorf("after reopening: %s", diff)
	}
	checkDigest(t, b.Store)
}

// present shows the present rows of the models.
func present(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	items, err := s.List("models")
	must(t, err)
	out := map[string]string{}
	for _, i := range items {
		parts, err := i.Key.Parts()
		must(t, err)
		text := ""
		for _, name := range i.Row.Names() {
			text += " " + name + "=" + string(i.Row.Cells[name].Value)
		}
		out[parts[0]] = text[1:]
	}
	return out
}

// A node that returns with its own deletions: they must not be lost, and must not age at once by the mesh's time.
func TestDeletionMadeWhileAwayCounts(t *testing.T) {
	a, b := meshOfTwo(t, "m")
	update(t, b.Store, func(tx *store.Tx) error { return tx.Delete(row("m")) })
	uptime(t, a.Store, 30*day)
	reseed(t, b, a, "a")
	if got := collect(t, b.Store, map[string]store.Cursor{"a": {}}); got.Kept != 1 {
		t.Errorf("the deletion was dropped before anybody knew of it: %+v", got)
	}
	syncFrom(t, a, b, "b")
	if got := present(t, a.Store); len(got) != 0 {
		t.Errorf("the row is still there: %v", got)
	}
}

func TestRecreationElsewhereBeatsWhatWasWrittenAway(t *testing.T) {
	a, b := meshOfTwo(t, "m")
	set(t, b.Store, row("m"), "a", "edited away")
	update(t, a.Store, func(tx *store.Tx) error { return tx.Delete(row("m")) })
	set(t, a.Store, row("m"), "a", "made again")
	uptime(t, a.Store, 30*day)
	reseed(t, b, a, "a")
	if diff := cmp.Diff(map[string]string{"m": "a=made again"}, present(t, b.Store)); diff != "" {
		t.Error(diff)
	}
}

func TestWritesThatAPeerHasAreNotWrittenAgain(t *testing.T) {
	a, b := meshOfTwo(t)
	set(t, b.Store, row("m"), "a", "by b")
	syncFrom(t, a, b, "b")
	update(t, a.Store, func(tx *store.Tx) error { return tx.Delete(row("m")) })
	uptime(t, a.Store, 30*day)
	if got := collect(t, a.Store, map[string]store.Cursor{"b": {}}); got.Aged != 1 {
		t.Fatalf("got %+v", got)
	}
	reseed(t, b, a, "a")
	if got := present(t, b.Store); len(got) != 0 {
		t.Errorf("a deleted row came back: %v", got)
	}
}

func TestWhoHoldsRowsAndNeverSyncedIsOverdue(t *testing.T) {
	s := newClocked(t)
	if s.Overdue(1000 * day) {
		t.Error("an empty store is overdue")
	}
	set(t, s.Store, row("m"), "a", "v")
	if s.Overdue(12*day) || !s.Overdue(13*day) {
		t.Error("a store that has not pulled yet counts from the mesh's beginning")
	}
	must(t, s.NoteSync(1000*day))
	if s.MeshUptime() != 1000*day || s.Overdue(1012*day) || !s.Overdue(1013*day) {
		t.Errorf("mesh uptime %s, overdue %v, %v", s.MeshUptime(), s.Overdue(1012*day), s.Overdue(1013*day))
	}
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	if s.Overdue(1012*day) || !s.Overdue(1013*day) {
		t.Error("reopening forgot the last sync")
	}
	must(t, s.MergeNormally(1013*day))
	if s.Overdue(1013 * day) {
		t.Error("still overdue after merging normally")
	}
}

func TestReseedRefusesWhatWouldMix(t *testing.T) {
	a, b := meshOfTwo(t, "m")
	r, err := b.BeginReseed()
	must(t, err)
	if _, err := b.Since(0, 1000); !errors.Is(err, store.ErrReseeding) {
		t.Errorf("rows are told during a re-seed: %v", err)
	}
	if _, err := b.BeginReseed(); !errors.Is(err, store.ErrReseeding) {
		t.Errorf("a second re-seed: %v", err)
	}
	if err := r.Merge([]crdt.Item{{Key: "\x05a", Row: crdt.Row{Length: 1}}}); !errors.Is(err, crdt.ErrMalformed) {
		t.Errorf("a malformed key: %v", err)
	}
	must(t, r.Abort())
	if diff := cmp.Diff(present(t, a.Store), present(t, b.Store)); diff != "" {
		t.Errorf("an aborted re-seed changed the store: %s", diff)
	}
	if err := r.Finish("a", store.Cursor{}, 0); !errors.Is(err, store.ErrReseedOver) {
		t.Errorf("finished after the end: %v", err)
	}
	r, err = b.BeginReseed()
	must(t, err)
	must(t, b.Reset())
	if err := r.Merge(nil); !errors.Is(err, store.ErrReseedOver) {
		t.Errorf("rows of the mesh that was left are taken: %v", err)
	}
	if _, err := b.Since(0, 1000); err != nil {
		t.Errorf("after the reset: %v", err)
	}
}

// A crash at any point of a re-seed leaves the old rows or the new ones.
func TestCrashDuringReseed(t *testing.T) {
	a, b := meshOfTwo(t, "kept", "gone")
	set(t, b.Store, row("made"), "a", "by b")
	old := present(t, b.Store)
	update(t, a.Store, func(tx *store.Tx) error { return tx.Delete(row("gone")) })
	for i := range 30 {
		set(t, a.Store, row(fmt.Sprint("new", i)), "a", "v")
	}
	uptime(t, a.Store, 30*day)
	collect(t, a.Store, map[string]store.Cursor{"b": {}})
	want := present(t, a.Store)
	want["made"] = "a=by b"
	told := a.MeshUptime()
	items, next := pull(t, a.Store, 0, 1<<20)
	for crashAt := range 12 {
		disk, err := b.disk.Copy()
		must(t, err)
		wall := *b.wall
		s := openClocked(t, disk, &wall)
		var left *store.Disk
		syncs := 0
		s.OnSync(func() {
			if syncs++; syncs == crashAt+1 {
				left, err = disk.Copy()
				must(t, err)
			}
		})
		r, err := s.BeginReseed()
		must(t, err)
		must(t, r.Merge(items))
		must(t, r.Finish("a", store.Cursor{IndexID: a.IndexID(), Seq: next}, told))
		if diff := cmp.Diff(want, present(t, s.Store)); diff != "" {
			t.Fatalf("without a crash: %s", diff)
		}
		if left == nil {
			if crashAt < 6 {
				t.Errorf("the re-seed took only %d syncs", syncs)
			}
			return
		}
		again := openClocked(t, left, &wall)
		got := present(t, again.Store)
		if again.Overdue(told) {
			if diff := cmp.Diff(old, got); diff != "" {
				t.Errorf("crash at sync %d, not swapped: %s", crashAt, diff)
			}
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("crash at sync %d, swapped: %s", crashAt, diff)
		}
		checkDigest(t, again.Store)
	}
	t.Error("the re-seed never came to its end")
}

// Whatever the peer holds at no higher Length cannot have been deleted unseen: it is merged, whoever wrote it.
// TestReseedKeepsNoLifeThatThePeerDoesNotKnow: the peer has the tombstone of an earlier life, and the mesh has forgotten that of
// this one. What the box made itself and told nobody stays all the same.
func TestReseedKeepsNoLifeThatThePeerDoesNotKnow(t *testing.T) {
	a, b := meshOfTwo(t, "again", "own", "aside", "younger")
	for _, name := range []string{"again", "own", "aside", "younger"} {
		update(t, a.Store, func(tx *store.Tx) error { return tx.Delete(row(name)) })
	}
	syncFrom(t, b, a, "a")
	dead, _, err := b.Get(row("again"))
	must(t, err)
	alive := func(name string, stamp crdt.HLC) crdt.Item {
		return crdt.Item{Key: row(name), Row: crdt.Row{Length: dead.Length + 1, Cells: map[string]crdt.Cell{"a": remote(stamp, 77, "of a third node")}}}
	}
	merge(t, b.Store, alive("again", 5), alive("aside", 1<<62))
	set(t, b.Store, row("own"), "a", "by b alone")
	update(t, a.Store, func(tx *store.Tx) error { return tx.Set(row("younger"), "a", []byte("of a")) })
	merge(t, b.Store, alive("younger", 5))
	uptime(t, a.Store, 30*day)
	reseed(t, b, a, "a")
	for name, want := range map[string]string{"again": "", "own": "by b alone", "aside": "", "younger": "of a"} {
		got, _, err := b.Get(row(name))
		if err != nil || string(got.Cells["a"].Value) != want || got.Present() != (want != "") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if waiting, err := b.Aside(); err != nil || len(waiting) > 0 {
		t.Errorf("set aside: %+v, %v", waiting, err)
	}
	report, err := b.Verify()
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("verify: %v, %v", report.Problems, err)
	}
}

func TestReseedMergesWhatThePeerHoldsToo(t *testing.T) {
	a, b := meshOfTwo(t, "deleted by another", "edited by another")
	merge(t, b.Store, crdt.Item{Key: row("deleted by another"), Row: crdt.Row{Length: 2}},
		item(row("edited by another"), "b", remote(5, 77, "by another")))
	uptime(t, a.Store, 30*day)
	reseed(t, b, a, "a")
	if diff := cmp.Diff(map[string]string{"edited by another": "a=from a b=by another"}, present(t, b.Store)); diff != "" {
		t.Error(diff)
	}
}
