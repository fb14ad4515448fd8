package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func TestMergeIsIdempotent(t *testing.T) {
	s := open(t, t.TempDir())
	in := []crdt.Item{item(crdt.NewKey("a"), "x", remote(5, 2, "v")), {Key: crdt.NewKey("b"), Row: crdt.Row{Length: 2}}}
	if keys := merge(t, s, in...); !slices.Equal(keys, []crdt.Key{crdt.NewKey("a"), crdt.NewKey("b")}) {
		t.Errorf("changed %v", keys)
	}
	seq := s.Sequence()
	if keys := merge(t, s, in...); len(keys) != 0 || s.Sequence() != seq {
		t.Errorf("the second time changed %v, sequence %d", keys, s.Sequence())
	}
}

func TestMergeOfPartsOfOneRowInOneCall(t *testing.T) {
	s := open(t, t.TempDir())
	key := crdt.NewKey("a")
	merge(t, s, item(key, "x", remote(1, 2, "x")), item(key, "y", remote(1, 2, "y")), item(key, "x", remote(2, 2, "x2")))
	if x, y := value(t, s, key, "x"), value(t, s, key, "y"); x != "x2" || y != "y" {
		t.Errorf("got %q %q", x, y)
	}
	if items, _ := pull(t, s, 0, 1000); len(items) != 1 {
		t.Errorf("one row has %d log entries", len(items))
	}
}

func TestMergeKeepsWhatItDoesNotKnow(t *testing.T) {
	a, b := open(t, t.TempDir()), open(t, t.TempDir())
	key := crdt.NewKey("namespace of a later version", "\x00")
	merge(t, a, item(key, "cell of a later version", remote(1, 2, "\xff\x00")))
	items, _ := pull(t, a, 0, 1000)
	merge(t, b, items...)
	if got := value(t, b, key, "cell of a later version"); got != "\xff\x00" {
		t.Errorf("got %q", got)
	}
}

// Badger refuses transactions over 2.4 MB or 25,000 entries, of which a row takes one or two.
func TestLargeMergesArePaged(t *testing.T) {
	for _, tc := range []struct {
		name        string
		rows, bytes int
	}{
		{"many small rows", 5000, 1},
		{"large values", 60, crdt.MaxValueBytes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, t.TempDir())
			v := strings.Repeat("v", tc.bytes)
			items := make([]crdt.Item, tc.rows)
			for i := range items {
				items[i] = item(crdt.NewKey("models", fmt.Sprint(i)), "a", remote(1, 2, v))
			}
			if keys := merge(t, s, items...); len(keys) != tc.rows || s.Sequence() != uint64(tc.rows) {
				t.Errorf("%d rows changed, sequence %d", len(keys), s.Sequence())
			}
			if got, _ := pull(t, s, 0, 256<<10); len(got) != tc.rows {
				t.Errorf("pulled %d rows", len(got))
			}
		})
	}
}

// A row may grow by merges beyond anything that is written at once.
func TestRowLargerThanATransaction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	key := crdt.NewKey("models", "huge")
	for part := range 4 {
		row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{}}
		for i := range 5 {
			row.Cells[fmt.Sprint("c", part, i)] = remote(1, 2, strings.Repeat("v", crdt.MaxValueBytes))
		}
		merge(t, s, crdt.Item{Key: key, Row: row})
	}
	closeStore(t, s)
	s = open(t, dir)
	row, _, err := s.Get(key)
	if err != nil || len(row.Cells) != 20 {
		t.Fatalf("%d cells, %v", len(row.Cells), err)
	}
	page, err := s.Since(0, 256<<10)
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("page of %d items, %v", len(page.Items), err)
	}
	other := open(t, t.TempDir())
	for _, message := range crdt.Pack(page.Items, 256<<10) {
		data, err := crdt.EncodeItems(message)
		if err != nil || len(data) > 256<<10 {
			t.Fatalf("message of %d bytes, %v", len(data), err)
		}
		items, err := crdt.DecodeItems(data)
		if err != nil {
			t.Fatal(err)
		}
		merge(t, other, items...)
	}
	if got, _, err := other.Get(key); err != nil || !got.Equal(row) {
		t.Errorf("the row arrived with %d cells, %v", len(got.Cells), err)
	}
}

func TestMergeSaysWhatItTookBeforeAnError(t *testing.T) {
	s := open(t, t.TempDir())
	w := s.Watch("models")
	defer w.Close()
	var items []crdt.Item
	for i := range 1500 {
		items = append(items, item(crdt.NewKey("models", fmt.Sprint(i)), "a", remote(1, 2, "v")))
	}
	items = append(items, crdt.Item{Key: "\x09", Row: crdt.Row{Length: 1}})
	keys, err := s.Merge(items)
	if !errors.Is(err, crdt.ErrMalformed) || len(keys) != 1000 || s.Sequence() != 1000 {
		t.Fatalf("%d keys, sequence %d, %v", len(keys), s.Sequence(), err)
	}
	if len(w.C) != 1 {
		t.Error("watchers did not hear of the page that was taken")
	}
	if keys := merge(t, s, items[:1500]...); len(keys) != 500 {
		t.Errorf("merging again took %d", len(keys))
	}
}

func TestWriterFarAheadIsWarnedAboutOnce(t *testing.T) {
	var buf bytes.Buffer
	s := openWith(t, t.TempDir(), store.Options{
		Now: func() time.Time { return start }, Log: slog.New(slog.NewTextHandler(&buf, nil)),
	})
	far := crdt.StampOf(start.Add(time.Hour))
	for i := range 5 {
		merge(t, s, item(crdt.NewKey("a"), "x", remote(far+crdt.HLC(i), 77, "v")))
	}
	if got := strings.Count(buf.String(), "store=77"); got != 1 {
		t.Errorf("warned %d times: %s", got, buf.String())
	}
	if got := value(t, s, crdt.NewKey("a"), "x"); got != "v" {
		t.Errorf("the row was not merged: %q", got)
	}
}

// Many items are joined ahead by several goroutines: what comes of it is the same as one after the other, with several items
// for a row, cells that wait aside, deletions and rows that were there.
func TestManyItemsMergeAsOneByOne(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		many, single := newClocked(t), newClocked(t)
		defer closeStore(t, many.Store)
		defer closeStore(t, single.Store)
		far := crdt.HLC(start.Add(48*time.Hour).UnixMilli()) << 16
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) crdt.Item {
			at := crdt.HLC(rapid.Uint64Range(1, 5).Draw(t, "at"))
			if rapid.IntRange(0, 15).Draw(t, "far") == 0 {
				at += far
			}
			i := item(crdt.NewKey("models", fmt.Sprint(rapid.IntRange(0, 60).Draw(t, "key"))), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "cell"), remote(at, 1<<60, "v"))
			if rapid.IntRange(0, 9).Draw(t, "gone") == 0 {
				i.Row = crdt.Row{Length: 2}
			}
			return i
		}), 70, 200)
		for range 2 {
			list := items.Draw(r, "items")
			merge(t, many.Store, list...)
			for _, i := range list {
				merge(t, single.Store, i)
			}
		}
		if diff := cmp.Diff(all(t, single.Store), all(t, many.Store)); diff != "" {
			r.Fatal(diff)
		}
		if many.Sequence() != single.Sequence() || many.Digest() != single.Digest() {
			r.Fatalf("log at %d, one by one at %d", many.Sequence(), single.Sequence())
		}
		if diff := cmp.Diff(asideOf(t, single.Store), asideOf(t, many.Store)); diff != "" {
			r.Fatal(diff)
		}
		report, err := many.Verify()
		if err != nil || len(report.Problems) > 0 {
			r.Fatalf("%v: %v", report.Problems, err)
		}
	})
}

func TestABadItemAmongManyChangesNothing(t *testing.T) {
	s := newClocked(t)
	items := append(rowsOf(80, 1<<40), crdt.Item{Key: "", Row: crdt.Row{Length: 1}})
	if changed, err := s.Merge(items); !errors.Is(err, crdt.ErrMalformed) || len(changed) != 0 || s.Sequence() != 0 {
		t.Errorf("%d rows changed, %v", len(changed), err)
	}
}

// What is stored and does not decode is damage; what arrives and cannot be stored is the sender's mistake.
func TestMergeTellsADamagedRowFromABadItem(t *testing.T) {
	key := crdt.NewKey("models", "m")
	for what, stored := range map[string]string{
		"cut short":       "1234567",
		"not a row":       "12345678\x01\xff",
		"cells missing":   "12345678\x01\x82\x01\xa1",
		"more at the end": "12345678\x01\x82\x01\xa0\x00",
	} {
		s := newClocked(t)
		merge(t, s.Store, item(key, "a", remote(1, 2, "v")))
		s.Poke("r/"+string(key), []byte(stored))
		changed, err := s.Merge([]crdt.Item{item(key, "b", remote(1, 2, "v"))})
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "models/m") || len(changed) != 0 {
			t.Errorf("%s: %v, %v", what, changed, err)
		}
	}
	s := newClocked(t)
	merge(t, s.Store, item(key, "a", remote(1, 2, "v")))
	if _, err := s.Merge([]crdt.Item{item(key, "", remote(1, 2, "v"))}); !errors.Is(err, crdt.ErrMalformed) || errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a cell without a name: %v", err)
	}
}
