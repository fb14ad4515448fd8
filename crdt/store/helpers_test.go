package store_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

const ackPrefix = "acknowledged "

// writeUntilKilled is the body of a child process: it writes rows and says after each that it is done.
func writeUntilKilled(t *testing.T, dir string) {
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100_000 {
		name := fmt.Sprint("m", i)
		if _, err := s.Update(func(tx *store.Tx) error {
			return tx.Set(crdt.NewKey("models", name), "state", []byte(name))
		}); err != nil {
			t.Fatal(err)
		}
		fmt.Println(ackPrefix + name)
	}
}

// readAcks returns the first n names that the child acknowledged, or fewer when it ended.
func readAcks(out io.Reader, n int) []string {
	var names []string
	lines := bufio.NewScanner(out)
	for len(names) < n && lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), ackPrefix); ok {
			names = append(names, name)
		}
	}
	return names
}

// remote makes a cell as a remote store would.
func remote(at crdt.HLC, by crdt.ReplicaID, v string) crdt.Cell {
	return crdt.Cell{At: at, By: by, Value: []byte(v)}
}

// item makes a present row with one cell.
func item(key crdt.Key, name string, c crdt.Cell) crdt.Item {
	return crdt.Item{Key: key, Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{name: c}}}
}

// merge takes in remote items, which must succeed.
func merge(t *testing.T, s *store.Store, items ...crdt.Item) []crdt.Key {
	t.Helper()
	keys, err := s.Merge(items)
	if err != nil {
		t.Fatalf("merge: %v", err)
	}
	return keys
}

// pull reads the whole log after seq in pages.
func pull(t *testing.T, s *store.Store, seq uint64, maxBytes int) (items []crdt.Item, next uint64) {
	t.Helper()
	for {
		page, err := s.Since(seq, maxBytes)
		if err != nil {
			t.Fatalf("since %d: %v", seq, err)
		}
		items, seq = append(items, page.Items...), page.Next
		if !page.More {
			return items, seq
		}
	}
}

// all is every row of the store, tombstones included, in canonical form.
func all(t *testing.T, s *store.Store) map[crdt.Key]string {
	t.Helper()
	items, _ := pull(t, s, 0, 1<<20)
	rows := map[crdt.Key]string{}
	for _, i := range items {
		data, err := crdt.EncodeRow(i.Row)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := rows[i.Key]; ok {
			t.Errorf("%s has two log entries", i.Key)
		}
		rows[i.Key] = string(data)
	}
	return rows
}

func be(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// mergeMoney takes in what a peer told, which must succeed.
func mergeMoney(t *testing.T, s *store.Store, m crdt.Money) (rolledBack bool) {
	t.Helper()
	rolledBack, err := s.MergeMoney(m)
	if err != nil {
		t.Fatalf("merge money: %v", err)
	}
	if !s.CheckMoney() {
		t.Error("the sums are not those of what is there")
	}
	return rolledBack
}

// allMoney is all that a store knows of spending.
func allMoney(s *store.Store) crdt.Money {
	m, _ := s.MoneyIn(crdt.MoneySums{})
	return m
}

// escrowOf is the whole escrow of an account, to tell a peer.
func escrowOf(a crdt.Account, e crdt.Escrow) crdt.Money {
	return crdt.Money{Escrows: []crdt.EscrowPart{{Account: a, Cells: e.Entries()}}}
}
