package store_test

import (
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// open opens a store with a clock that stands at start unless the test moves it.
func open(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir, store.Options{Now: func() time.Time { return start }})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

var start = time.UnixMilli(1_800_000_000_000)

// set writes one cell.
func set(t *testing.T, s *store.Store, key crdt.Key, cell, value string) {
	t.Helper()
	if _, err := s.Update(func(tx *store.Tx) error { return tx.Set(key, cell, []byte(value)) }); err != nil {
		t.Fatalf("set %s %s: %v", key, cell, err)
	}
}

func TestRowsSurviveReopen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	key := crdt.NewKey("models", "a/b")
	set(t, s, key, "state", "served")
	id, index, seq := s.ID(), s.IndexID(), s.Sequence()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	row, present, err := s.Get(key)
	if err != nil || !present || string(row.Cells["state"].Value) != "served" {
		t.Errorf("after reopening: %+v, present %v, error %v", row, present, err)
	}
	if s.ID() != id || s.IndexID() != index || s.Sequence() != seq {
		t.Errorf("identity changed: %d %d %d, want %d %d %d", s.ID(), s.IndexID(), s.Sequence(), id, index, seq)
	}
	if seq == 0 {
		t.Error("a write did not reach the log")
	}
}
