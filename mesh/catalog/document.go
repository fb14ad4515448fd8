package catalog

import (
	"fmt"
	"maps"
	"slices"

	"llmgw/crdt"
	"llmgw/crdt/store"

	"github.com/fxamacker/cbor/v2"
)

// Namespaces of the shared documents. Members and tokens are signed and read
// by package mesh, which owns what they mean; their names stand here so that
// no two documents can take the same one.
const (
	NamespaceModels      = "models"
	NamespaceAssignments = "assignments"
	NamespaceMembers     = "members"
	NamespaceTokens      = "tokens"
	NamespaceKeys        = "keys"
	NamespaceSessions    = "sessions"
)

// Catalog reads and writes the typed documents of one store.
type Catalog struct {
	store *store.Store
}

// New makes the typed view of s.
func New(s *store.Store) *Catalog { return &Catalog{store: s} }

// Watch tells of changes in the given namespaces, by local writes and by
// merges alike; it coalesces and never blocks a writer.
func (c *Catalog) Watch(namespaces ...string) *store.Watch { return c.store.Watch(namespaces...) }

// encode writes one cell's value. Deterministic, so that two nodes that write
// the same setting write the same bytes. What no node could read back, such as
// text that is not UTF-8, is refused: one such cell hides its whole document.
func encode(v any) ([]byte, error) {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return nil, fmt.Errorf("set up cell encoding: %w", err)
	}
	b, err := mode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode cell: %w", err)
	}
	var back any
	if err := cbor.Unmarshal(b, &back); err != nil {
		return nil, fmt.Errorf("encode cell: %w", err)
	}
	return b, nil
}

// checkCells says which cell of a document cannot be written, and why; empty if
// all can.
func checkCells(cells map[string]any) (cell, why string) {
	for _, cell := range slices.Sorted(maps.Keys(cells)) {
		if crdt.ValidateName(cell) != nil {
			return cell, fmt.Sprintf("has a name that is not UTF-8, or over %d bytes with its kind", crdt.MaxNameBytes)
		}
		value, err := encode(cells[cell])
		switch {
		case err != nil:
			return cell, "holds text that is not UTF-8"
		case len(value) > crdt.MaxValueBytes:
			return cell, fmt.Sprintf("is over %d bytes", crdt.MaxValueBytes)
		}
	}
	if len(cells) > crdt.MaxCells {
		return "settings", fmt.Sprintf("are more than %d", crdt.MaxCells)
	}
	return "", ""
}

// keyParts takes the key of a row apart, which has to have n parts; what names the
// document.
func keyParts(key crdt.Key, what string, n int) ([]string, error) {
	parts, err := key.Parts()
	if err == nil && len(parts) != n {
		err = fmt.Errorf("%d parts instead of %d", len(parts), n)
	}
	if err != nil {
		return nil, fmt.Errorf("the %s key %s has another shape: %w", what, key, err)
	}
	return parts, nil
}

// decode reads a cell into out. An absent or empty cell leaves out as it is:
// a removed setting is an empty value.
func decode(row crdt.Row, cell string, out any) error {
	value := row.Cells[cell].Value
	if len(value) == 0 {
		return nil
	}
	if err := cbor.Unmarshal(value, out); err != nil {
		return &cellError{cell, err}
	}
	return nil
}

// set writes one cell if v differs from what the row holds.
func set(tx *store.Tx, key crdt.Key, cell string, v any) error {
	value, err := encode(v)
	if err != nil {
		return err
	}
	return tx.Set(key, cell, value)
}
