package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// kind is the type tag of a metadata value.
type kind uint32

const (
	kindU8 kind = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

// fixedSize is a scalar's size in bytes; 0 for strings, arrays and unknown tags.
func (k kind) fixedSize() uint64 {
	switch k {
	case kindU8, kindI8, kindBool:
		return 1
	case kindU16, kindI16:
		return 2
	case kindU32, kindI32, kindF32:
		return 4
	case kindU64, kindI64, kindF64:
		return 8
	default:
		return 0
	}
}

// value is one remembered metadata value: a text, or one or more integers.
type value struct {
	text  string
	ints  []uint64 // negative numbers are kept as 0: no count we read may be one
	array bool
}

func (v value) number() uint64 {
	if v.array || len(v.ints) != 1 {
		return 0
	}
	return v.ints[0]
}

// scanner reads the fields of one header in order and counts what it read.
type scanner struct {
	r     *bufio.Reader
	order binary.ByteOrder
	read  uint64
	buf   [8]byte
}

func newScanner(r io.Reader) *scanner {
	return &scanner{r: bufio.NewReaderSize(r, 64<<10), order: binary.LittleEndian}
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// account admits n more bytes or ends the reading.
func (s *scanner) account(n uint64) error {
	if n > MaxHeader || s.read > MaxHeader-n {
		return malformed("it is larger than %d bytes", MaxHeader)
	}
	s.read += n
	return nil
}

func (s *scanner) bytes(n int) ([]byte, error) {
	if err := s.account(uint64(n)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(s.r, s.buf[:n]); err != nil {
		return nil, short(err)
	}
	return s.buf[:n], nil
}

// short turns the end of the file inside the header into a malformed header.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed("the file ends inside it")
	}
	return err
}

func (s *scanner) u32() (uint32, error) {
	b, err := s.bytes(4)
	if err != nil {
		return 0, err
	}
	return s.order.Uint32(b), nil
}

func (s *scanner) u64() (uint64, error) {
	b, err := s.bytes(8)
	if err != nil {
		return 0, err
	}
	return s.order.Uint64(b), nil
}

// skip moves on by n bytes without keeping them.
func (s *scanner) skip(n uint64) error {
	if err := s.account(n); err != nil {
		return err
	}
	if _, err := s.r.Discard(int(n)); err != nil {
		return short(err)
	}
	return nil
}

// text reads a string of at most limit bytes and keeps its first keep bytes.
func (s *scanner) text(limit, keep uint64) (string, error) {
	n, err := s.u64()
	if err != nil {
		return "", err
	}
	if n > limit {
		return "", malformed("a string of %d bytes, at most %d are allowed", n, limit)
	}
	kept := min(n, keep)
	b := make([]byte, kept) // at most keep, a constant of ours
	if err := s.account(kept); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(s.r, b); err != nil {
		return "", short(err)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), s.skip(n - kept)
}

// preamble reads magic, version and counts, and finds the byte order: a
// version that only makes sense with its bytes swapped is a big-endian file.
func (s *scanner) preamble(h *Header) (keys uint64, err error) {
	magic, err := s.bytes(4)
	if err != nil || string(magic) != Magic {
		return 0, notGGUF(err)
	}
	raw, err := s.bytes(4)
	if err != nil {
		return 0, err
	}
	h.Version = binary.LittleEndian.Uint32(raw)
	if h.Version > 0xffff {
		h.Version, h.BigEndian, s.order = binary.BigEndian.Uint32(raw), true, binary.BigEndian
	}
	if h.Version < supportedFirst || h.Version > supportedLast {
		return 0, fmt.Errorf("%w %d: versions %d and %d are read", ErrVersion, h.Version, supportedFirst, supportedLast)
	}
	if h.Tensors, err = s.u64(); err != nil {
		return 0, err
	}
	if keys, err = s.u64(); err != nil {
		return 0, err
	}
	if h.Tensors > maxTensors || keys > maxKeys {
		return 0, malformed("%d tensors and %d keys, at most %d and %d are read", h.Tensors, keys, maxTensors, maxKeys)
	}
	return keys, nil
}

// notGGUF keeps a reader's own error: a disk that fails says nothing of the format.
func notGGUF(err error) error {
	if err == nil || errors.Is(err, ErrMalformed) {
		return ErrNotGGUF
	}
	return err
}

func (s *scanner) keyValues(h *Header, keys uint64) error {
	for range keys {
		key, err := s.text(maxKeyLen, 256)
		if err != nil {
			return err
		}
		tag, err := s.u32()
		if err != nil {
			return err
		}
		if !wanted(key) {
			if err := s.skipValue(kind(tag), 0); err != nil {
				return fmt.Errorf("key %.64q: %w", key, err)
			}
			continue
		}
		v, err := s.value(kind(tag))
		if err != nil {
			return fmt.Errorf("key %.64q: %w", key, err)
		}
		if _, twice := h.values[key]; twice || len(h.values) >= maxKeptKeys {
			return malformed("key %.64q is there twice, or too many keys", key)
		}
		h.values[key] = v
	}
	return nil
}

// value reads a value that is to be remembered.
func (s *scanner) value(k kind) (value, error) {
	switch {
	case k == kindString:
		t, err := s.text(maxString, maxKeptString)
		return value{text: t}, err
	case k == kindArray:
		return s.array()
	case k.fixedSize() > 0:
		n, err := s.integer(k)
		return value{ints: []uint64{n}}, err
	default:
		return value{}, malformed("unknown value type %d", k)
	}
}

// array remembers a short array of numbers and skips any other.
func (s *scanner) array() (value, error) {
	elem, n, err := s.arrayHead()
	if err != nil {
		return value{}, err
	}
	if elem.fixedSize() == 0 || n > maxKeptArray {
		return value{array: true}, s.skipElements(elem, n, 0)
	}
	v := value{array: true}
	for range n {
		x, err := s.integer(elem)
		if err != nil {
			return value{}, err
		}
		v.ints = append(v.ints, x)
	}
	return v, nil
}

func (s *scanner) arrayHead() (kind, uint64, error) {
	elem, err := s.u32()
	if err != nil {
		return 0, 0, err
	}
	n, err := s.u64()
	return kind(elem), n, err
}

func (s *scanner) skipValue(k kind, depth int) error {
	switch {
	case k == kindString:
		_, err := s.text(maxString, 0)
		return err
	case k == kindArray && depth <= 1: // an array may hold arrays, and those nothing deeper
		elem, n, err := s.arrayHead()
		if err != nil {
			return err
		}
		return s.skipElements(elem, n, depth)
	case k.fixedSize() > 0:
		return s.skip(k.fixedSize())
	default:
		return malformed("value type %d is unknown, or arrays are nested too deep", k)
	}
}

func (s *scanner) skipElements(elem kind, n uint64, depth int) error {
	if size := elem.fixedSize(); size > 0 {
		if n > MaxHeader/size {
			return malformed("an array of %d elements", n)
		}
		return s.skip(n * size)
	}
	// Each element costs bytes, so a false count ends at the end of the file.
	for range n {
		if err := s.skipValue(elem, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// integer reads a scalar as a count: what is negative or no number becomes 0.
func (s *scanner) integer(k kind) (uint64, error) {
	b, err := s.bytes(int(k.fixedSize()))
	if err != nil {
		return 0, err
	}
	switch k {
	case kindU8, kindBool:
		return uint64(b[0]), nil
	case kindI8:
		return natural(int64(int8(b[0]))), nil
	case kindU16:
		return uint64(s.order.Uint16(b)), nil
	case kindI16:
		return natural(int64(int16(s.order.Uint16(b)))), nil
	case kindU32:
		return uint64(s.order.Uint32(b)), nil
	case kindI32:
		return natural(int64(int32(s.order.Uint32(b)))), nil
	case kindU64:
		return s.order.Uint64(b), nil
	case kindI64:
		return natural(int64(s.order.Uint64(b))), nil
	case kindF32:
		return fromFloat(float64(math.Float32frombits(s.order.Uint32(b)))), nil
	default:
		return fromFloat(math.Float64frombits(s.order.Uint64(b))), nil
	}
}

func natural(n int64) uint64 { return uint64(max(n, 0)) }

func fromFloat(f float64) uint64 {
	if f >= 0 && f < 1<<53 {
		return uint64(f)
	}
	return 0
}
