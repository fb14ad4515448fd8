package crdt

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Rows are encoded and decoded by hand: they are most of what a node does when it catches up, and a decoder that takes nothing
// but the canonical form has no need to encode again what it read, to compare. Other messages go through the CBOR package.

// Major types of CBOR, as the upper bits of a head.
const (
	cborUint  = 0 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborMap   = 5 << 5
)

// appendHead writes a head in its shortest form.
func appendHead(buf []byte, major byte, n uint64) []byte {
	switch headSize(n) {
	case 1:
		return append(buf, major|byte(n))
	case 2:
		return append(buf, major|24, byte(n))
	case 3:
		return binary.BigEndian.AppendUint16(append(buf, major|25), uint16(n))
	case 5:
		return binary.BigEndian.AppendUint32(append(buf, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(buf, major|27), n)
}

// appendItem writes [key, length, {name: [at, by, value]}].
func appendItem(buf []byte, i Item) []byte {
	buf = appendHead(buf, cborArray, 3)
	buf = append(appendHead(buf, cborBytes, uint64(len(i.Key))), i.Key...)
	return appendRow(buf, i.Row)
}

// appendRow writes length, {name: [at, by, value]}.
func appendRow(buf []byte, r Row) []byte {
	buf = appendHead(buf, cborUint, r.Length)
	buf = appendHead(buf, cborMap, uint64(len(r.Cells)))
	var few [16]string
	for _, name := range sortedNames(few[:0], r) {
		buf = appendCell(buf, name, r.Cells[name])
	}
	return buf
}

// sortedNames appends the names of the cells in the order in which they are encoded.
func sortedNames(names []string, r Row) []string {
	for name := range r.Cells {
		names = append(names, name)
	}
	slices.SortFunc(names, compareNames)
	return names
}

// appendCell writes name, [at, by, value].
func appendCell(buf []byte, name string, c Cell) []byte {
	buf = append(appendHead(buf, cborText, uint64(len(name))), name...)
	buf = appendHead(buf, cborArray, 3)
	buf = appendHead(buf, cborUint, uint64(c.At))
	buf = appendHead(buf, cborUint, uint64(c.By))
	return append(appendHead(buf, cborBytes, uint64(len(c.Value))), c.Value...)
}

// appendEncoded writes what EncodeRow gives.
func appendEncoded(buf []byte, r Row) []byte {
	return appendRow(appendHead(append(buf, encodingVersion), cborArray, 2), r)
}

// compareNames is the order of the encoded names: their length comes first.
func compareNames(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// reader reads canonical CBOR and remembers its first error.
type reader struct {
	data []byte // values are cut from it
	text string // the same, names are cut from it
	at   int
	err  error
}

// newReader reads a copy: the caller may use its buffer again.
func newReader(data []byte) *reader {
	r := readerOf(slices.Clone(data))
	r.text = string(data)
	return &r
}

// readerOf reads data itself, and no names of it.
func readerOf(data []byte) reader {
	r := reader{data: data, at: 1}
	switch {
	case len(data) == 0:
		r.err = fmt.Errorf("empty input: %w", ErrMalformed)
	case data[0] != encodingVersion:
		r.err = fmt.Errorf("version %d, this build reads %d: %w", data[0], encodingVersion, ErrVersion)
	}
	return r
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("byte %d: %s: %w", r.at, what, ErrMalformed)
	}
}

// head reads a head of the given type.
func (r *reader) head(major byte) uint64 {
	if r.err != nil || r.at >= len(r.data) || r.data[r.at]&0xe0 != major {
		r.fail("another type")
		return 0
	}
	n, size := uint64(r.data[r.at]&0x1f), 0
	if n >= 24 {
		if size = 1 << (n - 24); n > 27 || len(r.data)-r.at <= size {
			r.fail("cut short")
			return 0
		}
		var wide [8]byte
		copy(wide[8-size:], r.data[r.at+1:r.at+1+size])
		n = binary.BigEndian.Uint64(wide[:])
	}
	if headSize(n) != 1+size {
		r.fail("not in its shortest form")
		return 0
	}
	r.at += 1 + size
	return n
}

// count reads a head of what has that many elements, none of them shorter than least bytes.
func (r *reader) count(major byte, least int) int {
	n := r.head(major)
	if n > uint64(len(r.data)-r.at)/uint64(least) {
		r.fail("longer than the input")
		return 0
	}
	return int(n)
}

func (r *reader) array(length uint64) {
	if r.head(cborArray) != length {
		r.fail("array of another length")
	}
}

// cut returns the bytes or the text that come next.
func (r *reader) cut(major byte) []byte {
	n := r.count(major, 1)
	r.at += n
	return r.data[r.at-n : r.at : r.at]
}

// cell reads [at, by, value].
func (r *reader) cell() Cell {
	r.array(3)
	return Cell{At: HLC(r.head(cborUint)), By: ReplicaID(r.head(cborUint)), Value: r.cut(cborBytes)}
}

func (r *reader) string(major byte) string {
	n := r.count(major, 1)
	r.at += n
	return r.text[r.at-n : r.at]
}

// row reads what appendRow writes. Each cell takes six bytes or more.
func (r *reader) row() Row {
	row := Row{Length: r.head(cborUint)}
	n := r.count(cborMap, 6)
	if n > 0 {
		row.Cells = make(map[string]Cell, n)
	}
	last := ""
	for i := 0; i < n && r.err == nil; i++ {
		name := r.string(cborText)
		if i > 0 && compareNames(last, name) >= 0 {
			r.fail("names out of order")
		}
		last = name
		row.Cells[name] = r.cell()
	}
	return row
}

// end says whether all was read, and well.
func (r *reader) end() error {
	if r.err == nil && r.at != len(r.data) {
		r.fail("something after the end")
	}
	return r.err
}
