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

const day = 24 * time.Hour

// deleted makes a store with a row that was deleted.
func deleted(t *testing.T, name string) (clocked, crdt.Key) {
	t.Helper()
	s, key := newClocked(t), crdt.NewKey("models", name)
	set(t, s.Store, key, "a", "v")
	update(t, s.Store, func(tx *store.Tx) error { return tx.Delete(key) })
	return s, key
}

func uptime(t *testing.T, s *store.Store, d time.Duration) {
	t.Helper()
	must(t, s.AddUptime(d))
}

func collect(t *testing.T, s *store.Store, members map[string]store.Cursor) store.Collected {
	t.Helper()
	got, err := s.CollectTombstones(members)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func here(t *testing.T, s *store.Store, key crdt.Key) bool {
	t.Helper()
	items, err := s.Items([]crdt.Key{key})
	must(t, err)
	return len(items) == 1
}

func TestTombstoneGoesOnceAllMembersHaveIt(t *testing.T) {
	s, key := deleted(t, "m")
	at := func(seq uint64) store.Cursor { return store.Cursor{IndexID: s.IndexID(), Seq: seq} }
	uptime(t, s.Store, time.Hour)
	for _, tc := range []struct {
		name     string
		members  map[string]store.Cursor
		blocking map[string]int
	}{
		{"one never told", map[string]store.Cursor{"a": at(2), "b": {}}, map[string]int{"b": 1}},
		{"one is behind", map[string]store.Cursor{"a": at(1), "b": at(2)}, map[string]int{"a": 1}},
		{"one tells of another life", map[string]store.Cursor{"a": {IndexID: 1, Seq: 9}}, map[string]int{"a": 1}},
	} {
		got := collect(t, s.Store, tc.members)
		if diff := cmp.Diff(store.Collected{Kept: 1, Blocking: tc.blocking}, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
	got := collect(t, s.Store, map[string]store.Cursor{"a": at(2), "b": at(2)})
	if got.Stable != 1 || got.Kept != 0 || here(t, s.Store, key) {
		t.Errorf("acknowledged by all: %+v", got)
	}
	if items, next := pull(t, s.Store, 0, 1<<20); len(items) != 0 || next != 2 {
		t.Errorf("the log holds %v and ends at %d", items, next)
	}
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	set(t, s.Store, crdt.NewKey("models", "next"), "a", "v")
	if s.Sequence() != 3 {
		t.Errorf("a number of the log was given out again: %d", s.Sequence())
	}
}

func TestTombstoneStaysWhileAMessageMayBeUnderWay(t *testing.T) {
	s, key := deleted(t, "m")
	all := map[string]store.Cursor{"a": {IndexID: s.IndexID(), Seq: 2}}
	if got := collect(t, s.Store, all); got.Kept != 1 || len(got.Blocking) != 0 {
		t.Errorf("at once: %+v", got)
	}
	uptime(t, s.Store, 10*time.Minute)
	if got := collect(t, s.Store, all); got.Stable != 1 || here(t, s.Store, key) {
		t.Errorf("ten minutes later: %+v", got)
	}
}

func TestTombstoneOfAMeshOfOneGoesAtOnce(t *testing.T) {
	s, key := deleted(t, "m")
	if got := collect(t, s.Store, nil); got.Stable != 1 || here(t, s.Store, key) {
		t.Errorf("got %+v", got)
	}
}

// Age is time with peers: neither the wall clock nor a mesh that is switched off makes a tombstone older.
func TestTombstoneAgesByUptimeAlone(t *testing.T) {
	s, key := deleted(t, "m")
	silent := map[string]store.Cursor{"away": {}}
	for _, step := range []time.Duration{40 * day, -400 * day, 100 * 365 * day} {
		*s.wall = s.wall.Add(step)
		if got := collect(t, s.Store, silent); got.Kept != 1 {
			t.Errorf("after a clock step of %s: %+v", step, got)
		}
	}
	uptime(t, s.Store, store.TombstoneAge-time.Second)
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	if got := collect(t, s.Store, silent); got.Kept != 1 {
		t.Errorf("a second too early: %+v", got)
	}
	uptime(t, s.Store, time.Second)
	if got := collect(t, s.Store, silent); got.Aged != 1 || here(t, s.Store, key) {
		t.Errorf("aged: %+v", got)
	}
	if err := s.AddUptime(-time.Second); err == nil {
		t.Error("uptime ran backwards")
	}
}

func TestAgeBeginsAnewWithEachDeletion(t *testing.T) {
	s, key := deleted(t, "m")
	uptime(t, s.Store, 13*day)
	set(t, s.Store, key, "a", "again")
	if got := collect(t, s.Store, map[string]store.Cursor{"away": {}}); got.Kept != 0 {
		t.Errorf("a row that is present again counts as a tombstone: %+v", got)
	}
	update(t, s.Store, func(tx *store.Tx) error { return tx.Delete(key) })
	uptime(t, s.Store, 2*day)
	if got := collect(t, s.Store, map[string]store.Cursor{"away": {}}); got.Kept != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestLateTombstoneOfAPeerIsYoungHere(t *testing.T) {
	s := newClocked(t)
	uptime(t, s.Store, 100*day)
	merge(t, s.Store, crdt.Item{Key: crdt.NewKey("models", "m"), Row: crdt.Row{Length: 2}})
	if got := collect(t, s.Store, map[string]store.Cursor{"away": {}}); got.Kept != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestManyTombstonesAreCollectedInPages(t *testing.T) {
	s := newClocked(t)
	var items []crdt.Item
	for i := range 2500 {
		items = append(items, crdt.Item{Key: crdt.NewKey("models", fmt.Sprint(i)), Row: crdt.Row{Length: 2}})
	}
	merge(t, s.Store, items...)
	if got := collect(t, s.Store, nil); got.Stable != 2500 || len(all(t, s.Store)) != 0 {
		t.Errorf("got %+v", got)
	}
}

// What waits aside of a row's former life must not come back once its tombstone is gone.
func TestCollectingTakesTheWaitingCellsAlong(t *testing.T) {
	s, key := deleted(t, "m")
	merge(t, s.Store, item(key, "far", remote(crdt.StampOf(start.Add(50*time.Hour)), 7, "v")))
	collect(t, s.Store, nil)
	*s.wall = start.Add(100 * time.Hour)
	merge(t, s.Store)
	if here(t, s.Store, key) {
		t.Error("the deleted row came back")
	}
}

func TestTombstonesOfAnOlderStoreGetAnAge(t *testing.T) {
	dir := t.TempDir()
	s, key := open(t, dir), crdt.NewKey("models", "m")
	uptime(t, s, 20*day)
	merge(t, s, crdt.Item{Key: key, Row: crdt.Row{Length: 2}})
	closeStore(t, s)
	poke(t, dir, map[string][]byte{"t/" + string(key): nil})
	s = open(t, dir)
	if got := collect(t, s, map[string]store.Cursor{"away": {}}); got.Kept != 1 {
		t.Errorf("got %+v", got)
	}
	uptime(t, s, store.TombstoneAge)
	if got := collect(t, s, map[string]store.Cursor{"away": {}}); got.Aged != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestFailedCollectionKeepsEverything(t *testing.T) {
	s, key := deleted(t, "m")
	s.FailSync(errors.New("input/output error"))
	if _, err := s.CollectTombstones(nil); !errors.Is(err, store.ErrFailed) {
		t.Errorf("got %v", err)
	}
	_ = key
}
