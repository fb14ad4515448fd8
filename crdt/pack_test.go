package crdt_test

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"llmgw/crdt"
)

func TestSizeIsTheEncodedSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := items.Draw(t, "item")
		if item.Row.Present() {
			value := bytes.Repeat([]byte("v"), rapid.SampledFrom([]int{23, 24, 255, 256, 65535, 65536}).Draw(t, "size"))
			item.Row = crdt.Merge(item.Row, crdt.Row{Length: item.Row.Length, Cells: map[string]crdt.Cell{
				"large": {At: crdt.HLC(rapid.Uint64().Draw(t, "at")), By: crdt.ReplicaID(rapid.Uint64().Draw(t, "by")), Value: value},
			}})
		}
		data, err := crdt.EncodeItems([]crdt.Item{item})
		if err != nil {
			t.Fatal(err)
		}
		// The version byte and the head of an array of one.
		if got := item.Size(); got != len(data)-2 {
			t.Fatalf("size %d, encoded %d", got, len(data)-2)
		}
	})
}

func TestPackedMessagesFitAndJoinToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(items).Draw(t, "items")
		maxBytes := rapid.IntRange(1, 200).Draw(t, "bytes")
		original, received := map[crdt.Key]crdt.Row{}, map[crdt.Key]crdt.Row{}
		for _, i := range want {
			original[i.Key] = crdt.Merge(original[i.Key], i.Row)
		}
		for _, message := range crdt.Pack(want, maxBytes) {
			data, err := crdt.EncodeItems(message)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > maxBytes && (len(message) != 1 || len(message[0].Row.Cells) > 1) {
				t.Fatalf("message of %d bytes, %d items", len(data), len(message))
			}
			for _, i := range message {
				received[i.Key] = crdt.Merge(received[i.Key], i.Row)
			}
		}
		if len(original) != len(received) {
			t.Fatalf("%d rows became %d", len(original), len(received))
		}
		for key, row := range original {
			if !row.Equal(received[key]) {
				t.Fatalf("%s: %+v became %+v", key, row, received[key])
			}
		}
	})
}

func TestPackCutsALargeRow(t *testing.T) {
	row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{}}
	for i := range 100 {
		row.Cells[fmt.Sprintf("cell-%d", i)] = crdt.Cell{At: 1, By: 1, Value: make([]byte, 1000)}
	}
	messages := crdt.Pack([]crdt.Item{{Key: crdt.NewKey("models", "m"), Row: row}}, 64<<10)
	if len(messages) != 2 {
		t.Errorf("100 kB went into %d messages of 64 KiB", len(messages))
	}
}

func TestPackOfNothing(t *testing.T) {
	if got := crdt.Pack(nil, 100); len(got) != 0 {
		t.Errorf("got %d messages", len(got))
	}
}
