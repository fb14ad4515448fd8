package kvevents

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Kind of an event.
type Kind int

// Kinds.
const (
	Stored  Kind = iota + 1 // blocks were computed
	Removed                 // blocks were dropped
	Cleared                 // all blocks were
)

// Event is a change of a cache.
type Event struct {
	Kind   Kind
	Medium string   // the tier that it is of, "GPU" where none is told
	Blocks []uint64 // hashes of what names them; engines use numbers and bytes
	Tokens int      // of each block; 0: not told
}

const (
	defaultMedium = "GPU"
	// maxDepth bounds nesting, which is skipped by recursion.
	maxDepth = 16
	// maxName bounds the text that a field's name or a medium may have, in bytes.
	maxName = 64
	// maxTokens is far above what any engine puts into a block.
	maxTokens = 1 << 16
)

// errNested is of a batch that no engine sends.
var errNested = errors.New("nested too deep")

// Decode reads one payload: an array [time, events, rank] or a map with ts and
// events, each event an array that begins with its tag or a map with type. Tags
// and fields that are unknown are skipped. The error is of a payload that is
// neither, or ends early.
func Decode(payload []byte) ([]Event, error) {
	r := bytes.NewReader(payload)
	d := decoder{Decoder: msgpack.NewDecoder(r), left: r.Len}
	events, err := d.batch()
	if err != nil {
		return nil, fmt.Errorf("read KV events: %w", err)
	}
	return events, nil
}

type decoder struct {
	*msgpack.Decoder
	left func() int // bytes that no one has read
}

// length checks what a prefix promises against what is there, so that a few
// bytes cannot ask for much memory.
func (d decoder) length(n int, err error) (int, error) {
	if err == nil && n > d.left() {
		err = errors.New("shorter than it says")
	}
	return max(n, 0), err // -1 stands for nil
}

func (d decoder) isMap() (bool, error) {
	code, err := d.PeekCode()
	return msgpcode.IsFixedMap(code) || code == msgpcode.Map16 || code == msgpcode.Map32, err
}

func (d decoder) batch() ([]Event, error) {
	var events []Event
	asMap, err := d.isMap()
	if err != nil {
		return nil, err
	}
	if asMap {
		err = d.fields(func(name string) error {
			if name != "events" {
				return d.skip(maxDepth)
			}
			events, err = d.list()
			return err
		})
		return events, err
	}
	err = d.elements(func(i int) error {
		if i != 1 {
			return d.skip(maxDepth)
		}
		events, err = d.list()
		return err
	})
	return events, err
}

// elements calls f for each element of an array.
func (d decoder) elements(f func(i int) error) error {
	n, err := d.length(d.DecodeArrayLen())
	for i := 0; i < n && err == nil; i++ {
		err = f(i)
	}
	return err
}

// fields calls f for each field of a map; f reads the value.
func (d decoder) fields(f func(name string) error) error {
	n, err := d.length(d.DecodeMapLen())
	for i := 0; i < n && err == nil; i++ {
		var name string
		if name, err = d.text(); err == nil {
			err = f(name)
		}
	}
	return err
}

func (d decoder) list() ([]Event, error) {
	var events []Event
	err := d.elements(func(int) error {
		e, err := d.event()
		if err == nil && e.Kind != 0 {
			events = append(events, e)
		}
		return err
	})
	return events, err
}

// event is of Kind 0 when its tag is unknown.
func (d decoder) event() (Event, error) {
	e := Event{Medium: defaultMedium}
	asMap, err := d.isMap()
	if err != nil {
		return e, err
	}
	if asMap {
		err = d.fields(func(name string) error { return d.field(&e, name) })
		return e, err
	}
	names := []string(nil)
	err = d.elements(func(i int) error {
		if i == 0 {
			err := d.field(&e, "type")
			names = positions[e.Kind]
			return err
		}
		if i-1 < len(names) {
			return d.field(&e, names[i-1])
		}
		return d.skip(maxDepth)
	})
	return e, err
}

// positions are the fields of events that are arrays. Those behind differ
// between engines, and none of them is read.
var positions = map[Kind][]string{
	Stored:  {"block_hashes", "", "", "block_size", "", "medium"},
	Removed: {"block_hashes", "medium"},
}

var kinds = map[string]Kind{"BlockStored": Stored, "BlockRemoved": Removed, "AllBlocksCleared": Cleared}

func (d decoder) field(e *Event, name string) error {
	var err error
	switch name {
	case "type":
		var tag string
		tag, err = d.text()
		e.Kind = kinds[tag]
	case "block_hashes":
		err = d.elements(func(int) error {
			h, err := d.hash()
			e.Blocks = append(e.Blocks, h)
			return err
		})
	case "block_size":
		var n int64
		n, err = d.DecodeInt64()
		e.Tokens = int(min(max(n, 0), maxTokens))
	case "medium":
		var m string
		if m, err = d.text(); m != "" {
			e.Medium = m
		}
	default:
		err = d.skip(maxDepth)
	}
	return err
}

// text reads a short string; nil is the empty one.
func (d decoder) text() (string, error) {
	n, err := d.DecodeBytesLen()
	if err != nil || n <= 0 {
		return "", err
	}
	if n > maxName {
		return "", fmt.Errorf("a name of %d bytes", n)
	}
	b := make([]byte, n)
	err = d.ReadFull(b)
	return string(b), err
}

// hash takes what names a block for what it is, a number or bytes.
func (d decoder) hash() (uint64, error) {
	code, err := d.PeekCode()
	switch {
	case err != nil:
		return 0, err
	case msgpcode.IsBin(code) || msgpcode.IsString(code):
		n, err := d.length(d.DecodeBytesLen())
		if err != nil {
			return 0, err
		}
		b := make([]byte, n)
		err = d.ReadFull(b)
		return xxhash.Sum64(b), err
	}
	n, err := d.DecodeInt64() // a number above is the same bits
	return uint64(n), err
}

// skip passes over a value that may be nested.
func (d decoder) skip(depth int) error {
	code, err := d.PeekCode()
	switch {
	case err != nil:
		return err
	case depth == 0:
		return errNested
	case msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32:
		return d.elements(func(int) error { return d.skip(depth - 1) })
	}
	if asMap, err := d.isMap(); err != nil || !asMap {
		return d.Skip()
	}
	n, err := d.length(d.DecodeMapLen())
	for i := 0; i < 2*n && err == nil; i++ {
		err = d.skip(depth - 1)
	}
	return err
}
