package crdt_test

import (
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"llmgw/crdt"
)

var (
	windowEntries = rapid.Custom(func(t *rapid.T) crdt.WindowEntry {
		n := rapid.Uint64Range(0, 9)
		return crdt.WindowEntry{
			Meter:  crdt.Meter{Limit: rapid.SampledFrom([]string{"rpm", "tpm"}).Draw(t, "limit"), Subject: "key", Metric: "requests"},
			Window: rapid.Int64Range(95, 102).Draw(t, "window"),
			By:     crdt.Incarnation{Replica: crdt.ReplicaID(rapid.Uint64Range(1, 2).Draw(t, "replica")), Boot: rapid.Uint64Range(1, 2).Draw(t, "boot")},
			Count:  crdt.WindowCount{Used: n.Draw(t, "used"), Up: n.Draw(t, "up"), Down: n.Draw(t, "down")},
		}
	})
	spendEntries = rapid.Custom(func(t *rapid.T) crdt.SpendEntry {
		return crdt.SpendEntry{
			Account: crdt.Account{Budget: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "budget"), Period: "2026-11"},
			By:      crdt.SpendID{Store: crdt.ReplicaID(rapid.Uint64Range(1, 2).Draw(t, "store")), Generation: rapid.Uint64Range(1, 2).Draw(t, "generation")},
			Micros:  rapid.Uint64Range(1, 9).Draw(t, "micros"),
		}
	})
	escrowEntries = rapid.Custom(func(t *rapid.T) crdt.EscrowEntry {
		id := rapid.SampledFrom([]crdt.ReplicaID{1, 2, 3, crdt.Burned, crdt.Spent})
		return crdt.EscrowEntry{
			From: crdt.ReplicaID(rapid.Uint64Range(1, 3).Draw(t, "from")), To: id.Draw(t, "to"), Micros: rapid.Uint64Range(1, 9).Draw(t, "micros"),
		}
	})
)

// counter is a set of counts that joins, as the tests of the laws see it.
type counter[E any] struct {
	name   string
	entry  *rapid.Generator[E]
	join   func([][]E) []E // merges lists in order and returns all
	encode func([]E) ([]byte, error)
	decode func([]byte) ([]E, error)
}

var (
	windowCounter = counter[crdt.WindowEntry]{"windows", windowEntries, func(lists [][]crdt.WindowEntry) []crdt.WindowEntry {
		set := crdt.NewWindowSet(crdt.Incarnation{Replica: 99})
		for _, l := range lists {
			set.Merge(l, 100)
		}
		return set.All()
	}, crdt.EncodeWindows, crdt.DecodeWindows}
	spendCounter = counter[crdt.SpendEntry]{"spend", spendEntries, func(lists [][]crdt.SpendEntry) []crdt.SpendEntry {
		var set crdt.Spend
		for _, l := range lists {
			set.Merge(l)
		}
		return set.Entries()
	}, func(entries []crdt.SpendEntry) ([]byte, error) {
		return crdt.EncodeMoney(crdt.Money{Spend: entries})
	}, func(data []byte) ([]crdt.SpendEntry, error) {
		m, err := crdt.DecodeMoney(data)
		return m.Spend, err
	}}
	escrowCounter = counter[crdt.EscrowEntry]{"escrow", escrowEntries, func(lists [][]crdt.EscrowEntry) []crdt.EscrowEntry {
		var set crdt.Escrow
		for _, l := range lists {
			set.Merge(l)
		}
		return set.Entries()
	}, func(entries []crdt.EscrowEntry) ([]byte, error) {
		return crdt.EncodeMoney(crdt.Money{Escrows: []crdt.EscrowPart{{Account: account, Cells: entries}}})
	}, func(data []byte) ([]crdt.EscrowEntry, error) {
		m, err := crdt.DecodeMoney(data)
		if err != nil || len(m.Escrows) != 1 {
			return nil, err
		}
		return m.Escrows[0].Cells, nil
	}}
)

// laws: joins are commutative, associative and idempotent, and what is encoded comes back.
func laws[E any](c counter[E]) func(*testing.T) {
	return func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			lists := rapid.SliceOfN(rapid.SliceOfN(c.entry, 0, 6), 1, 4).Draw(t, "lists")
			want := c.join(lists)
			shuffled := rapid.Permutation(lists).Draw(t, "shuffled")
			if diff := cmp.Diff(want, c.join(append(shuffled, lists...)), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("order or repetition counts: %s", diff)
			}
			if diff := cmp.Diff(want, c.join([][]E{c.join(lists[:1]), c.join(lists[1:])}), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("grouping counts: %s", diff)
			}
			data, err := c.encode(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.decode(data)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Fatalf("decoded with %v: %s", err, diff)
			}
		})
	}
}

func TestCountsJoin(t *testing.T) {
	t.Run("windows", laws(windowCounter))
	t.Run("spend", laws(spendCounter))
	t.Run("escrow", laws(escrowCounter))
}

func TestGoldenCounts(t *testing.T) {
	window, err := crdt.EncodeWindows([]crdt.WindowEntry{{
		Meter: crdt.Meter{Limit: "l", Subject: "s", Metric: "m"}, Window: 100, By: crdt.Incarnation{Replica: 7, Boot: 2},
		Count: crdt.WindowCount{Used: 24, Up: 3, Down: 1},
	}})
	check := func(name string, got []byte, err error, want string) {
		t.Helper()
		if hex.EncodeToString(got) != want || err != nil {
			t.Errorf("%s: %x, %v, want %s", name, got, err, want)
		}
	}
	check("window", window, err, "01"+"81"+"89"+"416c"+"4173"+"416d"+"1864"+"07"+"02"+"1818"+"03"+"01")
	money, err := crdt.EncodeMoney(crdt.Money{
		Spend:   []crdt.SpendEntry{{Account: crdt.Account{Budget: "b", Period: "p"}, By: crdt.SpendID{Store: 7, Generation: 2}, Micros: 256}},
		Folds:   []crdt.SpendFold{{Account: crdt.Account{Budget: "b", Period: "o"}, Cells: []crdt.SpendCell{{By: crdt.SpendID{Store: 7, Generation: 1}, Micros: 9}}}},
		Escrows: []crdt.EscrowPart{{Account: crdt.Account{Budget: "b", Period: "p"}, Cells: []crdt.EscrowEntry{{From: 1, To: crdt.Spent, Micros: 5}}}},
	})
	check("money", money, err, "01"+"83"+
		"81"+"85"+"4162"+"4170"+"07"+"02"+"190100"+
		"81"+"83"+"4162"+"416f"+"81"+"83"+"07"+"01"+"09"+
		"81"+"83"+"4162"+"4170"+"81"+"83"+"01"+"1bffffffffffffffff"+"05")
}

func TestDecodeCountsRefuses(t *testing.T) {
	long := "59" + "0100" + strings.Repeat("61", 256)
	decode := map[string]func([]byte) error{
		"windows": func(d []byte) error { _, err := crdt.DecodeWindows(d); return err },
		"money":   func(d []byte) error { _, err := crdt.DecodeMoney(d); return err },
	}
	const spend, escrow = "0183" + "81", "0183" + "80" + "80" + "81" + "83" + "4162" + "4170" + "81"
	for _, tc := range []struct {
		what, name, hex string
		want            error
	}{
		{"money", "empty input", "", crdt.ErrMalformed},
		{"money", "newer version", "0283808080", crdt.ErrVersion},
		{"money", "a map", "01a0", crdt.ErrMalformed},
		{"money", "two lists", "01828080", crdt.ErrMalformed},
		{"money", "bytes behind it", "0183808080" + "80", crdt.ErrMalformed},
		{"money", "nothing for a list", "0183f68080", crdt.ErrMalformed},
		{"money", "spend too short", spend + "84" + "4162" + "4170" + "07" + "02" + "8080", crdt.ErrMalformed},
		{"money", "spend negative", spend + "85" + "4162" + "4170" + "07" + "02" + "20" + "8080", crdt.ErrMalformed},
		{"money", "spend over the bound", spend + "85" + "4162" + "4170" + "07" + "02" + "1bffffffffffffffff" + "8080", crdt.ErrTooLarge},
		{"money", "spend with a long name", spend + "85" + long + "4170" + "07" + "02" + "01" + "8080", crdt.ErrTooLarge},
		{"money", "spend not in shortest form", spend + "85" + "4162" + "4170" + "07" + "02" + "1801" + "8080", crdt.ErrMalformed},
		{"money", "escrow over the bound", escrow + "83" + "01" + "02" + "1bffffffffffffffff", crdt.ErrTooLarge},
		{"money", "escrow with a long name", "0183" + "80" + "80" + "81" + "83" + long + "4170" + "80", crdt.ErrTooLarge},
		{"money", "a fold out of order", "0183" + "80" + "81" + "83" + "4162" + "4170" + "82" + "83070201" + "83070101" + "80", crdt.ErrMalformed},
		{"windows", "over the bound", "0181" + "89" + "416c" + "4173" + "416d" + "1864" + "07" + "02" + "1bffffffffffffffff" + "03" + "01", crdt.ErrTooLarge},
	} {
		t.Run(tc.what+" "+tc.name, func(t *testing.T) {
			data, err := hex.DecodeString(tc.hex)
			if err != nil {
				t.Fatal(err)
			}
			if err := decode[tc.what](data); !errors.Is(err, tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := crdt.EncodeMoney(crdt.Money{Spend: []crdt.SpendEntry{{Micros: math.MaxUint64}}}); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("encoded over the bound: %v", err)
	}
	if err := decode["money"](make([]byte, crdt.MaxMessageBytes+1)); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("a message over the bound: %v", err)
	}
}

// Whatever decodes encodes to the same bytes.
func fuzzCounts[E any](f *testing.F, c counter[E]) {
	data, err := c.encode([]E{c.entry.Example(1), c.entry.Example(2)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := c.decode(data)
		if err != nil {
			return
		}
		again, err := c.encode(entries)
		if err != nil || string(again) != string(data) {
			t.Errorf("%x decodes and encodes to %x, %v", data, again, err)
		}
		c.join([][]E{entries, entries})
	})
}

func FuzzDecodeWindows(f *testing.F) { fuzzCounts(f, windowCounter) }
