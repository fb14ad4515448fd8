package crdt

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// ReplicaID is the random ID of a store, the writer of a cell.
type ReplicaID uint64

// Cell is one last-writer-wins field. The larger of (At, By, Value) stays.
type Cell struct {
	At    HLC
	By    ReplicaID
	Value []byte
}

// Row is a document, or a part of one; see the package comment.
type Row struct {
	Length uint64
	Cells  map[string]Cell
}

// Item is a row, or a part of a row, under its key.
type Item struct {
	Key Key
	Row Row
}

// Present says whether the row exists now.
func (r Row) Present() bool { return r.Length%2 == 1 }

// Equal says whether two rows are the same state; nil and empty maps or values are the same.
func (r Row) Equal(o Row) bool {
	return r.Length == o.Length && maps.EqualFunc(r.Cells, o.Cells, func(a, b Cell) bool {
		return a.Compare(b) == 0
	})
}

// Names returns the names of the cells in order.
func (r Row) Names() []string { return slices.Sorted(maps.Keys(r.Cells)) }

// Compare orders the candidates for one cell by (At, By, bytes of Value).
func (c Cell) Compare(o Cell) int {
	return cmp.Or(cmp.Compare(c.At, o.At), cmp.Compare(c.By, o.By), bytes.Compare(c.Value, o.Value))
}

// Merge joins two copies of a row. It reads no clock, so that every replica comes to the same result.
func Merge(a, b Row) Row {
	if a.Length != b.Length {
		if a.Length < b.Length {
			a = b
		}
		return a.settled()
	}
	if !a.Present() {
		return a.settled()
	}
	if len(b.Cells) == 0 {
		return a
	}
	cells := make(map[string]Cell, max(len(a.Cells), len(b.Cells)))
	maps.Copy(cells, a.Cells)
	for name, cell := range b.Cells {
		if had, ok := cells[name]; !ok || cell.Compare(had) > 0 {
			cells[name] = cell
		}
	}
	return Row{Length: a.Length, Cells: cells}
}

// settled drops what a tombstone must not hold.
func (r Row) settled() Row {
	if !r.Present() {
		r.Cells = nil
	}
	return r
}

// NextPresent returns the Length under which an absent or deleted row is created; a present row keeps its own.
func (r Row) NextPresent() (uint64, error) {
	if r.Present() {
		return r.Length, nil
	}
	return r.next()
}

// NextDeleted returns the Length of the tombstone for a present row; others keep their own.
func (r Row) NextDeleted() (uint64, error) {
	if !r.Present() {
		return r.Length, nil
	}
	return r.next()
}

func (r Row) next() (uint64, error) {
	if r.Length == math.MaxUint64 {
		return 0, fmt.Errorf("row length: %w", ErrExhausted)
	}
	return r.Length + 1, nil
}

// ValidateName says whether a cell may have this name: UTF-8, not empty, within MaxNameBytes.
func ValidateName(name string) error {
	if len(name) > MaxNameBytes {
		return fmt.Errorf("cell name of %d bytes: %w", len(name), ErrTooLarge)
	}
	if name == "" || !utf8.ValidString(name) {
		return fmt.Errorf("cell name %q: %w", name, ErrMalformed)
	}
	return nil
}
