package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// took says whether a notice waits, and takes it.
func took(w *store.Watch) bool {
	select {
	case <-w.C:
		return true
	default:
		return false
	}
}

func TestWatchHearsOfItsNamespaces(t *testing.T) {
	s := open(t, t.TempDir())
	models, keys, both, every := s.Watch("models"), s.Watch("keys"), s.Watch("models", "keys"), s.Watch()
	for _, w := range []*store.Watch{models, keys, both, every} {
		defer w.Close()
	}
	for _, tc := range []struct {
		name  string
		write func()
		want  [4]bool
	}{
		{"nothing yet", func() {}, [4]bool{}},
		{"local write", func() { set(t, s, crdt.NewKey("models", "m"), "a", "v") }, [4]bool{true, false, true, true}},
		{"local write that changes nothing", func() { set(t, s, crdt.NewKey("models", "m"), "a", "v") }, [4]bool{}},
		{"merge", func() { merge(t, s, item(crdt.NewKey("keys", "k"), "a", remote(1, 2, "v"))) }, [4]bool{false, true, true, true}},
		{"merge that changes nothing", func() { merge(t, s, item(crdt.NewKey("keys", "k"), "a", remote(1, 2, "v"))) }, [4]bool{}},
		{"other namespace", func() { set(t, s, crdt.NewKey("modelsx"), "a", "v") }, [4]bool{false, false, false, true}},
		{"meta value", func() { must(t, s.SetMeta("m", nil)) }, [4]bool{}},
		{"reset", func() { must(t, s.Reset()) }, [4]bool{true, true, true, true}},
	} {
		tc.write()
		if got := [4]bool{took(models), took(keys), took(both), took(every)}; got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A watcher that reads nothing must not hold a writer up, and learns by one notice of all it missed.
func TestWatchCoalesces(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	w := s.Watch()
	defer w.Close()
	for i := range 20 {
		set(t, s, crdt.NewKey("models", fmt.Sprint(i)), "a", "v")
	}
	if !took(w) || took(w) {
		t.Error("twenty writes should leave exactly one notice")
	}
	set(t, s, crdt.NewKey("models", "later"), "a", "v")
	if !took(w) {
		t.Error("a write after the notice was taken is not told")
	}
}

func TestClosedWatchIsSilent(t *testing.T) {
	s := open(t, t.TempDir())
	w := s.Watch()
	w.Close()
	w.Close()
	set(t, s, crdt.NewKey("models", "m"), "a", "v")
	if took(w) {
		t.Error("a closed watch got a notice")
	}
}

func TestNoticeComesWithTheRowReadable(t *testing.T) {
	s := open(t, t.TempDir())
	w := s.Watch("models")
	defer w.Close()
	key := crdt.NewKey("models", "m")
	done := make(chan string)
	go func() {
		<-w.C
		row, _, err := s.Get(key)
		if err != nil {
			done <- err.Error()
			return
		}
		done <- string(row.Cells["a"].Value)
	}()
	set(t, s, key, "a", "v")
	if got := <-done; got != "v" {
		t.Errorf("after the notice the row read %q", got)
	}
}

func TestHookGetsExactlyTheCellsWritten(t *testing.T) {
	s := open(t, t.TempDir())
	a, b, c := crdt.NewKey("models", "a"), crdt.NewKey("models", "b"), crdt.NewKey("models", "c")
	set(t, s, a, "old", "v")
	set(t, s, c, "old", "v")
	var got []crdt.Item
	s.OnLocalWrite(func(items []crdt.Item) {
		got = append(got, items...)
		// The hook runs outside of the write: it may use the store.
		if _, err := s.Since(0, 1000); err != nil {
			t.Error(err)
		}
		must(t, s.SetMeta("seen", nil))
	})
	update(t, s, func(tx *store.Tx) error {
		return errors.Join(
			tx.Set(a, "new", []byte("1")), tx.Set(a, "old", []byte("v")),
			tx.SetAt(b, "epoch", []byte("2"), 7), tx.Delete(c))
	})
	stamp := rowOf(t, s, a).Cells["new"].At
	want := []crdt.Item{
		{Key: a, Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{"new": {At: stamp, By: s.ID(), Value: []byte("1")}}}},
		{Key: b, Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{"epoch": {At: 7, By: s.ID(), Value: []byte("2")}}}},
		{Key: c, Row: crdt.Row{Length: 2}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	merge(t, s, item(crdt.NewKey("models", "d"), "a", remote(1, 2, "v")))
	if len(got) != 0 {
		t.Errorf("the hook heard of a merge: %v", got)
	}
}

func rowOf(t *testing.T, s *store.Store, key crdt.Key) crdt.Row {
	t.Helper()
	row, _, err := s.Get(key)
	must(t, err)
	return row
}

// What the hook passed on must bring another store to the same state.
func TestHookItemsMakeAPeerEqual(t *testing.T) {
	t.Parallel()
	a, b := open(t, t.TempDir()), open(t, t.TempDir())
	a.OnLocalWrite(func(items []crdt.Item) { merge(t, b, items...) })
	key := crdt.NewKey("models", "m")
	set(t, a, key, "x", "1")
	set(t, a, key, "x", "2")
	update(t, a, func(tx *store.Tx) error { return tx.Delete(key) })
	set(t, a, key, "y", "3")
	update(t, a, func(tx *store.Tx) error { return tx.Remove(key, "y") })
	if diff := cmp.Diff(all(t, a), all(t, b)); diff != "" {
		t.Error(diff)
	}
}

func TestConcurrentWritersReadersAndWatchers(t *testing.T) {
	t.Parallel()
	const writers, writes = 8, 25
	s := open(t, t.TempDir())
	w := s.Watch()
	defer w.Close()
	var wg sync.WaitGroup
	counter := crdt.NewKey("settings", "counter")
	for i := range writers {
		wg.Go(func() {
			for n := range writes {
				_, err := s.Update(func(tx *store.Tx) error {
					row, _, err := tx.Get(counter)
					if err != nil {
						return err
					}
					return errors.Join(
						tx.Set(counter, "n", append(row.Cells["n"].Value, '+')),
						tx.Set(crdt.NewKey("models", fmt.Sprint(i)), "n", fmt.Append(nil, n)))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() { pageUntil(t, s, w, stop) })
	wg.Wait()
	close(stop)
	readers.Wait()
	if got := len(value(t, s, counter, "n")); got != writers*writes {
		t.Errorf("%d of %d updates of one cell were kept", got, writers*writes)
	}
}

// pageUntil follows the log as a peer would and checks that it never steps back.
func pageUntil(t *testing.T, s *store.Store, w *store.Watch, stop <-chan struct{}) {
	var seq uint64
	for {
		select {
		case <-stop:
			return
		case <-w.C:
		}
		page, err := s.Since(seq, 200)
		if err != nil || page.Next < seq {
			t.Errorf("page after %d ends at %d, %v", seq, page.Next, err)
			return
		}
		seq = page.Next
	}
}

func TestWatchWithoutWritersBlocks(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	synctest.Test(t, func(t *testing.T) {
		w := s.Watch()
		defer w.Close()
		woke := false
		stop := make(chan struct{})
		go func() {
			select {
			case <-w.C:
				woke = true
			case <-stop:
			}
		}()
		synctest.Wait()
		close(stop)
		synctest.Wait()
		if woke {
			t.Error("a watch fired without a write")
		}
	})
}
