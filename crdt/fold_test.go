package crdt_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"llmgw/crdt"
)

// flat is everything that a Spend holds, as cells, whether it is folded or not.
func flat(s *crdt.Spend) []crdt.SpendEntry {
	var all crdt.Spend
	all.Merge(s.Entries())
	for _, f := range s.Folds() {
		all.Merge(f.Entries())
	}
	return all.Entries()
}

// Replicas that count, tell each other and fold, each when it likes, come to what they would have come to without folding.
func TestFoldingChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const nodes = 3
		var folding, plain [nodes]crdt.Spend
		id := rapid.IntRange(0, nodes-1)
		accounts := rapid.SampledFrom([]crdt.Account{account, {Budget: "team", Period: "2026-12"}})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			self := id.Draw(t, "node")
			a := accounts.Draw(t, "account")
			switch rapid.SampledFrom([]string{"add", "add", "fold", "tell", "tell", "tell twice"}).Draw(t, "do") {
			case "add":
				by := crdt.SpendID{Store: crdt.ReplicaID(self), Generation: rapid.Uint64Range(1, 3).Draw(t, "generation")}
				n := rapid.Uint64Range(1, 9).Draw(t, "n")
				got, err := folding[self].Add(a, by, n)
				ok(t, err)
				if want, err := plain[self].Add(a, by, n); err != nil || got != want {
					t.Fatalf("the cell became %+v, which is %+v (%v)", got, want, err)
				}
			case "fold":
				folding[self].Fold(a)
			case "tell", "tell twice":
				to := id.Draw(t, "to")
				tell(&folding[to], &folding[self])
				plain[to].Merge(plain[self].Entries())
			}
			for i := range nodes {
				if diff := cmp.Diff(flat(&plain[i]), flat(&folding[i])); diff != "" {
					t.Fatalf("node %d: %s", i, diff)
				}
				if got, want := folding[i].Total(a), plain[i].Total(a); got != want {
					t.Fatalf("node %d has a total of %d, which is %d", i, got, want)
				}
			}
		}
	})
}

// tell lets to know what from knows, the folds before or after the cells.
func tell(to, from *crdt.Spend) {
	to.Merge(from.Entries())
	for _, f := range from.Folds() {
		to.MergeFold(f)
	}
}

// Folds join like any other state: in any order, grouped and repeated at will.
func TestFoldsJoinInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lists := rapid.SliceOfN(rapid.SliceOfN(spendEntries, 1, 6), 1, 4).Draw(t, "lists")
		folds := func(order []int) []crdt.SpendEntry {
			var s crdt.Spend
			for _, i := range order {
				var one crdt.Spend
				one.Merge(lists[i])
				for _, a := range one.Accounts() {
					f, _ := one.Fold(a)
					s.MergeFold(f)
					s.MergeFold(f)
				}
			}
			return flat(&s)
		}
		order := make([]int, len(lists))
		for i := range order {
			order[i] = i
		}
		want := folds(order)
		if diff := cmp.Diff(want, folds(rapid.Permutation(order).Draw(t, "order"))); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestLateCellOfAFoldedPeriodCounts(t *testing.T) {
	var s crdt.Spend
	a, b, late := crdt.SpendID{Store: 1, Generation: 1}, crdt.SpendID{Store: 2, Generation: 1}, crdt.SpendID{Store: 3, Generation: 1}
	s.Merge([]crdt.SpendEntry{{Account: account, By: a, Micros: 10}, {Account: account, By: b, Micros: 5}})
	f, folded := s.Fold(account)
	if !folded || len(f.Cells) != 2 || len(s.Entries()) != 0 || len(s.Folds()) != 1 || s.Total(account) != 15 {
		t.Fatalf("folded to %+v, %+v beside it, total %d", f, s.Entries(), s.Total(account))
	}
	if _, again := s.Fold(account); again {
		t.Error("folded what has nothing beside it")
	}
	news := s.Merge([]crdt.SpendEntry{
		{Account: account, By: a, Micros: 9}, {Account: account, By: b, Micros: 8}, {Account: account, By: late, Micros: 2},
	})
	if len(news) != 2 || s.Total(account) != 20 || s.Of(account, b) != 8 || s.Of(account, a) != 10 {
		t.Errorf("news %+v, total %d", news, s.Total(account))
	}
	if f, _ := s.Fold(account); len(f.Cells) != 3 || len(s.Entries()) != 0 || s.Total(account) != 20 {
		t.Errorf("folded again to %+v, total %d", f, s.Total(account))
	}
}

func TestFoldIsBounded(t *testing.T) {
	var s crdt.Spend
	for i := range crdt.MaxFold + 1 {
		s.Merge([]crdt.SpendEntry{{Account: account, By: crdt.SpendID{Store: 1, Generation: uint64(i)}, Micros: 1}})
	}
	if _, folded := s.Fold(account); folded || s.Total(account) != crdt.MaxFold+1 {
		t.Errorf("folded %v, total %d", folded, s.Total(account))
	}
	var other crdt.Spend
	other.Merge(s.Entries()[:crdt.MaxFold])
	big, folded := other.Fold(account)
	if !folded {
		t.Fatal("the largest fold was refused")
	}
	var last crdt.Spend
	last.Merge(s.Entries()[crdt.MaxFold:])
	last.Fold(account)
	if _, changed := last.MergeFold(big); changed || last.Total(account) != crdt.MaxFold+1 {
		t.Errorf("changed %v, total %d", changed, last.Total(account))
	}
}

func TestFoldsOutOfOrderAreRefused(t *testing.T) {
	cell := func(generation, micros uint64) crdt.SpendCell {
		return crdt.SpendCell{By: crdt.SpendID{Store: 1, Generation: generation}, Micros: micros}
	}
	for name, cells := range map[string][]crdt.SpendCell{
		"twice": {cell(1, 5), cell(1, 5)}, "backwards": {cell(2, 5), cell(1, 5)}, "nothing": {cell(1, 0)},
	} {
		if _, err := crdt.EncodeFolds([]crdt.SpendFold{{Account: account, Cells: cells}}); !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fine := []crdt.SpendFold{{Account: account, Cells: []crdt.SpendCell{cell(1, 5), cell(2, 7)}}}
	data, err := crdt.EncodeFolds(fine)
	ok(t, err)
	back, err := crdt.DecodeFolds(data)
	if diff := cmp.Diff(fine, back); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func FuzzDecodeFolds(f *testing.F) {
	data, err := crdt.EncodeFolds([]crdt.SpendFold{{Account: account, Cells: []crdt.SpendCell{{By: crdt.SpendID{Store: 1, Generation: 2}, Micros: 3}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, data)
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, err := crdt.DecodeFolds(x)
		if err != nil {
			return
		}
		if again, err := crdt.EncodeFolds(a); err != nil || string(again) != string(x) {
			t.Fatalf("%x decodes and encodes to %x, %v", x, again, err)
		}
		b, err := crdt.DecodeFolds(y)
		if err != nil {
			return
		}
		var ab, ba crdt.Spend
		for i, lists := range [][2][]crdt.SpendFold{{a, b}, {b, a}} {
			for _, f := range append(append([]crdt.SpendFold{}, lists[0]...), lists[1]...) {
				[]*crdt.Spend{&ab, &ba}[i].MergeFold(f)
			}
		}
		if diff := cmp.Diff(flat(&ab), flat(&ba)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestByStoreIsWhatWasFoldedToo: whether cells are folded, and what came since, makes no difference.
func TestByStoreIsWhatWasFoldedToo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var plain, folding crdt.Spend
		for range rapid.IntRange(0, 20).Draw(t, "entries") {
			e := crdt.SpendEntry{Account: account, Micros: rapid.Uint64Range(1, 50).Draw(t, "micros"),
				By: crdt.SpendID{Store: crdt.ReplicaID(rapid.IntRange(1, 3).Draw(t, "store")), Generation: rapid.Uint64Range(1, 2).Draw(t, "generation")}}
			plain.Merge([]crdt.SpendEntry{e})
			folding.Merge([]crdt.SpendEntry{e})
			if rapid.Bool().Draw(t, "fold") {
				folding.Fold(account)
			}
		}
		sum := uint64(0)
		for _, micros := range folding.ByStore(account) {
			sum += micros
		}
		if got, want := folding.ByStore(account), plain.ByStore(account); !maps.Equal(got, want) || sum != plain.Total(account) {
			t.Fatalf("%v, want %v, and %d in all", got, want, plain.Total(account))
		}
	})
}
