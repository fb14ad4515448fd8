package crdt_test

import (
	"pgregory.net/rapid"

	"llmgw/crdt"
)

// The ranges are tiny so that equal lengths, stamps, writers and values meet all the time.
var (
	cells = rapid.Custom(func(t *rapid.T) crdt.Cell {
		return crdt.Cell{
			At:    crdt.HLC(rapid.Uint64Range(0, 3).Draw(t, "at")),
			By:    crdt.ReplicaID(rapid.Uint64Range(1, 3).Draw(t, "by")),
			Value: []byte(rapid.SampledFrom([]string{"", "x", "y", "yy"}).Draw(t, "value")),
		}
	})
	rows = rapid.Custom(func(t *rapid.T) crdt.Row {
		r := crdt.Row{Length: rapid.Uint64Range(1, 5).Draw(t, "length")}
		if r.Present() {
			r.Cells = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), cells, 0, 3).Draw(t, "cells")
		}
		return r
	})
	keys = rapid.Custom(func(t *rapid.T) crdt.Key {
		return crdt.NewKey(rapid.SampledFrom([]string{"models", "keys", "future"}).Draw(t, "namespace"),
			rapid.SliceOfN(rapid.StringN(0, 3, 8), 0, 2).Draw(t, "parts")...)
	})
	items = rapid.Custom(func(t *rapid.T) crdt.Item {
		return crdt.Item{Key: keys.Draw(t, "key"), Row: rows.Draw(t, "row")}
	})
)

// encode gives the bytes by which tests compare rows.
func encode(t interface{ Fatalf(string, ...any) }, r crdt.Row) string {
	data, err := crdt.EncodeRow(r)
	if err != nil {
		t.Fatalf("encode %+v: %v", r, err)
	}
	return string(data)
}
