// Package gguf owns reading the header of a GGUF weight file: what model it
// holds and what its context costs in memory. It reads versions 2 and 3 in
// either byte order, and never the weights.
//
// The file is foreign input. Every count and length in it is checked before
// it is used, nothing is allocated from a length that the file states, values
// that are not needed are skipped without being kept, and reading ends after
// MaxHeader bytes whatever the file says.
package gguf

import (
	"errors"
	"fmt"
	"io"
)

// Magic is how a GGUF file starts, in either byte order.
const Magic = "GGUF"

// Bounds of a header. Real ones stay far below: the largest vocabularies in
// use make headers of about 30 MiB.
const (
	MaxHeader = 256 << 20 // bytes read in all

	maxKeys       = 65536
	maxKeyLen     = 65535
	maxString     = 64 << 20
	maxTensors    = 1 << 20
	maxTensorName = 1024
	maxDims       = 4

	maxKeptKeys    = 1024 // keys whose values are remembered
	maxKeptString  = 4096 // bytes; longer ones are cut
	maxKeptArray   = 4096 // elements; per-layer arrays are a few hundred long
	maxAlignment   = 1 << 20
	dflAlignment   = 32
	maxFileOffset  = 1 << 60
	supportedFirst = 2
	supportedLast  = 3
)

// ErrNotGGUF says that the file does not start with the GGUF magic.
var ErrNotGGUF = errors.New("not a GGUF file")

// ErrMalformed is wrapped by every error about a file that starts as GGUF and
// breaks the format's rules or our bounds.
var ErrMalformed = errors.New("malformed GGUF header")

// ErrVersion is wrapped when the file is of a GGUF version that is not read.
var ErrVersion = errors.New("unsupported GGUF version")

// Header is what a GGUF file says of itself before its weights.
type Header struct {
	Version   uint32
	BigEndian bool   // byte order of the whole file; engines read their own host's only
	Tensors   uint64 // number of tensors in this file

	// MinSize is the least number of bytes that a whole file with this header
	// has. A shorter file has lost its end.
	MinSize int64

	values map[string]value
}

// ReadHeader reads a header from the start of r. It reads ahead of the
// header's end, and at most MaxHeader bytes.
func ReadHeader(r io.Reader) (Header, error) {
	s := newScanner(r)
	h := Header{values: map[string]value{}}
	keys, err := s.preamble(&h)
	if err != nil {
		return Header{}, fmt.Errorf("read GGUF header: %w", err)
	}
	if err := s.keyValues(&h, keys); err != nil {
		return Header{}, fmt.Errorf("read GGUF header: %w", err)
	}
	if err := s.tensors(&h); err != nil {
		return Header{}, fmt.Errorf("read GGUF header: %w", err)
	}
	return h, nil
}

// Architecture is the model family that the engine has to know, such as llama.
func (h Header) Architecture() string { return h.values["general.architecture"].text }

// Name is what the maker of the file calls the model; often empty.
func (h Header) Name() string { return h.values["general.name"].text }

// Type is "model", "adapter" or "mmproj"; empty in older files, which are models.
func (h Header) Type() string { return h.values["general.type"].text }

// ContextLength is the number of tokens that the model was trained for; 0
// when the file does not tell.
func (h Header) ContextLength() int { return int(min(h.number("context_length"), 1<<31-1)) }

// SlidingWindow is the number of tokens that windowed layers look back; 0
// when no layer is known to be windowed.
func (h Header) SlidingWindow() int { return int(min(h.number("attention.sliding_window"), 1<<31-1)) }

// Pooling tells whether the model was made for embeddings.
func (h Header) Pooling() bool { return h.number("pooling_type") > 0 }

// number reads an architecture's own scalar; 0 when absent, of another type or negative.
func (h Header) number(suffix string) uint64 {
	return h.values[h.Architecture()+"."+suffix].number()
}
