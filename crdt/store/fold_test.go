package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

var nextMonth = crdt.Account{Budget: "team", Period: "2026-12"}

func isClosed(a crdt.Account) bool { return a == account }

// manyWriters starts the store anew again and again, each of which counts as a writer of its own.
func manyWriters(t *testing.T, starts int) clocked {
	t.Helper()
	s := newClocked(t)
	for range starts {
		must(t, s.RecordUsage(usage("r", 10)))
		closeStore(t, s.Store)
		s = openClocked(t, s.disk, s.wall)
	}
	return s
}

func TestClosedPeriodIsOneEntry(t *testing.T) {
	s := manyWriters(t, 5)
	must(t, s.RecordUsage(store.Usage{Charges: []store.Charge{{Account: nextMonth, Micros: 3}}}))
	if n, err := s.FoldSpend(isClosed); n != 1 || err != nil {
		t.Fatalf("folded %d accounts, %v", n, err)
	}
	check := func(when string, want uint64) {
		t.Helper()
		if cells, folds := s.SpendEntries(), s.SpendFolds(); len(cells) != 1 || len(folds) != 1 || s.Spent(account) != want || s.Spent(nextMonth) != 3 {
			t.Errorf("%s: %d cells, %d folds, spent %d and %d", when, len(cells), len(folds), s.Spent(account), s.Spent(nextMonth))
		}
	}
	check("folded", 50)
	if got := s.Count("c/"); got != 2 {
		t.Errorf("%d counters are on disk", got)
	}
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	check("after reopening", 50)
	if n, err := s.FoldSpend(isClosed); n != 0 || err != nil {
		t.Errorf("folded %d accounts again, %v", n, err)
	}
	must(t, s.RecordUsage(usage("late", 4)))
	if n, err := s.FoldSpend(isClosed); n != 1 || err != nil {
		t.Errorf("folded what came late: %d, %v", n, err)
	}
	check("with what came late", 54)
}

// Two stores that have each counted, folded or not, and tell each other, come to the same.
func TestFoldedAndPlainStoresConverge(t *testing.T) {
	a, b := manyWriters(t, 3), manyWriters(t, 2)
	_, err := a.FoldSpend(isClosed)
	must(t, err)
	for range 2 {
		for _, pair := range [][2]*store.Store{{a.Store, b.Store}, {b.Store, a.Store}} {
			mergeMoney(t, pair[0], allMoney(pair[1]))
		}
	}
	must(t, b.RecordUsage(usage("late", 7)))
	mergeMoney(t, a.Store, allMoney(b.Store))
	for _, s := range []*store.Store{a.Store, b.Store} {
		if got := s.Spent(account); got != 57 {
			t.Errorf("57 were spent, and one sees %d", got)
		}
		_, err := s.FoldSpend(isClosed)
		must(t, err)
	}
	if diff := cmp.Diff(a.SpendFolds(), b.SpendFolds()); diff != "" {
		t.Error(diff)
	}
}

// A crash between writing the fold and dropping the cells leaves both.
func TestCellsBesideTheirFoldCountOnce(t *testing.T) {
	s := manyWriters(t, 2)
	left := s.SpendEntries()
	_, err := s.FoldSpend(isClosed)
	must(t, err)
	for _, e := range left {
		key := crdt.NewKey("spend", account.Budget, account.Period, string(be(uint64(e.By.Store))), string(be(e.By.Generation)))
		s.Poke("c/"+string(key), be(e.Micros))
	}
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	if got := s.Spent(account); got != 20 || len(s.SpendEntries()) != 0 {
		t.Errorf("spent %d, cells %v", got, s.SpendEntries())
	}
	if got := s.Count("c/"); got != 1 {
		t.Errorf("%d counters are on disk", got)
	}
}

func TestOwnCountHigherInAFoldMakesANewWriter(t *testing.T) {
	s := newClocked(t)
	must(t, s.RecordUsage(usage("a", 10)))
	was := s.SpendID()
	mergeMoney(t, s.Store, crdt.Money{Folds: []crdt.SpendFold{{Account: account, Cells: []crdt.SpendCell{{By: was, Micros: 25}}}}})
	if s.SpendID() == was {
		t.Error("two processes write one cell")
	}
	must(t, s.RecordUsage(usage("b", 1)))
	if got := s.Spent(account); got != 26 {
		t.Errorf("spent %d", got)
	}
}
