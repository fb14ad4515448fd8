package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// poke writes raw keys into a closed store, as another version or a broken disk would; a nil value deletes.
func poke(t *testing.T, dir string, values map[string][]byte) {
	t.Helper()
	db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(txn *badger.Txn) error {
		for k, v := range values {
			if v == nil {
				if err := txn.Delete([]byte(k)); err != nil {
					return err
				}
				continue
			}
			if err := txn.Set([]byte(k), v); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestNewerSchemaIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	set(t, s, crdt.NewKey("x"), "a", "v")
	id := s.ID()
	closeStore(t, s)
	poke(t, dir, map[string][]byte{"m/sys/schema": binary.BigEndian.AppendUint64(nil, 7)})
	_, err := store.Open(dir, store.Options{})
	var newer *store.NewerSchemaError
	if !errors.As(err, &newer) || newer.Have != 7 || newer.Known != 2 || newer.Dir != dir {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "start the newer llmgw") {
		t.Errorf("the message does not say what to do: %v", err)
	}
	poke(t, dir, map[string][]byte{"m/sys/schema": binary.BigEndian.AppendUint64(nil, 2)})
	s = open(t, dir)
	if s.ID() != id || value(t, s, crdt.NewKey("x"), "a") != "v" {
		t.Error("the refused open changed the store")
	}
}

func TestDamagedStoreIsSaidToBe(t *testing.T) {
	key := crdt.NewKey("x")
	for _, tc := range []struct {
		name   string
		values map[string][]byte
		read   func(*store.Store) error // nil: opening fails
	}{
		{"data without a schema", map[string][]byte{"m/sys/schema": nil}, nil},
		{"schema of another shape", map[string][]byte{"m/sys/schema": []byte("v1")}, nil},
		{"an older schema", map[string][]byte{"m/sys/schema": binary.BigEndian.AppendUint64(nil, 1)}, nil},
		{"no ID", map[string][]byte{"m/sys/id": nil}, nil},
		{"no index ID", map[string][]byte{"m/sys/index": nil}, nil},
		{"log key of another shape", map[string][]byte{"g/\xff": {}}, nil},
		{"log block of no bytes", map[string][]byte{"g/" + string(be(1)): {}}, nil},
		{"log block cut short", map[string][]byte{"g/" + string(be(1)): {0, 3, 1, 'x'}}, nil},
		{"log block with a number twice", map[string][]byte{"g/" + string(be(1)): bytes.Repeat(append([]byte{0, 2}, key...), 2)}, nil},
		{"log block with numbers far apart", map[string][]byte{"g/" + string(be(1)): {0, 1, 'x', 255, 255, 255, 255, 15, 1, 'y'}}, nil},
		{"log blocks that overlap", map[string][]byte{"g/" + string(be(1)): {0, 1, 'x', 4, 1, 'y'}, "g/" + string(be(3)): {0, 1, 'z'}}, nil},
		{"log block with a number beyond all", map[string][]byte{"g/" + string(be(1)): append(append(bytes.Repeat([]byte{255}, 9), 1, 2), key...)}, nil},
		{"row cut short", map[string][]byte{"r/" + string(key): {1}}, func(s *store.Store) error {
			_, _, err := s.Get(key)
			return err
		}},
		{"row that does not decode", map[string][]byte{"r/" + string(key): []byte("12345678\x01\xff")}, func(s *store.Store) error {
			_, err := s.List("x")
			return err
		}},
		{"log entry without its row", map[string][]byte{"r/" + string(key): nil}, func(s *store.Store) error {
			_, err := s.Since(0, 1000)
			return err
		}},
		{"log entry above its row", map[string][]byte{"r/" + string(key): append(be(0), "\x01\x82\x01\xa0"...)}, func(s *store.Store) error {
			_, err := s.Since(0, 1000)
			return err
		}},
		{"cursor cut short", map[string][]byte{"p/peer": {1}}, func(s *store.Store) error {
			_, err := s.Cursor("peer")
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			set(t, s, key, "a", "v")
			closeStore(t, s)
			poke(t, dir, tc.values)
			s, err := store.Open(dir, store.Options{})
			if err == nil {
				defer closeStore(t, s)
				if tc.read == nil {
					t.Fatal("opened")
				}
				err = tc.read(s)
			}
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}
