// Package crdt owns the shape of llmgw's shared state and the rules by which copies of it meet:
// keys, rows, the merge, the hybrid clock and the canonical encoding.
//
// Everything shared is a set of rows, each under a [Key]. A [Row] is a pair (causal length, cells):
//
//	Length 0          the row was never made
//	Length odd        the row is present; its cells hold the fields, each last-writer-wins by (At, By, Value)
//	Length even, > 0  the row was deleted; it has no cells and stays as a tombstone
//
//	event             Length            Cells
//	create            next odd          start empty
//	set a cell        unchanged         that cell gets a newer stamp
//	delete            next even         dropped
//
// [Merge] joins two copies of a row: the larger Length wins whole, equal Lengths join cell by cell. It is
// commutative, associative and idempotent, so rows may arrive in any order, in parts or several times. A delete
// beats a concurrent edit; two concurrent re-creations mix by cell. A part of a row (same Length, some of its
// cells) is a row too and joins the same way; a change is therefore sent as just the cells that changed.
//
// The package does no I/O, reads no wall clock and no entropy of its own; [Clock] gets its time passed in, and merge
// and codec are pure. A Row handed to or returned by this package MUST be treated as immutable: results
// share memory with arguments.
package crdt

import "errors"

// Bounds of what one node writes and of what it reads from another.
const (
	// MaxKeyBytes bounds an encoded key. The disk store takes 64 KiB; keys are IDs and names.
	MaxKeyBytes = 1 << 10
	// MaxNameBytes bounds the name of a cell.
	MaxNameBytes = 255
	// MaxValueBytes bounds a locally written value, so that a cell fits into one frame of the pull (256 KiB).
	MaxValueBytes = 128 << 10
	// MaxCells bounds the cells that a local write may bring a row to. Merges may exceed it: refusing a cell
	// there would keep copies from converging.
	MaxCells = 1 << 10
	// MaxMessageBytes bounds the input of DecodeItems.
	MaxMessageBytes = 1 << 20
	// MaxItems bounds the number of items in one message: a small tombstone costs many times its
	// encoded size in memory.
	MaxItems = 32 << 10
)

var (
	// ErrMalformed: the input is not a canonical encoding of this package.
	ErrMalformed = errors.New("malformed")
	// ErrVersion: the input was encoded by a version of this package that is not known here.
	ErrVersion = errors.New("unknown encoding version")
	// ErrTooLarge: a key, name, value, row or message is over its bound.
	ErrTooLarge = errors.New("too large")
	// ErrExhausted: a Length or a stamp has reached the end of its range, so that nothing can come after it.
	ErrExhausted = errors.New("number range exhausted")
)
