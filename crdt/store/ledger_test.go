package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

var account = crdt.Account{Budget: "team", Period: "2026-11"}

func usage(record string, micros uint64) store.Usage {
	return store.Usage{Record: []byte(record), Charges: []store.Charge{{Account: account, Micros: micros}}}
}

func records(t *testing.T, s *store.Store, from uint64) []string {
	t.Helper()
	var out []string
	must(t, s.UsageRecords(from, func(n uint64, record []byte) bool {
		out = append(out, fmt.Sprint(n, " ", string(record)))
		return true
	}))
	return out
}

func TestUsageAndItsCostAreKeptTogether(t *testing.T) {
	s := newClocked(t)
	must(t, s.RecordUsage(usage("first", 10)))
	must(t, s.RecordUsage(store.Usage{Record: []byte("free")}))
	both := usage("two budgets", 5)
	both.Charges = append(both.Charges, store.Charge{Account: crdt.Account{Budget: "all", Period: "2026-11"}, Micros: 7},
		store.Charge{Account: account, Micros: 1})
	must(t, s.RecordUsage(both))
	before := s.SpendID()
	check := func(when string) {
		t.Helper()
		if got := s.Spent(account); got != 16 || s.Spent(crdt.Account{Budget: "all", Period: "2026-11"}) != 7 {
			t.Errorf("%s: spent %d", when, got)
		}
		if got := records(t, s.Store, 0); !slices.Equal(got, []string{"0 first", "1 free", "2 two budgets"}) {
			t.Errorf("%s: %q", when, got)
		}
	}
	check("at once")
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	check("after reopening")
	if after := s.SpendID(); after.Store != before.Store || after.Generation == before.Generation {
		t.Errorf("counts on as %+v, was %+v", after, before)
	}
	must(t, s.RecordUsage(usage("next", 4)))
	if got := records(t, s.Store, 3); s.Spent(account) != 20 || !slices.Equal(got, []string{"3 next"}) || len(s.SpendEntries()) != 3 {
		t.Errorf("spent %d, records %q, cells %v", s.Spent(account), got, s.SpendEntries())
	}
	calls := 0
	must(t, s.UsageRecords(0, func(uint64, []byte) bool { calls++; return false }))
	if calls != 1 {
		t.Errorf("went on after false: %d calls", calls)
	}
}

func TestRefusedUsageCountsNothingAndHurtsNobody(t *testing.T) {
	s := newClocked(t)
	var wait sync.WaitGroup
	var bad error
	wait.Go(func() { bad = s.RecordUsage(usage("too much", crdt.MaxAmount+1)) })
	wait.Go(func() {
		u := usage("half", 3)
		u.Charges = append(u.Charges, store.Charge{Account: crdt.Account{Budget: "x"}, Micros: crdt.MaxAmount}, store.Charge{Account: crdt.Account{Budget: "x"}, Micros: 1})
		if err := s.RecordUsage(u); !errors.Is(err, crdt.ErrExhausted) {
			t.Errorf("got %v", err)
		}
	})
	wait.Go(func() {
		if err := s.RecordUsage(usage("good", 5)); err != nil {
			t.Errorf("a good record beside a bad one: %v", err)
		}
	})
	wait.Wait()
	if !errors.Is(bad, crdt.ErrExhausted) || s.Spent(account) != 5 || len(records(t, s.Store, 0)) != 1 {
		t.Errorf("%v, spent %d, %q", bad, s.Spent(account), records(t, s.Store, 0))
	}
	if err := s.RecordUsage(store.Usage{Record: make([]byte, crdt.MaxValueBytes+1)}); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("an oversize record: %v", err)
	}
	long := usage("x", 1)
	long.Charges[0].Account.Budget = string(make([]byte, crdt.MaxKeyBytes))
	if err := s.RecordUsage(long); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("an oversize budget: %v", err)
	}
}

// One commit serves all that wait: after 50 ms, or as soon as there are 256.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open("", store.Options{Disk: store.NewDisk()})
		must(t, err)
		defer func() { must(t, s.Close()) }()
		syncs := 0
		s.OnSync(func() { syncs++ })
		run := func(n int) time.Duration {
			began := time.Now()
			var wait sync.WaitGroup
			for range n {
				wait.Go(func() {
					if err := s.RecordUsage(usage("r", 1)); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			return time.Since(began)
		}
		if took := run(100); took != 50*time.Millisecond || syncs != 1 {
			t.Errorf("100 records took %s and %d syncs", took, syncs)
		}
		if took := run(256); took != 0 || syncs != 2 {
			t.Errorf("256 records took %s and %d syncs", took, syncs-1)
		}
		if got := s.Spent(account); got != 356 {
			t.Errorf("spent %d", got)
		}
	})
}

func TestUsageAfterTheStoreFailed(t *testing.T) {
	s := newClocked(t)
	must(t, s.RecordUsage(usage("before", 1)))
	s.FailSync(errors.New("input/output error"))
	if err := s.RecordUsage(usage("lost", 1)); !errors.Is(err, store.ErrFailed) || s.Spent(account) != 1 {
		t.Errorf("%v, spent %d", err, s.Spent(account))
	}
	closeStore(t, s.Store)
	if err := s.RecordUsage(usage("closed", 1)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// A disk that was rolled back, restored or cloned counts beside what was counted, never over it.
func TestNoIncrementIsLostToACopy(t *testing.T) {
	s := newClocked(t)
	must(t, s.RecordUsage(usage("shared past", 10)))
	copied, err := s.disk.Copy()
	must(t, err)
	clone := openClocked(t, copied, s.wall)
	must(t, s.RecordUsage(usage("here", 3)))
	must(t, clone.RecordUsage(usage("there", 3)))
	mergeMoney(t, s.Store, allMoney(clone.Store))
	mergeMoney(t, clone.Store, allMoney(s.Store))
	if s.Spent(account) != 16 || clone.Spent(account) != 16 {
		t.Errorf("16 were spent, and they see %d and %d", s.Spent(account), clone.Spent(account))
	}
}

// Even a process that was copied with its memory is found, by what a peer has of it.
func TestOwnCellHigherAtAPeerMakesANewWriter(t *testing.T) {
	s := newClocked(t)
	must(t, s.RecordUsage(usage("a", 10)))
	was := s.SpendID()
	mergeMoney(t, s.Store, crdt.Money{Spend: []crdt.SpendEntry{{Account: account, By: was, Micros: 10}}})
	if s.SpendID() != was {
		t.Error("a peer that knows the same is no reason")
	}
	mergeMoney(t, s.Store, crdt.Money{Spend: []crdt.SpendEntry{{Account: account, By: was, Micros: 25}}})
	if s.SpendID() == was {
		t.Fatal("two processes write one cell")
	}
	must(t, s.RecordUsage(usage("b", 1)))
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	if got := s.Spent(account); got != 26 {
		t.Errorf("spent %d", got)
	}
}

func TestResetForgetsTheCountsOfTheMeshThatWasLeft(t *testing.T) {
	s := newClocked(t)
	must(t, s.RecordUsage(usage("a", 10)))
	must(t, s.Reset())
	must(t, s.RecordUsage(usage("b", 1)))
	if got := records(t, s.Store, 0); s.Spent(account) != 1 || !slices.Equal(got, []string{"0 b"}) {
		t.Errorf("spent %d, %q", s.Spent(account), got)
	}
}

func TestEscrowIsKept(t *testing.T) {
	s, peer := newClocked(t), newClocked(t)
	must(t, s.UpdateEscrow(account, func(self crdt.ReplicaID, e *crdt.Escrow) error {
		return errors.Join(e.Mint(self, 100), e.Transfer(self, peer.ID(), 30), e.Use(self, 50))
	}))
	closeStore(t, s.Store)
	s = openClocked(t, s.disk, s.wall)
	e := s.Escrow(account)
	if got := e.Rights(s.ID()); got != 20 {
		t.Errorf("rights %d after reopening", got)
	}
	mergeMoney(t, peer.Store, escrowOf(account, e))
	err := peer.UpdateEscrow(account, func(self crdt.ReplicaID, e *crdt.Escrow) error {
		return errors.Join(e.Use(self, 30), e.Use(self, 1))
	})
	if !errors.Is(err, crdt.ErrRights) {
		t.Errorf("spent more than it was given: %v", err)
	}
	e = peer.Escrow(account)
	if got := e.Rights(peer.ID()); got != 30 {
		t.Errorf("a refused update left rights of %d", got)
	}
	if other := s.Escrow(crdt.Account{Budget: "team", Period: "2026-1"}); len(other.Entries()) != 0 {
		t.Errorf("another period holds %v", other.Entries())
	}
}

func TestEscrowOfARolledBackDiskIsFrozen(t *testing.T) {
	s := newClocked(t)
	must(t, s.UpdateEscrow(account, func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Mint(self, 100) }))
	old, err := s.disk.Copy()
	must(t, err)
	must(t, s.UpdateEscrow(account, func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Use(self, 90) }))
	known := s.Escrow(account)
	was := s.ID()
	back := openClocked(t, old, s.wall)
	if !mergeMoney(t, back.Store, escrowOf(account, known)) {
		t.Error("the store does not say that it was rolled back")
	}
	e := back.Escrow(account)
	if back.ID() == was || e.Rights(was) != 10 || e.Rights(back.ID()) != 0 || !back.Overdue(0) {
		t.Errorf("store %d was %d, rights %d and %d, overdue %v", back.ID(), was, e.Rights(was), e.Rights(back.ID()), back.Overdue(0))
	}
	if back.SpendID().Store != back.ID() {
		t.Errorf("spends as %+v", back.SpendID())
	}
}

func TestDamagedCountersAreSaidToBe(t *testing.T) {
	for name, key := range map[string]string{
		"spend cell": "c/" + string(crdt.NewKey("spend", "b", "p", "short")),
		"usage":      "u/12",
		"escrow":     "c/" + string(crdt.NewKey("escrow", "b", "p", "x", "y")),
		"fold":       "c/" + string(crdt.NewKey("fold", "b", "p")),
	} {
		t.Run(name, func(t *testing.T) {
			s := newClocked(t)
			s.Poke(key, make([]byte, 8))
			closeStore(t, s.Store)
			if _, err := store.Open("", store.Options{Disk: s.disk}); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}
