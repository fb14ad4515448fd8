package crdt_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"llmgw/crdt"
)

// Golden encodings: a change here is a change of the format on the wire and on disk and needs a new version byte.
var golden = []struct {
	name  string
	items []crdt.Item
	hex   string
}{
	{"nothing", nil, "01" + "80"},
	{"tombstone", []crdt.Item{{Key: crdt.NewKey("keys", "k"), Row: crdt.Row{Length: 2}}},
		"01" + "81" + "83" + "47046b657973016b" + "02" + "a0"},
	{"present without cells", []crdt.Item{{Key: crdt.NewKey("x"), Row: crdt.Row{Length: 1}}},
		"01" + "81" + "83" + "420178" + "01" + "a0"},
	{"cells in the order of their encoded names", []crdt.Item{{Key: crdt.NewKey("models", "m"), Row: crdt.Row{
		Length: 3,
		Cells: map[string]crdt.Cell{
			"ab": {At: 1 << 16, By: 0xffffffffffffffff, Value: []byte("v")},
			"b":  {At: 5, By: 1},
		},
	}}}, "01" + "81" + "83" + "49066d6f64656c73016d" + "03" + "a2" +
		"6162" + "83" + "05" + "01" + "40" +
		"626162" + "83" + "1a00010000" + "1bffffffffffffffff" + "4176"},
}

func TestGoldenEncodings(t *testing.T) {
	for _, tc := range golden {
		t.Run(tc.name, func(t *testing.T) {
			data, err := crdt.EncodeItems(tc.items)
			if err != nil || hex.EncodeToString(data) != tc.hex {
				t.Errorf("encoded %x, %v, want %s", data, err, tc.hex)
			}
			want, err := hex.DecodeString(tc.hex)
			if err != nil {
				t.Fatal(err)
			}
			items, err := crdt.DecodeItems(want)
			if diff := cmp.Diff(tc.items, items, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("decoded with %v: %s", err, diff)
			}
		})
	}
}

func TestGoldenRow(t *testing.T) {
	row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{"a": {At: 24, By: 2, Value: []byte("x")}}}
	if got, want := hex.EncodeToString([]byte(encode(t, row))), "01"+"82"+"01"+"a1"+"6161"+"83"+"1818"+"02"+"4178"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestItemsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(items).Draw(t, "items")
		data, err := crdt.EncodeItems(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := crdt.DecodeItems(data)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("decoded with %v: %s", err, diff)
		}
	})
}

func TestRowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rows.Draw(t, "row")
		got, err := crdt.DecodeRow([]byte(encode(t, want)))
		if err != nil || !got.Equal(want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

func TestDecodeItemsRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, hex string
		want      error
	}{
		{"empty input", "", crdt.ErrMalformed},
		{"version alone", "01", crdt.ErrMalformed},
		{"newer version", "0280", crdt.ErrVersion},
		{"no version", "80", crdt.ErrVersion},
		{"not an array", "01a0", crdt.ErrMalformed},
		{"null", "01f6", crdt.ErrMalformed},
		{"bytes after the end", "018000", crdt.ErrMalformed},
		{"array of indefinite length", "019fff", crdt.ErrMalformed},
		{"length not in shortest form", "019800", crdt.ErrMalformed},
		{"item too short", "0181" + "82" + "420178" + "01", crdt.ErrMalformed},
		{"item too long", "0181" + "84" + "420178" + "01" + "a0" + "00", crdt.ErrMalformed},
		{"item as map", "0181" + "a1" + "634b6579" + "420178", crdt.ErrMalformed},
		{"cells null", "0181" + "83" + "420178" + "01" + "f6", crdt.ErrMalformed},
		{"key as text", "0181" + "83" + "620178" + "01" + "a0", crdt.ErrMalformed},
		{"key malformed", "0181" + "83" + "420578" + "01" + "a0", crdt.ErrMalformed},
		{"key empty", "0181" + "83" + "40" + "01" + "a0", crdt.ErrMalformed},
		{"row length 0", "0181" + "83" + "420178" + "00" + "a0", crdt.ErrMalformed},
		{"row length negative", "0181" + "83" + "420178" + "20" + "a0", crdt.ErrMalformed},
		{"row length as float", "0181" + "83" + "420178" + "f93c00" + "a0", crdt.ErrMalformed},
		{"row length as big number", "0181" + "83" + "420178" + "c24101" + "a0", crdt.ErrMalformed},
		{"tombstone with cells", "0181" + "83" + "420178" + "02" + "a1" + "6161" + "83050140", crdt.ErrMalformed},
		{"cell twice", "0181" + "83" + "420178" + "01" + "a2" + "6161" + "83050140" + "6161" + "83060140", crdt.ErrMalformed},
		{"cells out of order", "0181" + "83" + "420178" + "01" + "a2" + "6162" + "83050140" + "6161" + "83050140", crdt.ErrMalformed},
		{"cell name empty", "0181" + "83" + "420178" + "01" + "a1" + "60" + "83050140", crdt.ErrMalformed},
		{"cell name not UTF-8", "0181" + "83" + "420178" + "01" + "a1" + "61ff" + "83050140", crdt.ErrMalformed},
		{"cell name as bytes", "0181" + "83" + "420178" + "01" + "a1" + "4161" + "83050140", crdt.ErrMalformed},
		{"cell name too long", "0181" + "83" + "420178" + "01" + "a1" + "790100" + strings.Repeat("61", 256) + "83050140", crdt.ErrTooLarge},
		{"value null", "0181" + "83" + "420178" + "01" + "a1" + "6161" + "830501f6", crdt.ErrMalformed},
		{"value as text", "0181" + "83" + "420178" + "01" + "a1" + "6161" + "83050160", crdt.ErrMalformed},
		{"value longer than the input", "0181" + "83" + "420178" + "01" + "a1" + "6161" + "8305015affffffff", crdt.ErrMalformed},
		{"tag", "01c180", crdt.ErrMalformed},
		{"nested deep", "01" + strings.Repeat("81", 1000) + "80", crdt.ErrMalformed},
		{"array longer than the input", "019affffffff", crdt.ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := hex.DecodeString(tc.hex)
			if err != nil {
				t.Fatal(err)
			}
			if items, err := crdt.DecodeItems(data); !errors.Is(err, tc.want) {
				t.Errorf("got %+v, %v, want %v", items, err, tc.want)
			}
		})
	}
}

func TestMessageBounds(t *testing.T) {
	if _, err := crdt.DecodeItems(make([]byte, crdt.MaxMessageBytes+1)); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("bytes over the bound: %v", err)
	}
	many := make([]crdt.Item, crdt.MaxItems+1)
	for i := range many {
		many[i] = crdt.Item{Key: crdt.NewKey("x"), Row: crdt.Row{Length: 2}}
	}
	data, err := crdt.EncodeItems(many)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crdt.DecodeItems(data); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("items over the bound: %v", err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, item := range map[string]crdt.Item{
		"length 0":             {Key: crdt.NewKey("x")},
		"tombstone with cells": {Key: crdt.NewKey("x"), Row: crdt.Row{Length: 2, Cells: map[string]crdt.Cell{"a": {}}}},
		"name not UTF-8":       {Key: crdt.NewKey("x"), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{"\xff": {}}}},
		"malformed key":        {Key: "\x05", Row: crdt.Row{Length: 1}},
	} {
		if _, err := crdt.EncodeItems([]crdt.Item{item}); !errors.Is(err, crdt.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeItems(f *testing.F) {
	for _, g := range golden {
		data, err := hex.DecodeString(g.hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := crdt.DecodeItems(data)
		if err != nil {
			return
		}
		size := crdt.MessageOverhead
		for _, item := range got {
			size += item.Size()
		}
		if size < len(data) {
			t.Fatalf("size says %d for %d bytes", size, len(data))
		}
		again, err := crdt.EncodeItems(got)
		if err != nil || string(again) != string(data) {
			t.Fatalf("decoded %x, encoded %x, %v", data, again, err)
		}
	})
}

func FuzzMergeDecodedRows(f *testing.F) {
	f.Add([]byte("\x01\x82\x01\xa1\x61a\x83\x05\x01\x41x"), []byte("\x01\x82\x01\xa1\x61a\x83\x05\x01\x41y"))
	f.Add([]byte("\x01\x82\x02\xa0"), []byte("\x01\x82\x03\xa1\x61a\x83\x05\x01\x40"))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, err := crdt.DecodeRow(x)
		if err != nil {
			return
		}
		b, err := crdt.DecodeRow(y)
		if err != nil {
			return
		}
		ab, ba := encode(t, crdt.Merge(a, b)), encode(t, crdt.Merge(b, a))
		if ab != ba {
			t.Fatalf("a+b %x, b+a %x", ab, ba)
		}
		joined, err := crdt.DecodeRow([]byte(ab))
		if err != nil {
			t.Fatalf("the merge of two rows does not decode: %v", err)
		}
		if encode(t, crdt.Merge(joined, a)) != ab || encode(t, crdt.Merge(b, joined)) != ab {
			t.Fatal("merging again changed the row")
		}
	})
}
