package store_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func TestVerifyOfAWellStore(t *testing.T) {
	s := newClocked(t)
	set(t, s.Store, row("m"), "a", "v")
	set(t, s.Store, row("gone"), "a", "v")
	update(t, s.Store, func(tx *store.Tx) error { return tx.Delete(row("gone")) })
	merge(t, s.Store, item(row("far"), "a", remote(crdt.StampOf(start.Add(48*time.Hour)), 7, "v")))
	got, err := s.Verify()
	want := store.Report{Rows: 2, Tombstones: 1, LogEntries: 2, Aside: 1, Unsent: 2}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

// Damage under an open store: Open would refuse most of it.
func TestVerifyNamesWhatIsWrong(t *testing.T) {
	key := string(row("m"))
	record := func(s *store.Store) []byte {
		return append(binary.BigEndian.AppendUint64(nil, s.Sequence()), "\x01\x82\x01\xa0"...)
	}
	for _, tc := range []struct {
		name string
		poke func(*store.Store) (string, []byte)
		want string
	}{
		{"a row that does not decode", func(*store.Store) (string, []byte) { return "r/" + key, []byte("12345678\x01\xff") }, "store is damaged"},
		{"a row changed in place", func(s *store.Store) (string, []byte) { return "r/" + key, record(s) }, "digest differs"},
		{"a row without log entry", func(s *store.Store) (string, []byte) { return "g/" + string(record(s)[:8]), nil }, "in the log, which has"},
		{"a log entry without row", func(s *store.Store) (string, []byte) { return "r/" + key, nil }, "which is number 0"},
		{"a log key of another shape", func(s *store.Store) (string, []byte) { return "g/x", []byte(key) }, "log key of 3 bytes"},
		{"an age without tombstone", func(s *store.Store) (string, []byte) { return "t/" + key, make([]byte, 8) }, "no tombstone"},
		{"an age cut short", func(s *store.Store) (string, []byte) { return "t/" + key, []byte{1} }, "1 bytes"},
		{"an outbox entry cut short", func(s *store.Store) (string, []byte) { return "o/" + key, []byte{1} }, "outbox entry"},
		{"a waiting row cut short", func(s *store.Store) (string, []byte) { return "a/" + key, []byte{1} }, "set aside"},
		{"a tombstone without age", func(s *store.Store) (string, []byte) { return "r/" + key, append(record(s)[:8], "\x01\x82\x02\xa0"...) }, "no age"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newClocked(t)
			set(t, s.Store, row("m"), "a", "v")
			name, raw := tc.poke(s.Store)
			s.Poke(name, raw)
			got, err := s.Verify()
			if err != nil || !strings.Contains(strings.Join(got.Problems, "\n"), tc.want) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestReportIsBounded(t *testing.T) {
	s := newClocked(t)
	for i := range 150 {
		s.Poke(fmt.Sprint("t/", string(row(fmt.Sprint(i)))), make([]byte, 8))
	}
	if got, err := s.Verify(); err != nil || len(got.Problems) != 100 || got.More != 50 {
		t.Errorf("%d problems, %d more, %v", len(got.Problems), got.More, err)
	}
}

// Each file of the store is damaged in turn: Open says so and what to do, or nothing was lost.
func TestDamagedFilesAreFoundAtOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 300 {
		set(t, s, row(fmt.Sprint("m", i)), "a", strings.Repeat(fmt.Sprint(i), 20))
	}
	closeStore(t, s)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	damage := map[string]func(path string, data []byte) error{
		"flipped": func(path string, data []byte) error {
			data[len(data)/3] ^= 0x55
			return os.WriteFile(path, data, 0o600)
		},
		"zeroed":    func(path string, data []byte) error { return os.WriteFile(path, make([]byte, len(data)), 0o600) },
		"cut short": func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)/2], 0o600) },
		"emptied":   func(path string, data []byte) error { return os.WriteFile(path, nil, 0o600) },
		"removed":   func(path string, data []byte) error { return os.Remove(path) },
	}
	for _, file := range append(tables, filepath.Join(dir, "MANIFEST")) {
		for how, do := range damage {
			t.Run(how+" "+strings.TrimLeft(filepath.Base(file), "0"), func(t *testing.T) {
				copied := crashCopy(t, dir)
				path := filepath.Join(copied, filepath.Base(file))
				data, err := os.ReadFile(path)
				must(t, err)
				must(t, do(path, data))
				s, err := store.Open(copied, store.Options{})
				if err == nil {
					defer closeStore(t, s)
					if got := len(all(t, s)); got != 300 {
						t.Errorf("opened with %d rows of 300", got)
					}
					return
				}
				var corrupt *store.CorruptError
				if !errors.As(err, &corrupt) || corrupt.Dir != copied || !errors.Is(err, store.ErrCorrupt) {
					t.Fatalf("got %v", err)
				}
				for _, word := range []string{copied, "restore a backup", "peers"} {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("the message lacks %q: %v", word, err)
					}
				}
			})
		}
	}
}

// Wherever a table is changed: badger would end the process over a block that does not unpack.
func TestChangedTableIsFoundAtOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	merge(t, s, rowsOf(1000, 1<<40)...)
	closeStore(t, s)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	data, err := os.ReadFile(tables[0])
	must(t, err)
	for i := range 50 {
		copied := crashCopy(t, dir)
		changed := slices.Clone(data)
		changed[len(data)*i/50] ^= 0x55
		must(t, os.WriteFile(filepath.Join(copied, filepath.Base(tables[0])), changed, 0o600))
		s, err := store.Open(copied, store.Options{})
		if err == nil {
			if got := len(all(t, s)); got != 1000 {
				t.Errorf("byte %d of %d changed: opened with %d rows", len(data)*i/50, len(data), got)
			}
			closeStore(t, s)
		} else if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("byte %d of %d changed: %v", len(data)*i/50, len(data), err)
		}
	}
}

func TestCompactGivesSpaceBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for range 3 {
		var items []crdt.Item
		for i := range 20 {
			items = append(items, item(row(fmt.Sprint(i)), "a", remote(crdt.HLC(s.Sequence()+1), 2, strings.Repeat("v", 100<<10))))
		}
		merge(t, s, items...)
	}
	closeStore(t, s)
	s = open(t, dir)
	before, after, err := s.Compact()
	if err != nil || before == 0 || after > before {
		t.Errorf("%d bytes became %d, %v", before, after, err)
	}
	if got := len(all(t, s)); got != 20 {
		t.Errorf("%d rows are left", got)
	}
	if _, _, err := newClocked(t).Compact(); err != nil {
		t.Errorf("in memory: %v", err)
	}
}
