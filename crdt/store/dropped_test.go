package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// monthsAgo names a month, or its first day, so long before the last month of 2026.
func monthsAgo(n int, layout string) crdt.Account {
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).AddDate(0, -n, 0)
	return crdt.Account{Budget: "team", Period: at.Format(layout)}
}

const (
	monthLayout, dayLayout = "2006-01", "2006-01-02"
	manyMonths             = 20
	old                    = "2025-10" // 14 months before the newest
)

// spentForMonths has counted in 20 months: a month, a day and an escrow of each, and the total.
func spentForMonths(t *testing.T, s *store.Store) {
	t.Helper()
	var u store.Usage
	for n := range manyMonths {
		for _, a := range []crdt.Account{monthsAgo(n, monthLayout), monthsAgo(n, dayLayout), {Budget: "team", Period: "total"}} {
			u.Charges = append(u.Charges, store.Charge{Account: a, Micros: 5})
		}
	}
	must(t, s.RecordUsage(u))
	for n := range manyMonths {
		must(t, s.UpdateEscrow(monthsAgo(n, monthLayout), func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Mint(self, 9) }))
	}
}

// keptMonths lists for how many months back something is known.
func keptMonths(s *store.Store) (spent, minted int) {
	for n := range manyMonths {
		if s.Spent(monthsAgo(n, monthLayout)) > 0 && s.Spent(monthsAgo(n, dayLayout)) > 0 {
			spent++
		}
		if _, total := s.Rights(monthsAgo(n, monthLayout), s.ID()); total > 0 {
			minted++
		}
	}
	return spent, minted
}

// everything is all that a store knows of spending.
func everything(s *store.Store) crdt.Money {
	m, _ := s.MoneyIn(crdt.MoneySums{})
	return m
}

func drop(t *testing.T, s *store.Store, before string, want int) {
	t.Helper()
	if n, err := s.DropSpend(before); n != want || err != nil {
		t.Errorf("before %s: dropped %d accounts, %v; want %d", before, n, err, want)
	}
	if !s.CheckMoney() {
		t.Error("the sums are not those of what is there")
	}
}

func TestOldSpendingIsDroppedForGood(t *testing.T) {
	s, peer := newClocked(t), newClocked(t)
	spentForMonths(t, s.Store)
	_, err := s.FoldSpend(func(a crdt.Account) bool { return a.Period == "2025-06" || a.Period == "2025-07" })
	must(t, err)
	mergeMoney(t, peer.Store, everything(s.Store))
	_, told := s.MoneyState()
	drop(t, s.Store, old, 2*5)
	check := func(when string) {
		t.Helper()
		if spent, minted := keptMonths(s.Store); spent != 15 || minted != 15 || s.Spent(crdt.Account{Budget: "team", Period: "total"}) != 5*manyMonths {
			t.Errorf("%s: %d and %d months, %d in all", when, spent, minted, s.Spent(crdt.Account{Budget: "team", Period: "total"}))
		}
	}
	check("dropped")
	if got := s.Count("c/"); got != 15*4+1 { // what was spent before it was minted counts in each escrow
		t.Errorf("%d counters are on disk", got)
	}
	if m, _, ok := s.MoneySince(told); !ok || len(m.Spend)+len(m.Escrows) != 0 {
		t.Errorf("dropping is told as %+v", m)
	}
	// A peer has it all still, this store's own escrows among it: nothing comes back, and nothing looks rolled back.
	id := s.ID()
	if mergeMoney(t, s.Store, everything(peer.Store)) || s.ID() != id {
		t.Error("what a peer has still looks like a disk that was rolled back")
	}
	mergeMoney(t, s.Store, crdt.Money{Folds: []crdt.SpendFold{{Account: monthsAgo(18, monthLayout), Cells: []crdt.SpendCell{{By: crdt.SpendID{Store: 3, Generation: 1}, Micros: 7}}}}})
	check("told by a peer")
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	mergeMoney(t, s.Store, everything(peer.Store))
	check("after reopening")
	drop(t, peer.Store, old, 2*5)
	mine, _ := s.MoneyState()
	if theirs, _ := peer.MoneyState(); mine != theirs {
		t.Error("both dropped the same and are not equal")
	}
	drop(t, s.Store, old, 0)
}

func TestNewestMonthsStayWhateverTheClockSays(t *testing.T) {
	s := newClocked(t)
	spentForMonths(t, s.Store)
	drop(t, s.Store, "2099-01", 2*7)
	if spent, minted := keptMonths(s.Store); spent != 13 || minted != 13 {
		t.Errorf("%d and %d months are left", spent, minted)
	}
	// An earlier month gives nothing back.
	drop(t, s.Store, "2020-01", 0)
	mergeMoney(t, s.Store, cellOf(monthsAgo(19, monthLayout), 7, 3))
	if got := s.Spent(monthsAgo(19, monthLayout)); got != 0 {
		t.Errorf("%d came back", got)
	}
}

func TestFewMonthsAreNotDropped(t *testing.T) {
	s := newClocked(t)
	for n := range 12 {
		must(t, s.RecordUsage(spendOn(monthsAgo(n, monthLayout), 5)))
	}
	drop(t, s.Store, "2099-01", 0)
	for _, bad := range []string{"", "total", "2026", "2026-11-01"} {
		if _, err := s.DropSpend(bad); !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// More writers of one account, and more accounts, than fit into a transaction.
func TestManyCellsAreDropped(t *testing.T) {
	s := newClocked(t)
	for n := range 13 {
		must(t, s.RecordUsage(spendOn(monthsAgo(n, monthLayout), 5)))
	}
	var m crdt.Money
	for i := range 2500 {
		by := crdt.SpendID{Store: crdt.ReplicaID(i + 10), Generation: 1}
		m.Spend = append(m.Spend, crdt.SpendEntry{Account: monthsAgo(15, monthLayout), By: by, Micros: 1},
			crdt.SpendEntry{Account: crdt.Account{Budget: fmt.Sprint("key ", i), Period: "2025-01-31"}, By: by, Micros: 1})
	}
	mergeMoney(t, s.Store, m)
	drop(t, s.Store, old, 2501)
	if got := s.Count("c/"); got != 13 {
		t.Errorf("%d counters are on disk", got)
	}
}

func TestAnotherMeshBeginsWithNothingDropped(t *testing.T) {
	s := newClocked(t)
	spentForMonths(t, s.Store)
	drop(t, s.Store, old, 2*5)
	must(t, s.Reset())
	mergeMoney(t, s.Store, cellOf(monthsAgo(19, monthLayout), 7, 3))
	if got := s.Spent(monthsAgo(19, monthLayout)); got != 3 {
		t.Errorf("spent %d", got)
	}
}

func TestDroppingThatFailsIsFinishedLater(t *testing.T) {
	s := newClocked(t)
	spentForMonths(t, s.Store)
	broken := errors.New("disk")
	s.FailSync(broken)
	if n, err := s.DropSpend(old); err == nil {
		t.Errorf("dropped %d on a disk that fails", n)
	}
	_ = s.Close()
	s = openClocked(t, s.disk, s.wall)
	drop(t, s.Store, old, 2*5)
}
