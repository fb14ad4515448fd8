package store_test

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func TestSetMakesTheRowPresentAndStampsIt(t *testing.T) {
	s := open(t, t.TempDir())
	key := crdt.NewKey("models", "m")
	if keys := set(t, s, key, "a", "v"); !slices.Equal(keys, []crdt.Key{key}) {
		t.Errorf("changed %v", keys)
	}
	row, present, err := s.Get(key)
	cell := row.Cells["a"]
	if err != nil || !present || row.Length != 1 || cell.By != s.ID() || cell.At < crdt.StampOf(start) {
		t.Errorf("row %+v, present %v, %v", row, present, err)
	}
}

func TestTxSeesItsOwnWrites(t *testing.T) {
	s := open(t, t.TempDir())
	key := crdt.NewKey("models", "m")
	update(t, s, func(tx *store.Tx) error {
		if err := tx.Set(key, "a", []byte("1")); err != nil {
			return err
		}
		row, present, err := tx.Get(key)
		if err != nil || !present || string(row.Cells["a"].Value) != "1" {
			t.Errorf("after set: %+v %v %v", row, present, err)
		}
		if err := tx.Delete(key); err != nil {
			return err
		}
		if _, present, err := tx.Get(key); present || err != nil {
			t.Errorf("after delete: present %v, %v", present, err)
		}
		return tx.Set(key, "b", []byte("2"))
	})
	row, present, err := s.Get(key)
	if err != nil || !present || row.Length != 3 || len(row.Cells) != 1 || string(row.Cells["b"].Value) != "2" {
		t.Errorf("got %+v, present %v, %v", row, present, err)
	}
	if s.Sequence() != 1 {
		t.Errorf("one update of one row took %d log entries", s.Sequence())
	}
}

func TestFailedUpdateLeavesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	stop := errors.New("stop")
	keys, err := s.Update(func(tx *store.Tx) error {
		if err := tx.Set(crdt.NewKey("x"), "a", []byte("v")); err != nil {
			t.Error(err)
		}
		return stop
	})
	if !errors.Is(err, stop) || len(keys) != 0 {
		t.Errorf("got %v, %v", keys, err)
	}
	if _, present, err := s.Get(crdt.NewKey("x")); present || err != nil || s.Sequence() != 0 {
		t.Errorf("present %v, %v, sequence %d", present, err, s.Sequence())
	}
}

// Repeating what is already so must cost nothing: neither disk nor gossip.
func TestWritesThatChangeNothing(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	key, gone := crdt.NewKey("models", "m"), crdt.NewKey("models", "gone")
	set(t, s, key, "a", "v")
	set(t, s, gone, "a", "v")
	update(t, s, func(tx *store.Tx) error { return tx.Delete(gone) })
	seq := s.Sequence()
	s.OnLocalWrite(func(items []crdt.Item) { t.Errorf("the hook heard of %v", items) })
	for name, fn := range map[string]func(*store.Tx) error{
		"nothing at all":             func(*store.Tx) error { return nil },
		"set to the same value":      func(tx *store.Tx) error { return tx.Set(key, "a", []byte("v")) },
		"remove a cell not there":    func(tx *store.Tx) error { return tx.Remove(key, "b") },
		"remove from a row not made": func(tx *store.Tx) error { return tx.Remove(crdt.NewKey("y"), "b") },
		"remove from a deleted row":  func(tx *store.Tx) error { return tx.Remove(gone, "a") },
		"delete a deleted row":       func(tx *store.Tx) error { return tx.Delete(gone) },
		"delete a row not made":      func(tx *store.Tx) error { return tx.Delete(crdt.NewKey("y")) },
		"set at an older stamp":      func(tx *store.Tx) error { return tx.SetAt(key, "a", []byte("old"), 1) },
	} {
		if keys := update(t, s, fn); len(keys) != 0 || s.Sequence() != seq {
			t.Errorf("%s: changed %v, sequence %d", name, keys, s.Sequence())
		}
	}
}

func TestRemoveUnsetsACell(t *testing.T) {
	s := open(t, t.TempDir())
	key := crdt.NewKey("models", "m")
	set(t, s, key, "a", "v")
	before, _, err := s.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, func(tx *store.Tx) error { return tx.Remove(key, "a") })
	row, present, err := s.Get(key)
	if err != nil || !present || len(row.Cells["a"].Value) != 0 || row.Cells["a"].At <= before.Cells["a"].At {
		t.Errorf("got %+v, present %v, %v", row, present, err)
	}
}

func TestDeleteAndCreateAgain(t *testing.T) {
	s := open(t, t.TempDir())
	key := crdt.NewKey("models", "m")
	set(t, s, key, "a", "v")
	set(t, s, key, "b", "w")
	update(t, s, func(tx *store.Tx) error { return tx.Delete(key) })
	if row, present, err := s.Get(key); present || err != nil || row.Length != 2 || len(row.Cells) != 0 {
		t.Errorf("deleted: %+v, present %v, %v", row, present, err)
	}
	set(t, s, key, "a", "again")
	row, present, err := s.Get(key)
	if err != nil || !present || row.Length != 3 || len(row.Cells) != 1 {
		t.Errorf("re-created: %+v, present %v, %v", row, present, err)
	}
}

func TestSetOverwritesAStampFromTheFuture(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	key := crdt.NewKey("models", "m")
	future := crdt.StampOf(start.Add(20 * time.Hour))
	merge(t, s, item(key, "a", remote(future, 9, "bad clock")))
	set(t, s, key, "a", "mine")
	if got := value(t, s, key, "a"); got != "mine" {
		t.Errorf("got %q", got)
	}
	set(t, s, crdt.NewKey("other"), "a", "v")
	row, _, err := s.Get(crdt.NewKey("other"))
	if err != nil || row.Cells["a"].At > crdt.StampOf(start.Add(time.Minute)) {
		t.Errorf("the clock followed into the future: %v, %v", row.Cells["a"].At.Time(), err)
	}
	update(t, s, func(tx *store.Tx) error { return tx.SetAt(key, "a", []byte("last"), math.MaxUint64) })
	if _, err := s.Update(func(tx *store.Tx) error { return tx.Set(key, "a", []byte("x")) }); !errors.Is(err, crdt.ErrExhausted) {
		t.Errorf("set after the last stamp: %v", err)
	}
	update(t, s, func(tx *store.Tx) error {
		return errors.Join(tx.Delete(key), tx.Set(key, "a", []byte("fresh")))
	})
	if got := value(t, s, key, "a"); got != "fresh" {
		t.Errorf("deleting and creating again gave %q", got)
	}
}

func TestSetFollowsWhatWasMerged(t *testing.T) {
	s := open(t, t.TempDir())
	ahead := crdt.StampOf(start.Add(30 * time.Second))
	merge(t, s, item(crdt.NewKey("a"), "a", remote(ahead, 9, "v")))
	set(t, s, crdt.NewKey("b"), "b", "later than what this node has seen")
	row, _, err := s.Get(crdt.NewKey("b"))
	if err != nil || row.Cells["b"].At <= ahead {
		t.Errorf("stamp %d is not after %d, %v", row.Cells["b"].At, ahead, err)
	}
}

func TestSetAtLetsTheHigherEpochWin(t *testing.T) {
	s := open(t, t.TempDir())
	key := crdt.NewKey("assignments", "m", "0")
	at := func(epoch crdt.HLC, v string) []crdt.Key {
		return update(t, s, func(tx *store.Tx) error { return tx.SetAt(key, "assignment", []byte(v), epoch) })
	}
	at(5, "five")
	if keys := at(4, "four"); len(keys) != 0 {
		t.Errorf("a lower epoch changed %v", keys)
	}
	if got := value(t, s, key, "assignment"); got != "five" {
		t.Errorf("got %q", got)
	}
	at(6, "six")
	row, _, err := s.Get(key)
	if err != nil || row.Cells["assignment"].At != 6 || string(row.Cells["assignment"].Value) != "six" {
		t.Errorf("got %+v, %v", row, err)
	}
}

func TestBoundsOfLocalWrites(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	key := crdt.NewKey("x")
	for _, tc := range []struct {
		name string
		fn   func(*store.Tx) error
		want error
	}{
		{"largest value", func(tx *store.Tx) error { return tx.Set(key, "a", make([]byte, crdt.MaxValueBytes)) }, nil},
		{"value", func(tx *store.Tx) error { return tx.Set(key, "a", make([]byte, crdt.MaxValueBytes+1)) }, crdt.ErrTooLarge},
		{"empty name", func(tx *store.Tx) error { return tx.Set(key, "", nil) }, crdt.ErrMalformed},
		{"name not UTF-8", func(tx *store.Tx) error { return tx.Set(key, "\xff", nil) }, crdt.ErrMalformed},
		{"long name", func(tx *store.Tx) error { return tx.SetAt(key, strings.Repeat("n", 256), nil, 1) }, crdt.ErrTooLarge},
		{"long key", func(tx *store.Tx) error { return tx.Set(crdt.NewKey("x", strings.Repeat("k", 2000)), "a", nil) }, crdt.ErrTooLarge},
		{"malformed key", func(tx *store.Tx) error { return tx.Delete("\x09") }, crdt.ErrMalformed},
		{"key without namespace", func(tx *store.Tx) error { return tx.Remove(crdt.NewKey(""), "a") }, crdt.ErrMalformed},
		{"too many cells", func(tx *store.Tx) error {
			for i := range crdt.MaxCells + 1 {
				if err := tx.Set(crdt.NewKey("y"), "c"+strconv.Itoa(i), nil); err != nil {
					return err
				}
			}
			return nil
		}, crdt.ErrTooLarge},
		{"too much for one transaction", func(tx *store.Tx) error {
			for i := range 40 {
				if err := tx.Set(crdt.NewKey("y", strconv.Itoa(i)), "a", make([]byte, crdt.MaxValueBytes)); err != nil {
					return err
				}
			}
			return nil
		}, crdt.ErrTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := s.Sequence()
			_, err := s.Update(tc.fn)
			if !errors.Is(err, tc.want) || (tc.want == nil) != (err == nil) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if tc.want != nil && s.Sequence() != before {
				t.Error("a refused write reached the log")
			}
		})
	}
	if items, err := s.List("y"); err != nil || len(items) != 0 {
		t.Errorf("refused writes left %d rows, %v", len(items), err)
	}
}

func TestCallerMayReuseItsBuffer(t *testing.T) {
	s := open(t, t.TempDir())
	buf := []byte("right")
	update(t, s, func(tx *store.Tx) error {
		err := tx.Set(crdt.NewKey("x"), "a", buf)
		copy(buf, "wrong")
		return err
	})
	if got := value(t, s, crdt.NewKey("x"), "a"); got != "right" {
		t.Errorf("got %q", got)
	}
}

func TestRowFromTxIsTheCallersOwn(t *testing.T) {
	s := open(t, t.TempDir())
	key := crdt.NewKey("x")
	update(t, s, func(tx *store.Tx) error {
		if err := tx.Set(key, "a", []byte("right")); err != nil {
			return err
		}
		row, _, err := tx.Get(key)
		row.Cells["a"] = crdt.Cell{Value: []byte("wrong")}
		return err
	})
	if got := value(t, s, key, "a"); got != "right" {
		t.Errorf("got %q", got)
	}
}

func TestReadingTheStoreInsideAnUpdate(t *testing.T) {
	s := open(t, t.TempDir())
	set(t, s, crdt.NewKey("x"), "a", "before")
	update(t, s, func(tx *store.Tx) error {
		if err := tx.Set(crdt.NewKey("x"), "a", []byte("after")); err != nil {
			return err
		}
		if got := value(t, s, crdt.NewKey("x"), "a"); got != "before" {
			t.Errorf("a write that is not committed is visible: %q", got)
		}
		return nil
	})
}

func TestClockGoesOnAfterRestartWithAWallClockInThePast(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	key := crdt.NewKey("x")
	set(t, s, key, "a", "first")
	first, _, err := s.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = openWith(t, dir, store.Options{Now: func() time.Time { return start.Add(-24 * time.Hour) }})
	set(t, s, crdt.NewKey("y"), "a", "second")
	second, _, err := s.Get(crdt.NewKey("y"))
	if err != nil || second.Cells["a"].At <= first.Cells["a"].At {
		t.Errorf("stamp %d after %d, %v", second.Cells["a"].At, first.Cells["a"].At, err)
	}
}

func TestListIsTheNamespacesPresentRowsInKeyOrder(t *testing.T) {
	s := open(t, t.TempDir())
	for _, key := range []crdt.Key{
		crdt.NewKey("models", "b"), crdt.NewKey("models", "a"), crdt.NewKey("models", "gone"), crdt.NewKey("modelsx", "a"), crdt.NewKey("keys", "a"),
	} {
		set(t, s, key, "a", "v")
	}
	update(t, s, func(tx *store.Tx) error { return tx.Delete(crdt.NewKey("models", "gone")) })
	items, err := s.List("models")
	if err != nil {
		t.Fatal(err)
	}
	var got []crdt.Key
	for _, i := range items {
		got = append(got, i.Key)
	}
	if want := []crdt.Key{crdt.NewKey("models", "a"), crdt.NewKey("models", "b")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
