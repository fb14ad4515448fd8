package store_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// clocked is a store whose wall clock the test moves.
type clocked struct {
	*store.Store
	wall *time.Time
	disk *store.Disk
}

func openClocked(t *testing.T, disk *store.Disk, wall *time.Time) clocked {
	t.Helper()
	s := openWith(t, "", store.Options{Now: func() time.Time { return *wall }, Disk: disk})
	return clocked{Store: s, wall: wall, disk: disk}
}

func newClocked(t *testing.T) clocked {
	wall := start
	return openClocked(t, store.NewDisk(), &wall)
}

func asideOf(t *testing.T, s *store.Store) []string {
	t.Helper()
	cells, err := s.Aside()
	must(t, err)
	var out []string
	for _, c := range cells {
		out = append(out, fmt.Sprintf("%s.%s by %d in %s", c.Key, c.Cell, c.By, c.Until.Sub(start)))
	}
	return out
}

func TestFarFutureWaitsAside(t *testing.T) {
	s := newClocked(t)
	key, other := crdt.NewKey("models", "m"), crdt.NewKey("models", "other")
	at := func(d time.Duration) crdt.HLC { return crdt.StampOf(start.Add(d)) }
	row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{
		"near": remote(at(24*time.Hour), 7, "near"), "far": remote(at(30*time.Hour), 7, "far"), "farther": remote(at(100*time.Hour), 8, "farther"),
	}}
	changed := merge(t, s.Store, crdt.Item{Key: key, Row: row}, item(other, "a", remote(at(48*time.Hour), 8, "alone")))
	if len(changed) != 1 || value(t, s.Store, key, "near") != "near" || value(t, s.Store, key, "far") != "" {
		t.Errorf("changed %v, row %+v", changed, rowOf(t, s.Store, key))
	}
	if row, present, err := s.Get(other); present || err != nil {
		t.Errorf("a row with nothing but far stamps is shown: %+v, %v", row, err)
	}
	want := []string{"models/m.far by 7 in 6h0m0s", "models/m.farther by 8 in 76h0m0s", "models/other.a by 8 in 24h0m0s"}
	if diff := cmp.Diff(want, asideOf(t, s.Store)); diff != "" {
		t.Error(diff)
	}
	if items, _ := pull(t, s.Store, 0, 1<<20); len(items) != 1 || len(items[0].Row.Cells) != 1 {
		t.Errorf("what waits aside is passed on: %+v", items)
	}

	*s.wall = start.Add(6 * time.Hour)
	merge(t, s.Store)
	if got := value(t, s.Store, key, "far"); got != "far" || len(asideOf(t, s.Store)) != 2 {
		t.Errorf("due and not merged by the next merge: %q, %v", got, asideOf(t, s.Store))
	}
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	if diff := cmp.Diff(want[1:], asideOf(t, s.Store)); diff != "" {
		t.Errorf("after reopening: %s", diff)
	}
	*s.wall = start.Add(24 * time.Hour)
	w := s.Watch("models")
	defer w.Close()
	keys, err := s.ReleaseAside()
	if err != nil || len(keys) != 1 || keys[0] != other || len(w.C) != 1 {
		t.Errorf("released %v, %v, notices %d", keys, err, len(w.C))
	}
	*s.wall = start.Add(76 * time.Hour)
	keys, err = s.ReleaseAside()
	if err != nil || len(keys) != 1 || value(t, s.Store, key, "farther") != "farther" || len(asideOf(t, s.Store)) != 0 {
		t.Errorf("released %v, %v, left %v", keys, err, asideOf(t, s.Store))
	}
	if again, err := s.ReleaseAside(); err != nil || len(again) != 0 {
		t.Errorf("released again: %v, %v", again, err)
	}
}

func TestManyRowsWaitAside(t *testing.T) {
	s := newClocked(t)
	var items []crdt.Item
	for i := range 3000 {
		items = append(items, item(crdt.NewKey("models", fmt.Sprint(i)), "a", remote(crdt.StampOf(start.Add(48*time.Hour)), 7, "v")))
	}
	merge(t, s.Store, items...)
	merge(t, s.Store, items...)
	if got := len(asideOf(t, s.Store)); got != len(items) || s.Sequence() != 0 {
		t.Errorf("%d wait, sequence %d", got, s.Sequence())
	}
	*s.wall = start.Add(24 * time.Hour)
	if keys, err := s.ReleaseAside(); err != nil || len(keys) != len(items) || len(asideOf(t, s.Store)) != 0 {
		t.Errorf("released %d, %v", len(keys), err)
	}
}

func TestTombstoneOutlivesWhatWaitsAside(t *testing.T) {
	s := newClocked(t)
	key := crdt.NewKey("models", "m")
	merge(t, s.Store, item(key, "a", remote(crdt.StampOf(start.Add(48*time.Hour)), 7, "v")))
	merge(t, s.Store, crdt.Item{Key: key, Row: crdt.Row{Length: 2}})
	*s.wall = start.Add(48 * time.Hour)
	merge(t, s.Store)
	if row, present, err := s.Get(key); present || row.Length != 2 || err != nil {
		t.Errorf("the deleted row came back: %+v, %v", row, err)
	}
}

// A node that boots with its clock in 1970 knows from its own past, or from its peers, that it is later.
func TestClockFarBehindSetsNothingAside(t *testing.T) {
	s := newClocked(t)
	set(t, s.Store, crdt.NewKey("a"), "a", "v")
	closeStore(t, s.Store)
	*s.wall = time.Unix(100, 0)
	s = openClocked(t, s.disk, s.wall)
	merge(t, s.Store, item(crdt.NewKey("b"), "a", remote(crdt.StampOf(start.Add(20*time.Hour)), 7, "v")))
	if got := asideOf(t, s.Store); len(got) != 0 {
		t.Errorf("set aside although the store has seen that time: %v", got)
	}
	merge(t, s.Store, item(crdt.NewKey("c"), "a", remote(crdt.StampOf(start.Add(20*24*time.Hour)), 7, "v")))
	if got := asideOf(t, s.Store); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	s.SetBehind(start.Add(20 * 24 * time.Hour).Sub(*s.wall))
	merge(t, s.Store)
	if got := asideOf(t, s.Store); len(got) != 0 {
		t.Errorf("the clock is known to be behind, and still wait: %v", got)
	}
}

func TestResetDropsWhatWaitsAside(t *testing.T) {
	s := newClocked(t)
	merge(t, s.Store, item(crdt.NewKey("a"), "a", remote(math.MaxUint64, 7, "never due")))
	must(t, s.Reset())
	if got := asideOf(t, s.Store); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestLeadsNameTheWriterAndItsNewestStamp(t *testing.T) {
	s := newClocked(t)
	write := func(by crdt.ReplicaID, ahead time.Duration) {
		merge(t, s.Store, item(crdt.NewKey("models", fmt.Sprint(by)), "a", remote(crdt.StampOf(s.wall.Add(ahead)), by, "v")))
	}
	leads := func() map[crdt.ReplicaID]time.Duration {
		out := map[crdt.ReplicaID]time.Duration{}
		for _, l := range s.Leads() {
			out[l.By] = l.Lead
		}
		return out
	}
	write(1, time.Minute)
	write(2, time.Hour)
	write(3, 48*time.Hour)
	write(2, 30*time.Minute)
	want := map[crdt.ReplicaID]time.Duration{2: time.Hour, 3: 48 * time.Hour}
	if diff := cmp.Diff(want, leads()); diff != "" {
		t.Error(diff)
	}
	if first := s.Leads()[0]; first.By != 3 || first.Key != crdt.NewKey("models", "3") {
		t.Errorf("the farthest is not first: %+v", first)
	}
	*s.wall = s.wall.Add(2 * time.Hour)
	write(2, 0)
	if diff := cmp.Diff(map[crdt.ReplicaID]time.Duration{3: 48 * time.Hour}, leads()); diff != "" {
		t.Errorf("a clock that was put right is still listed: %s", diff)
	}
}
