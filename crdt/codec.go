package crdt

import (
	"fmt"
	"strings"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// encodingVersion is the first byte of everything encoded here. What follows is one deterministic CBOR value
// (RFC 8949 4.2.1): a message is an array of items [key, length, {name: [at, by, value]}], a row is [length, {...}].
const encodingVersion = 1

// maxElements is above what MaxMessageBytes can hold; the byte bound is the one that counts.
const maxElements = 1 << 20

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
	size := MessageOverhead
	for i, item := range items {
		if err := item.validate(); err != nil {
			return nil, fmt.Errorf("encode item %d: %w", i, err)
		}
		size += item.Size()
	}
	buf := append(make([]byte, 0, size), encodingVersion)
	buf = appendHead(buf, cborArray, uint64(len(items)))
	for _, item := range items {
		buf = appendItem(buf, item)
	}
	return buf, nil
}

// DecodeItems decodes a message of EncodeItems. Input from outside is expected: at most MaxMessageBytes and MaxItems,
// and only the canonical form is taken. The rows share memory with each other. Errors are ErrVersion, ErrTooLarge or ErrMalformed.
func DecodeItems(data []byte) ([]Item, error) {
	if len(data) > MaxMessageBytes {
		return nil, fmt.Errorf("decode items: %d bytes: %w", len(data), ErrTooLarge)
	}
	r := newReader(data)
	// An item takes five bytes or more: its head, a key that is not empty, its length and its map.
	n := r.count(cborArray, 5)
	if n > MaxItems {
		return nil, fmt.Errorf("decode items: %d items: %w", n, ErrTooLarge)
	}
	items := make([]Item, n)
	for i := 0; i < n && r.err == nil; i++ {
		r.array(3)
		items[i] = Item{Key: Key(strings.Clone(r.string(cborBytes))), Row: r.row()}
		if r.err != nil {
			break
		}
		if err := items[i].validate(); err != nil {
			return nil, fmt.Errorf("decode item %d: %w", i, err)
		}
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("decode items: %w", err)
	}
	return items, nil
}

// EncodeRow encodes one row, for the disk and for comparing: equal rows give equal bytes.
func EncodeRow(r Row) ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("encode row: %w", err)
	}
	return appendEncoded(make([]byte, 0, r.maxEncoded()), r), nil
}

// maxEncoded is not below the size of the encoded row.
func (r Row) maxEncoded() int { return MessageOverhead + Item{Row: r}.Size() }

// DecodeRow decodes a row of EncodeRow. Its length is not bounded: a row that grew by merges must stay readable.
func DecodeRow(data []byte) (Row, error) {
	r := newReader(data)
	r.array(2)
	row := r.row()
	if err := r.end(); err != nil {
		return Row{}, fmt.Errorf("decode row: %w", err)
	}
	if err := row.validate(); err != nil {
		return Row{}, fmt.Errorf("decode row: %w", err)
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
