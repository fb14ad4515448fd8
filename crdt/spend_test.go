package crdt_test

import (
	"errors"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"llmgw/crdt"
)

var account = crdt.Account{Budget: "team", Period: "2026-11"}

func TestSpendOnlyGrowsAndSumsUp(t *testing.T) {
	var s crdt.Spend
	mine, other := crdt.SpendID{Store: 1, Generation: 1}, crdt.SpendID{Store: 2, Generation: 5}
	if e, err := s.Add(account, mine, 10); err != nil || e.Micros != 10 {
		t.Errorf("%+v, %v", e, err)
	}
	news := s.Merge([]crdt.SpendEntry{{Account: account, By: other, Micros: 7}, {Account: account, By: mine, Micros: 4}})
	if len(news) != 1 || s.Total(account) != 17 || s.Of(account, mine) != 10 {
		t.Errorf("news %+v, total %d, own %d", news, s.Total(account), s.Of(account, mine))
	}
	if got := s.Total(crdt.Account{Budget: "team", Period: "2026-12"}); got != 0 {
		t.Errorf("the next period begins with %d", got)
	}
	if _, err := s.Add(account, mine, crdt.MaxAmount); !errors.Is(err, crdt.ErrExhausted) || s.Of(account, mine) != 10 {
		t.Errorf("overflow: %v, own %d", err, s.Of(account, mine))
	}
}

// All that is minted can be spent, nothing more, whatever is known where. Nobody's own rights are ever negative.
func TestEscrowNeverOverspends(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const nodes = 3
		var views [nodes + 1]crdt.Escrow
		id := rapid.IntRange(1, nodes)
		used, minted := uint64(0), uint64(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			self := id.Draw(t, "node")
			me, n := crdt.ReplicaID(self), rapid.Uint64Range(0, 50).Draw(t, "n")
			switch rapid.SampledFrom([]string{"mint", "use", "use", "give", "tell", "tell"}).Draw(t, "do") {
			case "mint":
				ok(t, views[1].Mint(1, n))
				minted += n
			case "use":
				if err := views[self].Use(me, n); err == nil {
					used += n
				} else if !errors.Is(err, crdt.ErrRights) {
					t.Fatal(err)
				}
			case "give":
				to := crdt.ReplicaID(self%nodes + 1)
				if err := views[self].Transfer(me, to, n); err != nil && !errors.Is(err, crdt.ErrRights) {
					t.Fatal(err)
				}
			case "tell":
				views[id.Draw(t, "to")].Merge(views[self].Entries())
			}
			for i := 1; i <= nodes; i++ {
				if rights := views[i].Rights(crdt.ReplicaID(i)); rights < 0 {
					t.Fatalf("node %d has rights %d", i, rights)
				}
			}
			if used > minted {
				t.Fatalf("%d used of %d", used, minted)
			}
		}
		var all crdt.Escrow
		for i := 1; i <= nodes; i++ {
			all.Merge(views[i].Entries())
		}
		sum := int64(0)
		for i := 1; i <= nodes; i++ {
			sum += all.Rights(crdt.ReplicaID(i))
		}
		if all.Used() != used || all.Minted() != minted || sum != int64(minted-used) {
			t.Fatalf("minted %d, used %d, and %d are left", all.Minted(), all.Used(), sum)
		}
	})
}

func TestDebts(t *testing.T) {
	var e crdt.Escrow
	ok(t, e.Mint(1, 100))
	ok(t, e.Transfer(1, 2, 30))
	ok(t, e.Overdraw(2, 50))                                           // 20 of it without rights
	ok(t, e.Overdraw(1, 10))                                           // of its own
	e.Merge([]crdt.EscrowEntry{{From: 3, To: crdt.Spent, Micros: 40}}) // what it was given is not known
	debts := func(spent map[crdt.ReplicaID]uint64, want map[crdt.ReplicaID]uint64) {
		t.Helper()
		if got := e.Debts(spent); !maps.Equal(got, want) {
			t.Errorf("debts %v, want %v", got, want)
		}
	}
	debts(nil, map[crdt.ReplicaID]uint64{2: 20})
	// Store 4 has not counted what it spent, store 2 only some of it.
	debts(map[crdt.ReplicaID]uint64{1: 10, 2: 55, 3: 40, 4: 7}, map[crdt.ReplicaID]uint64{2: 25, 4: 7})
	ok(t, e.Transfer(1, 4, 7))
	ok(t, e.Transfer(1, 2, 12))
	debts(map[crdt.ReplicaID]uint64{2: 55, 4: 7}, map[crdt.ReplicaID]uint64{2: 13})
	if e.Used() != 100 || e.Counted(2) != 50 || e.Rights(2) != -8 {
		t.Errorf("used %d, %d by 2, which has rights of %d", e.Used(), e.Counted(2), e.Rights(2))
	}
}

func TestEscrowCutsAndOverdrafts(t *testing.T) {
	var e crdt.Escrow
	ok(t, e.Mint(1, 100))
	ok(t, e.Transfer(1, crdt.Burned, 40))
	if err := e.Use(1, 61); !errors.Is(err, crdt.ErrRights) {
		t.Errorf("spent what was cut: %v", err)
	}
	ok(t, e.Use(1, 60))
	ok(t, e.Overdraw(1, 5))
	if got := e.Rights(1); got != -5 {
		t.Errorf("rights %d after an overdraft", got)
	}
	if err := e.Use(1, 0); !errors.Is(err, crdt.ErrRights) {
		t.Errorf("went on with an overdraft: %v", err)
	}
	if err := e.Transfer(1, 1, 1); !errors.Is(err, crdt.ErrMalformed) {
		t.Errorf("gave to itself, which would mint: %v", err)
	}
	if err := e.Mint(1, crdt.MaxAmount); !errors.Is(err, crdt.ErrExhausted) {
		t.Errorf("minted beyond the end: %v", err)
	}
}
