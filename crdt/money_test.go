package crdt_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"llmgw/crdt"
)

// folds are those of some cells.
func folds(entries []crdt.SpendEntry) []crdt.SpendFold {
	var set crdt.Spend
	set.Merge(entries)
	for _, a := range set.Accounts() {
		set.Fold(a)
	}
	return set.Folds()
}

var moneyParts = rapid.Custom(func(t *rapid.T) crdt.Money {
	m := crdt.Money{
		Spend: rapid.SliceOfN(spendEntries, 0, 6).Draw(t, "spend"),
		Folds: folds(rapid.SliceOfN(spendEntries, 0, 6).Draw(t, "folds")),
	}
	for _, e := range rapid.SliceOfN(escrowEntries, 0, 6).Draw(t, "escrow") {
		m.AddEscrow(crdt.Account{Budget: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "budget"), Period: "p"}, e)
	}
	return m
})

func TestMoneyIsPackedIntoPartsThatHoldAllOfIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := moneyParts.Draw(t, "money")
		most := rapid.IntRange(100, 400).Draw(t, "most")
		var all crdt.Money
		for _, part := range m.Pack(most) {
			data, err := crdt.EncodeMoney(part)
			if err != nil || part.Empty() {
				t.Fatalf("%+v: %v", part, err)
			}
			if len(data) > most && len(part.Spend)+len(part.Folds)+len(part.Escrows) > 1 {
				t.Fatalf("a part of %d bytes, at most %d", len(data), most)
			}
			back, err := crdt.DecodeMoney(data)
			if diff := cmp.Diff(part, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Fatalf("decoded with %v: %s", err, diff)
			}
			all.Spend, all.Folds = append(all.Spend, back.Spend...), append(all.Folds, back.Folds...)
			if len(back.Escrows) > 0 && len(all.Spend)+len(all.Folds) > len(back.Spend)+len(back.Folds) {
				t.Fatalf("spending comes before the escrows that count it: %+v", all)
			}
			for _, p := range back.Escrows {
				for _, e := range p.Cells {
					all.AddEscrow(p.Account, e)
				}
			}
		}
		if diff := cmp.Diff(m, all, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// sumsOf sums up entries, given in any order.
func sumsOf(entries []crdt.SpendEntry) crdt.MoneySums {
	var sums crdt.MoneySums
	for _, e := range entries {
		sums.ToggleSpend(e)
	}
	return sums
}

func TestSumsOfMoney(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set crdt.Spend
		set.Merge(rapid.SliceOfN(spendEntries, 1, 8).Draw(t, "entries"))
		entries := set.Entries()
		sums := sumsOf(entries)
		if again := sumsOf(rapid.Permutation(entries).Draw(t, "order")); again != sums {
			t.Fatal("order counts")
		}
		for _, f := range folds(entries) {
			for _, e := range f.Entries() {
				sums.ToggleSpend(e)
			}
		}
		if sums != (crdt.MoneySums{}) || sums.Total() != 0 {
			t.Fatal("what entered does not leave again")
		}
		more := slices.Clone(entries)
		more[0].Micros++
		a, b := sumsOf(entries), sumsOf(more)
		bucket := crdt.MoneyBucket(more[0].Account)
		if a.Total() == b.Total() || a[bucket] == b[bucket] {
			t.Fatal("another value has the same sum")
		}
		back, err := crdt.DecodeMoneySums(a.Encode())
		if err != nil || back != a {
			t.Fatalf("decoded with %v", err)
		}
	})
	var spend, escrow crdt.MoneySums
	spend.ToggleSpend(crdt.SpendEntry{Account: account, By: crdt.SpendID{Store: 1, Generation: 2}, Micros: 3})
	escrow.ToggleEscrow(account, crdt.EscrowEntry{From: 1, To: 2, Micros: 3})
	if spend == escrow {
		t.Error("a cell of an escrow has the sum of one that was spent")
	}
	for name, data := range map[string][]byte{"empty": nil, "short": make([]byte, 3), "a byte more": append(spend.Encode(), 0)} {
		if _, err := crdt.DecodeMoneySums(data); !errors.Is(err, crdt.ErrMalformed) && !errors.Is(err, crdt.ErrVersion) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever decodes encodes to the same bytes, packs, and joins.
func FuzzDecodeMoney(f *testing.F) {
	for i := range 4 {
		data, err := crdt.EncodeMoney(moneyParts.Example(i))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := crdt.DecodeMoney(data)
		if err != nil {
			return
		}
		again, err := crdt.EncodeMoney(m)
		if err != nil || string(again) != string(data) {
			t.Fatalf("%x decodes and encodes to %x, %v", data, again, err)
		}
		for _, part := range m.Pack(300) {
			if _, err := crdt.EncodeMoney(part); err != nil {
				t.Fatal(err)
			}
		}
		var spend crdt.Spend
		var escrow crdt.Escrow
		spend.Merge(m.Spend)
		for _, fold := range m.Folds {
			spend.MergeFold(fold)
		}
		for _, p := range m.Escrows {
			escrow.Merge(p.Cells)
		}
	})
}

func FuzzDecodeMoneySums(f *testing.F) {
	sums := sumsOf([]crdt.SpendEntry{{Account: account, Micros: 1}})
	f.Add(sums.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		sums, err := crdt.DecodeMoneySums(data)
		if err == nil && string(sums.Encode()) != string(data) {
			t.Errorf("%x encodes to %x", data, sums.Encode())
		}
	})
}
