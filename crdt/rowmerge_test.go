package crdt_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"llmgw/crdt"
)

// wideRows have names of several lengths, so that what is new comes before, between and after what is there; tombstones may hold cells, as
// what comes from outside might.
var wideRows = rapid.Custom(func(t *rapid.T) crdt.Row {
	names := rapid.SampledFrom([]string{"a", "b", "c", "aa", "bb", "ü", "aaa", strings.Repeat("long", 20)})
	return crdt.Row{
		Length: rapid.Uint64Range(0, 3).Draw(t, "length"),
		Cells:  rapid.MapOfN(names, cells, 0, 8).Draw(t, "cells"),
	}
})

func TestMergeEncodedIsMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		had, row := rows.Draw(t, "had"), wideRows.Draw(t, "row")
		var encoded []byte
		if rapid.Bool().Draw(t, "new") {
			had = crdt.Row{}
		} else {
			encoded = []byte(encode(t, had))
		}
		before := string(encoded)
		length, got, err := crdt.MergeEncoded(8, encoded, row)
		if err != nil || length != had.Length || string(encoded) != before {
			t.Fatalf("length %d, %v; %x became %x", length, err, before, encoded)
		}
		want := crdt.Merge(had, row)
		if want.Equal(had) {
			if got != nil {
				t.Fatalf("got %x where nothing changes", got)
			}
			return
		}
		if string(got) != string(make([]byte, 8))+encode(t, want) {
			t.Fatalf("got %x, want %x", got, encode(t, want))
		}
	})
}

func TestMergeEncodedRefusesWhatIsMalformed(t *testing.T) {
	had := []byte(encode(t, crdt.Row{Length: 1, Cells: map[string]crdt.Cell{"a": {At: 1 << 20, By: 300, Value: []byte("v")}, "b": {}}}))
	row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{"a": {At: 1 << 21}}}
	for n := range had {
		if _, got, err := crdt.MergeEncoded(0, had[:n:n], row); !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("%d bytes of a row: %x, %v", n, got, err)
		}
	}
	// Each name follows its head, which is 0x61 for one byte.
	swapped := []byte(strings.NewReplacer("\x61a", "\x61b", "\x61b", "\x61a").Replace(string(had)))
	for what, bad := range map[string][]byte{
		"no bytes":             {},
		"something at the end": append(had[:len(had):len(had)], 0),
		"names out of order":   swapped,
	} {
		if _, got, err := crdt.MergeEncoded(0, bad, row); !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("%s: %x, %v", what, got, err)
		}
	}
	if _, _, err := crdt.MergeEncoded(0, append([]byte{2}, had[1:]...), row); !errors.Is(err, crdt.ErrVersion) {
		t.Errorf("another version: %v", err)
	}
	for _, length := range []uint64{1, 3} {
		bad := crdt.Row{Length: length, Cells: map[string]crdt.Cell{"\xff": {}}}
		if _, got, err := crdt.MergeEncoded(0, had, bad); !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("a name that is not UTF-8: %x, %v", got, err)
		}
	}
}
