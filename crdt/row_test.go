package crdt_test

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"llmgw/crdt"
)

func TestMergeIsCommutative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rows.Draw(t, "a"), rows.Draw(t, "b")
		if encode(t, crdt.Merge(a, b)) != encode(t, crdt.Merge(b, a)) {
			t.Fatalf("a+b = %+v, b+a = %+v", crdt.Merge(a, b), crdt.Merge(b, a))
		}
	})
}

func TestMergeIsAssociative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := rows.Draw(t, "a"), rows.Draw(t, "b"), rows.Draw(t, "c")
		left, right := crdt.Merge(crdt.Merge(a, b), c), crdt.Merge(a, crdt.Merge(b, c))
		if encode(t, left) != encode(t, right) {
			t.Fatalf("(a+b)+c = %+v, a+(b+c) = %+v", left, right)
		}
	})
}

func TestMergeIsIdempotentAndGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rows.Draw(t, "a"), rows.Draw(t, "b")
		if encode(t, crdt.Merge(a, a)) != encode(t, a) {
			t.Fatalf("a+a = %+v", crdt.Merge(a, a))
		}
		both := crdt.Merge(a, b)
		if !crdt.Merge(both, a).Equal(both) || !crdt.Merge(both, b).Equal(both) {
			t.Fatalf("%+v takes in again what it holds", both)
		}
	})
}

func TestMergeLeavesItsArgumentsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rows.Draw(t, "a"), rows.Draw(t, "b")
		wantA, wantB := encode(t, a), encode(t, b)
		crdt.Merge(a, b)
		if encode(t, a) != wantA || encode(t, b) != wantB {
			t.Fatal("merge changed an argument")
		}
	})
}

func TestRowNeverMadeIsNeutral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rows.Draw(t, "a")
		if !crdt.Merge(a, crdt.Row{}).Equal(a) || !crdt.Merge(crdt.Row{}, a).Equal(a) {
			t.Fatalf("a row joined with nothing changed: %+v", a)
		}
	})
}

// A change sent as just its cells must do what sending the whole row does, on whatever the receiver holds.
func TestDeltaJoinIsFullJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, stranger := rows.Draw(t, "state"), rows.Draw(t, "stranger")
		var deltas []crdt.Row
		full := state
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			delta := localChange(t, full)
			deltas = append(deltas, delta)
			full = crdt.Merge(full, delta)
		}
		want := encode(t, crdt.Merge(stranger, full))
		got := crdt.Merge(stranger, state)
		for _, d := range rapid.Permutation(deltas).Draw(t, "order") {
			got = crdt.Merge(got, d)
			got = crdt.Merge(got, d)
		}
		if encode(t, got) != want {
			t.Fatalf("by deltas %+v, by the whole row %+v", got, crdt.Merge(stranger, full))
		}
	})
}

// localChange is what a writer does that knows state: delete, or set one cell with a newer stamp.
func localChange(t *rapid.T, state crdt.Row) crdt.Row {
	if rapid.Bool().Draw(t, "delete") {
		length, err := state.NextDeleted()
		if err != nil {
			t.Fatal(err)
		}
		return crdt.Row{Length: length, Cells: keptBy(length, state)}
	}
	length, err := state.NextPresent()
	if err != nil {
		t.Fatal(err)
	}
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "cell")
	cell := cells.Draw(t, "new")
	cell.At += state.Cells[name].At
	return crdt.Row{Length: length, Cells: map[string]crdt.Cell{name: cell}}
}

// keptBy is empty for a tombstone; a row that was deleted already stays what it is.
func keptBy(length uint64, state crdt.Row) map[string]crdt.Cell {
	if length%2 == 0 {
		return nil
	}
	return state.Cells
}

func TestEqualStatesAreEqualBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rows.Draw(t, "a"), rows.Draw(t, "b")
		if a.Equal(b) != (encode(t, a) == encode(t, b)) {
			t.Fatalf("equal %v, bytes %x and %x", a.Equal(b), encode(t, a), encode(t, b))
		}
	})
}

func TestMergeNamedCases(t *testing.T) {
	cell := func(at, by uint64, value string) crdt.Cell {
		return crdt.Cell{At: crdt.HLC(at), By: crdt.ReplicaID(by), Value: []byte(value)}
	}
	row := func(length uint64, named map[string]crdt.Cell) crdt.Row {
		return crdt.Row{Length: length, Cells: named}
	}
	type named = map[string]crdt.Cell
	for _, tc := range []struct {
		name       string
		a, b, want crdt.Row
	}{
		{"later stamp wins", row(1, named{"a": cell(2, 1, "new")}), row(1, named{"a": cell(1, 9, "old")}), row(1, named{"a": cell(2, 1, "new")})},
		{"same stamp: higher writer wins", row(1, named{"a": cell(2, 1, "z")}), row(1, named{"a": cell(2, 2, "a")}), row(1, named{"a": cell(2, 2, "a")})},
		{"same stamp and writer, different value", row(1, named{"a": cell(2, 1, "x")}), row(1, named{"a": cell(2, 1, "xx")}), row(1, named{"a": cell(2, 1, "xx")})},
		{"two edits of different cells both survive", row(1, named{"a": cell(2, 1, "x")}), row(1, named{"b": cell(1, 2, "y")}), row(1, named{"a": cell(2, 1, "x"), "b": cell(1, 2, "y")})},
		{"delete beats a concurrent edit, however late", row(2, nil), row(1, named{"a": cell(math.MaxUint64, 9, "x")}), row(2, nil)},
		{"put, put, delete beside a concurrent put", row(2, nil), row(1, named{"a": cell(9, 2, "other")}), row(2, nil)},
		{"a value on both sides stays", row(1, named{"a": cell(1, 1, "x")}), row(1, named{"a": cell(1, 1, "x"), "b": cell(1, 1, "y")}), row(1, named{"a": cell(1, 1, "x"), "b": cell(1, 1, "y")})},
		{"a re-created row starts empty", row(3, nil), row(1, named{"a": cell(9, 1, "old")}), row(3, nil)},
		{"a re-created row beats its tombstone", row(3, named{"a": cell(1, 1, "x")}), row(2, nil), row(3, named{"a": cell(1, 1, "x")})},
		{"concurrent re-creations mix by cell", row(3, named{"a": cell(5, 1, "x")}), row(3, named{"a": cell(4, 2, "y"), "b": cell(4, 2, "y")}), row(3, named{"a": cell(5, 1, "x"), "b": cell(4, 2, "y")})},
		{"unset is a value like any other", row(1, named{"a": cell(2, 1, "")}), row(1, named{"a": cell(1, 1, "x")}), row(1, named{"a": cell(2, 1, "")})},
		{"a tombstone that carries cells drops them", row(2, named{"a": cell(1, 1, "x")}), row(2, nil), row(2, nil)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, got := range []crdt.Row{crdt.Merge(tc.a, tc.b), crdt.Merge(tc.b, tc.a)} {
				if !got.Equal(tc.want) {
					t.Errorf("got %+v, want %+v", got, tc.want)
				}
			}
		})
	}
}

func TestLengthEnds(t *testing.T) {
	last := crdt.Row{Length: math.MaxUint64}
	if _, err := last.NextDeleted(); !errors.Is(err, crdt.ErrExhausted) {
		t.Errorf("delete after the last length: %v", err)
	}
	if n, err := last.NextPresent(); err != nil || n != math.MaxUint64 {
		t.Errorf("a present row keeps its length: %d, %v", n, err)
	}
	if n, err := (crdt.Row{}).NextDeleted(); err != nil || n != 0 {
		t.Errorf("a row never made has nothing to delete: %d, %v", n, err)
	}
}
