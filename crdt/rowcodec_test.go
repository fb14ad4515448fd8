package crdt_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"llmgw/crdt"
)

type refCell struct {
	_     struct{} `cbor:",toarray"`
	At    uint64
	By    uint64
	Value []byte
}

type refItem struct {
	_      struct{} `cbor:",toarray"`
	Key    []byte
	Length uint64
	Cells  map[string]refCell
}

var errReference = errors.New("refused by the reference")

// reference decodes a message by the CBOR package: by its strict options, and by encoding again and comparing.
func reference(t interface{ Fatal(...any) }, data []byte) ([]crdt.Item, error) {
	options := cbor.CoreDetEncOptions()
	options.NilContainers = cbor.NilContainerAsEmpty
	enc, err := options.EncMode()
	if err != nil {
		t.Fatal(err)
	}
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden, MaxNestedLevels: 8,
	}.DecMode()
	if err != nil {
		t.Fatal(err)
	}
	var wire []refItem
	if len(data) == 0 || data[0] != 1 || dec.Unmarshal(data[1:], &wire) != nil {
		return nil, errReference
	}
	if again, err := enc.Marshal(wire); err != nil || !bytes.Equal(again, data[1:]) {
		return nil, errReference
	}
	items := make([]crdt.Item, len(wire))
	for i, w := range wire {
		items[i] = crdt.Item{Key: crdt.Key(w.Key), Row: crdt.Row{Length: w.Length, Cells: map[string]crdt.Cell{}}}
		fine := items[i].Key.Validate() == nil && w.Length > 0 && (w.Length%2 == 1 || len(w.Cells) == 0)
		for name, c := range w.Cells {
			fine = fine && crdt.ValidateName(name) == nil
			items[i].Row.Cells[name] = crdt.Cell{At: crdt.HLC(c.At), By: crdt.ReplicaID(c.By), Value: c.Value}
		}
		if !fine {
			return nil, errReference
		}
	}
	return items, nil
}

func sameAsReference(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, data []byte) {
	want, errWant := reference(t, data)
	got, err := crdt.DecodeItems(data)
	if (err == nil) != (errWant == nil) {
		t.Fatalf("%x: %v, the reference says %v", data, err, errWant)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%x: %s", data, diff)
	}
}

func TestRowsAreCBOR(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, err := crdt.EncodeItems(rapid.SliceOf(wideItems).Draw(t, "items"))
		ok(t, err)
		sameAsReference(t, data)
		if len(data) > 0 {
			data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		}
		sameAsReference(t, data)
	})
}

// wideItems have numbers and names of all lengths, whose heads differ.
var wideItems = rapid.Custom(func(t *rapid.T) crdt.Item {
	number := rapid.Custom(func(t *rapid.T) uint64 { return rapid.Uint64().Draw(t, "n") >> rapid.IntRange(0, 63).Draw(t, "shift") })
	i := crdt.Item{Key: crdt.NewKey("models", rapid.StringN(0, 300, 300).Draw(t, "part")), Row: crdt.Row{Length: number.Draw(t, "length") | 1}}
	i.Row.Cells = map[string]crdt.Cell{}
	for name := range rapid.MapOfN(rapid.StringN(1, 60, 255), rapid.Just(0), 0, 30).Draw(t, "names") {
		i.Row.Cells[name] = crdt.Cell{
			At: crdt.HLC(number.Draw(t, "at")), By: crdt.ReplicaID(number.Draw(t, "by")),
			Value: bytes.Repeat([]byte{7}, rapid.IntRange(0, 300).Draw(t, "value")),
		}
	}
	return i
})

func FuzzRowsAgainstCBOR(f *testing.F) {
	for _, g := range golden {
		data, err := hex.DecodeString(g.hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameAsReference(t, data) })
}
