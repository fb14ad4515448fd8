package crdt

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// encodingVersion is the first byte of everything encoded here. What follows is one deterministic CBOR value
// (RFC 8949 4.2.1): a message is an array of items [key, length, {name: [at, by, value]}], a row is [length, {...}].
const encodingVersion = 1

// maxElements is above what MaxMessageBytes can hold; the byte bound is the one that counts.
const maxElements = 1 << 20

type wireCell struct {
	_     struct{} `cbor:",toarray"`
	At    uint64
	By    uint64
	Value []byte
}

type wireRow struct {
	_      struct{} `cbor:",toarray"`
	Length uint64
	Cells  map[string]wireCell
}

type wireItem struct {
	_      struct{} `cbor:",toarray"`
	Key    []byte
	Length uint64
	Cells  map[string]wireCell
}

type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// modes builds the encoder and decoder once; they are immutable and may be shared.
var modes = sync.OnceValue(func() codec {
	encOptions := cbor.CoreDetEncOptions()
	encOptions.NilContainers = cbor.NilContainerAsEmpty
	encOptions.TagsMd = cbor.TagsForbidden
	enc, err := encOptions.EncMode()
	if err != nil {
		panic("crdt: encoder options: " + err.Error())
	}
	dec, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  8,
		MaxArrayElements: maxElements,
		MaxMapPairs:      maxElements,
	}.DecMode()
	if err != nil {
		panic("crdt: decoder options: " + err.Error())
	}
	return codec{enc: enc, dec: dec}
})

// EncodeItems encodes items in the order given. Equal items give equal bytes.
func EncodeItems(items []Item) ([]byte, error) {
	wire := make([]wireItem, len(items))
	for i, item := range items {
		if err := item.validate(); err != nil {
			return nil, fmt.Errorf("encode item %d: %w", i, err)
		}
		wire[i] = wireItem{Key: []byte(item.Key), Length: item.Row.Length, Cells: toWire(item.Row.Cells)}
	}
	return encode(wire)
}

// DecodeItems decodes a message of EncodeItems. Input from outside is expected: at most MaxMessageBytes and MaxItems,
// and only the canonical form is taken. Errors are ErrVersion, ErrTooLarge or ErrMalformed.
func DecodeItems(data []byte) ([]Item, error) {
	if len(data) > MaxMessageBytes {
		return nil, fmt.Errorf("decode items: %d bytes: %w", len(data), ErrTooLarge)
	}
	var wire []wireItem
	if err := decode(data, &wire); err != nil {
		return nil, fmt.Errorf("decode items: %w", err)
	}
	if len(wire) > MaxItems {
		return nil, fmt.Errorf("decode items: %d items: %w", len(wire), ErrTooLarge)
	}
	items := make([]Item, len(wire))
	for i, w := range wire {
		items[i] = Item{Key: Key(w.Key), Row: Row{Length: w.Length, Cells: fromWire(w.Cells)}}
		if err := items[i].validate(); err != nil {
			return nil, fmt.Errorf("decode item %d: %w", i, err)
		}
	}
	// One comparison covers every way in which CBOR can say the same thing twice.
	if again, err := encode(wire); err != nil || !bytes.Equal(again, data) {
		return nil, fmt.Errorf("decode items: not canonical: %w", ErrMalformed)
	}
	return items, nil
}

// EncodeRow encodes one row, for the disk and for comparing: equal rows give equal bytes.
func EncodeRow(r Row) ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("encode row: %w", err)
	}
	return encode(wireRow{Length: r.Length, Cells: toWire(r.Cells)})
}

// DecodeRow decodes a row of EncodeRow. Its length is not bounded: a row that grew by merges must stay readable.
func DecodeRow(data []byte) (Row, error) {
	var wire wireRow
	if err := decode(data, &wire); err != nil {
		return Row{}, fmt.Errorf("decode row: %w", err)
	}
	row := Row{Length: wire.Length, Cells: fromWire(wire.Cells)}
	if err := row.validate(); err != nil {
		return Row{}, fmt.Errorf("decode row: %w", err)
	}
	if again, err := encode(wire); err != nil || !bytes.Equal(again, data) {
		return Row{}, fmt.Errorf("decode row: not canonical: %w", ErrMalformed)
	}
	return row, nil
}

func encode(v any) ([]byte, error) {
	body, err := modes().enc.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append([]byte{encodingVersion}, body...), nil
}

func decode(data []byte, v any) error {
	if len(data) == 0 {
		return fmt.Errorf("empty input: %w", ErrMalformed)
	}
	if data[0] != encodingVersion {
		return fmt.Errorf("version %d, this build reads %d: %w", data[0], encodingVersion, ErrVersion)
	}
	if err := modes().dec.Unmarshal(data[1:], v); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

func (i Item) validate() error {
	if err := i.Key.Validate(); err != nil {
		return err
	}
	return i.Row.validate()
}

func (r Row) validate() error {
	if r.Length == 0 {
		return fmt.Errorf("row of length 0: %w", ErrMalformed)
	}
	if !r.Present() && len(r.Cells) > 0 {
		return fmt.Errorf("tombstone with cells: %w", ErrMalformed)
	}
	for name := range r.Cells {
		if err := ValidateName(name); err != nil {
			return err
		}
	}
	return nil
}

func toWire(cells map[string]Cell) map[string]wireCell {
	out := make(map[string]wireCell, len(cells))
	for name, c := range cells {
		out[name] = wireCell{At: uint64(c.At), By: uint64(c.By), Value: c.Value}
	}
	return out
}

func fromWire(cells map[string]wireCell) map[string]Cell {
	if len(cells) == 0 {
		return nil
	}
	out := make(map[string]Cell, len(cells))
	for name, c := range cells {
		out[name] = Cell{At: HLC(c.At), By: ReplicaID(c.By), Value: c.Value}
	}
	return out
}
