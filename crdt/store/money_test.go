package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func spendOn(a crdt.Account, micros uint64) store.Usage {
	return store.Usage{Charges: []store.Charge{{Account: a, Micros: micros}}}
}

func cellOf(a crdt.Account, of crdt.ReplicaID, micros uint64) crdt.Money {
	return crdt.Money{Spend: []crdt.SpendEntry{{Account: a, By: crdt.SpendID{Store: of, Generation: 1}, Micros: micros}}}
}

func TestWhatChangedSinceIsTold(t *testing.T) {
	s := newClocked(t)
	_, begin := s.MoneyState()
	must(t, s.RecordUsage(spendOn(account, 5)))
	must(t, s.UpdateEscrow(account, func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Mint(self, 9) }))
	mergeMoney(t, s.Store, cellOf(account, 7, 3))
	m, next, ok := s.MoneySince(begin)
	if !ok || len(m.Spend) != 2 || len(m.Escrows) != 1 {
		t.Fatalf("%v: %+v", ok, m)
	}
	own, _ := s.OwnMoneySince(begin)
	if len(own.Spend) != 1 || own.Spend[0].By != s.SpendID() || len(own.Escrows) != 1 {
		t.Errorf("own: %+v", own)
	}
	// The same again is no news, a higher value is, and it is told once.
	mergeMoney(t, s.Store, cellOf(account, 7, 3))
	if m, _, _ := s.MoneySince(next); !m.Empty() {
		t.Errorf("nothing happened: %+v", m)
	}
	for i := range uint64(3) {
		mergeMoney(t, s.Store, cellOf(account, 7, 4+i))
	}
	if m, _, _ := s.MoneySince(next); len(m.Spend) != 1 || m.Spend[0].Micros != 6 {
		t.Errorf("one cell grew to 6: %+v", m)
	}
	for name, c := range map[string]store.MoneyCursor{"none": {}, "another process": {Index: next.Index + 1}, "ahead": {Index: next.Index, Seq: 1 << 40}} {
		if _, _, ok := s.MoneySince(c); ok {
			t.Errorf("a cursor of %s is taken", name)
		}
	}
	// Folding changes nothing that has to be told.
	sums, next := s.MoneyState()
	_, err := s.FoldSpend(isClosed)
	must(t, err)
	if m, _, _ := s.MoneySince(next); !m.Empty() || !s.CheckMoney() {
		t.Errorf("folded: %+v", m)
	}
	if again, _ := s.MoneyState(); again != sums {
		t.Error("folding changed the sums")
	}
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	if again, c := s.MoneyState(); again != sums || c.Index == next.Index {
		t.Error("another sum after reopening, or the order of the process before")
	}
}

// The order of learning does not grow with what changes again and again.
func TestOrderOfLearningIsBounded(t *testing.T) {
	s := newClocked(t)
	_, begin := s.MoneyState()
	for i := range uint64(3 * store.LogSlack) {
		mergeMoney(t, s.Store, cellOf(account, 7+crdt.ReplicaID(i%3), 1+i))
	}
	if n := s.MoneyLog(); n > store.LogSlack+10 {
		t.Errorf("%d entries for 3 cells", n)
	}
	if m, _, ok := s.MoneySince(begin); !ok || len(m.Spend) != 3 {
		t.Errorf("%v, %+v", ok, m)
	}
}

func TestHookHearsOfOwnChangesAlone(t *testing.T) {
	s := newClocked(t)
	calls := 0
	s.OnSpend(func() { calls++ })
	mergeMoney(t, s.Store, cellOf(account, 7, 3))
	must(t, s.RecordUsage(store.Usage{Record: []byte("free")}))
	must(t, s.UpdateEscrow(account, func(crdt.ReplicaID, *crdt.Escrow) error { return nil }))
	if calls != 0 {
		t.Errorf("%d calls for what is not its own", calls)
	}
	must(t, s.RecordUsage(spendOn(account, 5)))
	must(t, s.UpdateEscrow(account, func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Mint(self, 9) }))
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// Stores that meet in any order, by cursor or by sums, folded or not, come to the same, and then have nothing to tell.
func TestMoneyConverges(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const boxes = 3
		var all []clocked
		for range boxes {
			all = append(all, newClocked(t))
		}
		defer func() {
			for _, s := range all {
				closeStore(t, s.Store)
			}
		}()
		cursors := map[[2]int]store.MoneyCursor{}
		tell := func(to, from int) crdt.Money {
			m, next, ok := all[from].MoneySince(cursors[[2]int{to, from}])
			if !ok {
				sums, _ := all[to].MoneyState()
				m, next = all[from].MoneyIn(sums)
			}
			for _, part := range m.Pack(200) {
				if mergeMoney(t, all[to].Store, part) {
					r.Fatal("a store that was never set back was")
				}
			}
			cursors[[2]int{to, from}] = next
			return m
		}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			i := rapid.IntRange(0, boxes-1).Draw(r, "box")
			a := crdt.Account{Budget: fmt.Sprint(rapid.IntRange(0, 2).Draw(r, "budget")), Period: "2026-11"}
			switch rapid.IntRange(0, 5).Draw(r, "what") {
			case 0:
				must(t, all[i].RecordUsage(spendOn(a, rapid.Uint64Range(1, 9).Draw(r, "micros"))))
			case 1:
				must(t, all[i].UpdateEscrow(a, func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Mint(self, 5) }))
			case 2:
				_, err := all[i].FoldSpend(func(crdt.Account) bool { return true })
				must(t, err)
			case 3:
				disk, wall := all[i].disk, all[i].wall
				closeStore(t, all[i].Store)
				all[i] = openClocked(t, disk, wall)
			default:
				tell(i, (i+1)%boxes)
			}
		}
		for range boxes {
			for i := range boxes {
				tell(i, (i+1)%boxes)
				tell(i, (i+2)%boxes)
			}
		}
		want, _ := all[0].MoneyState()
		for i := range boxes {
			if sums, _ := all[i].MoneyState(); sums != want {
				r.Fatalf("box %d has other counts", i)
			}
			if m := tell(i, (i+1)%boxes); !m.Empty() {
				r.Fatalf("all have the same, and still %+v is told", m)
			}
			if rest, _ := all[i].MoneyIn(want); !rest.Empty() {
				r.Fatalf("equal sums, and %+v is told", rest)
			}
		}
	})
}

// What a merge of many parts wrote is there after a crash, and reads as before.
func TestMergedMoneyOutlivesAReopening(t *testing.T) {
	s := newClocked(t)
	var m crdt.Money
	for i := range 3000 {
		m.Spend = append(m.Spend, crdt.SpendEntry{Account: crdt.Account{Budget: fmt.Sprint(i % 50), Period: "p"}, By: crdt.SpendID{Store: crdt.ReplicaID(1 + i), Generation: 1}, Micros: 1})
		m.AddEscrow(crdt.Account{Budget: fmt.Sprint(i / 100), Period: "p"}, crdt.EscrowEntry{From: crdt.ReplicaID(1 + i), To: 9, Micros: 2})
	}
	mergeMoney(t, s.Store, m)
	before, sums := allMoney(s.Store), func() crdt.MoneySums { sums, _ := s.MoneyState(); return sums }
	was := sums()
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	if diff := cmp.Diff(before, allMoney(s.Store), cmpopts.EquateEmpty()); diff != "" || sums() != was {
		t.Error(diff)
	}
}

// days lists what is left of usage records.
func days(t *testing.T, s *store.Store) (out []string) {
	t.Helper()
	must(t, s.UsageRecords(0, func(_ uint64, r []byte) bool { out = append(out, string(r)); return true }))
	return out
}

func TestUsageOfOldDaysIsDropped(t *testing.T) {
	s := newClocked(t)
	const day = 24 * time.Hour
	write := func(name string) { must(t, s.RecordUsage(store.Usage{Record: []byte(name)})) }
	drop := func(kept time.Duration, want int) {
		t.Helper()
		if n, err := s.DropUsage(s.wall.Add(-kept)); n != want || err != nil {
			t.Errorf("%d records were dropped, want %d: %v", n, want, err)
		}
	}
	write("a")
	write("b")
	drop(0, 0) // of today
	*s.wall = s.wall.Add(day)
	write("c")
	drop(2*day, 0)
	drop(0, 2)
	if got := days(t, s.Store); !slices.Equal(got, []string{"c"}) {
		t.Errorf("left %q", got)
	}
	// A clock that jumps far ahead drops nothing as long as nothing is written there.
	*s.wall = s.wall.Add(2000 * day)
	drop(day, 0)
	// One that went back to 1970 writes under days that are long over; they go with their successors.
	*s.wall = s.wall.Add(-2000 * day)
	now := *s.wall
	*s.wall = time.Unix(0, 0).Add(time.Hour)
	write("d")
	drop(day, 0)
	*s.wall = now.Add(day)
	write("e")
	drop(day/2, 0)
	*s.wall = now.Add(2 * day)
	write("f")
	drop(day, 2)
	if got := days(t, s.Store); !slices.Equal(got, []string{"e", "f"}) {
		t.Errorf("left %q", got)
	}
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	write("g")
	drop(0, 1)
	if got := records(t, s.Store, 0); !slices.Equal(got, []string{"5 f", "6 g"}) {
		t.Errorf("left %q", got)
	}
}

// A day's mark is not moved by what is written later that day, before or after a restart.
func TestMarksOfDaysStay(t *testing.T) {
	s := newClocked(t)
	must(t, s.RecordUsage(store.Usage{Record: []byte("a")}))
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	must(t, s.RecordUsage(store.Usage{Record: []byte("b")}))
	if n, err := s.DropUsage(*s.wall); n != 0 || err != nil {
		t.Errorf("%d of today's records were dropped, %v", n, err)
	}
	if got := s.Count("m/sys/day/"); got != 1 {
		t.Errorf("%d marks for one day", got)
	}
	must(t, s.Reset())
	if got := s.Count("m/sys/day/"); got != 0 {
		t.Errorf("%d marks of the mesh that was left", got)
	}
}

// TestSpendingCountsInTheEscrowOnce: what was not reserved, from when the store hears of the escrow on, and at once what it
// spent before; and nobody who hears of it later takes it for a debt twice.
func TestSpendingCountsInTheEscrowOnce(t *testing.T) {
	dir := t.TempDir()
	s, steward := open(t, dir), open(t, t.TempDir())
	spend := func(micros uint64, reserved bool) {
		t.Helper()
		must(t, s.RecordUsage(store.Usage{Charges: []store.Charge{{Account: account, Micros: micros, Reserved: reserved}}}))
	}
	counted := func(want uint64, debt uint64) {
		t.Helper()
		e := s.Escrow(account)
		if got := e.Counted(s.ID()); got != want {
			t.Errorf("%d count, want %d", got, want)
		}
		mergeMoney(t, steward, everything(s))
		if got := steward.Debts(account)[s.ID()]; got != debt {
			t.Errorf("a debt of %d, want %d", got, debt)
		}
		if d := s.Debts(account); len(d) > 0 {
			t.Errorf("it leaves rights alone for itself or nobody: %v", d)
		}
	}
	spend(30, false)
	counted(0, 0) // nobody has minted
	must(t, steward.UpdateEscrow(account, func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Mint(self, 100) }))
	counted(0, 30)
	mergeMoney(t, s, everything(steward))
	counted(30, 30)
	must(t, steward.UpdateEscrow(account, func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Transfer(self, s.ID(), 50) }))
	mergeMoney(t, s, everything(steward))
	must(t, s.UpdateEscrow(account, func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Use(self, 10) }))
	spend(10, true)
	spend(15, false)
	counted(55, 5)
	closeStore(t, s)
	s = open(t, dir)
	spend(1, false)
	counted(56, 6)
	if s.Spent(account) != 56 {
		t.Errorf("%d spent", s.Spent(account))
	}
}
