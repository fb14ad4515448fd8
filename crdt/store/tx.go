package store

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"llmgw/crdt"
)

// Tx is one local write in progress, valid only inside of the function given to Update.
type Tx struct {
	store *Store
	batch *batch
	// written holds per row what this write did to it: the part that is merged, and passed on to peers.
	written map[crdt.Key]crdt.Row
}

// Update makes one atomic local write: what fn did through the Tx is on disk when Update returns nil, and nothing of
// it happened when fn or Update fails before the commit. It returns the keys of the rows that changed, in key order.
// ErrFailed means that the write was made but may not survive a power cut. ErrTooLarge: split it up.
func (s *Store) Update(fn func(*Tx) error) ([]crdt.Key, error) {
	written, err := s.update(fn)
	if len(written) == 0 {
		return nil, err
	}
	keys := make([]crdt.Key, len(written))
	for i, item := range written {
		keys[i] = item.Key
	}
	s.watches.notify(keys)
	if err != nil {
		return keys, err
	}
	if hook := s.hook.Load(); hook != nil {
		(*hook)(written)
	}
	return keys, nil
}

// update runs fn and the commit under the writer's lock, and returns the parts of rows that were written.
func (s *Store) update(fn func(*Tx) error) ([]crdt.Item, error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	tx := &Tx{store: s, batch: s.begin(), written: map[crdt.Key]crdt.Row{}}
	s.tx = tx.batch
	defer s.endTx()
	if err := fn(tx); err != nil {
		return nil, err
	}
	var items []crdt.Item
	for _, key := range slices.Sorted(maps.Keys(tx.written)) {
		item := crdt.Item{Key: key, Row: tx.written[key]}
		if err := tx.batch.writeLocal(item); err != nil {
			return nil, fmt.Errorf("update: %w", err)
		}
		items = append(items, item)
	}
	if err := tx.batch.commit(); err != nil {
		err = fmt.Errorf("update: %w", err)
		if s.failed == nil {
			return nil, err
		}
		return items, err
	}
	return items, nil
}

// endTx drops what was not committed, a ceiling of the clock too.
func (s *Store) endTx() {
	s.tx.discard()
	s.tx = nil
	s.clock.Unsave(s.saved)
}

// Get returns a row as this write has left it. The bool says whether the row is present; of a deleted row the
// tombstone is returned with false.
func (tx *Tx) Get(k crdt.Key) (crdt.Row, bool, error) {
	row, err := tx.row(k)
	if err != nil {
		return crdt.Row{}, false, err
	}
	row.Cells = maps.Clone(row.Cells)
	return row, row.Present(), nil
}

func (tx *Tx) row(k crdt.Key) (crdt.Row, error) {
	row, _, err := readRow(tx.batch.txn, k)
	if err != nil {
		return crdt.Row{}, err
	}
	return crdt.Merge(row, tx.written[k]), nil
}

// Set gives a cell a value, under a stamp above the one that it has. A row that is absent or deleted is made present
// with no other cells. Nothing happens when the cell has that value already. An empty value reads as "unset".
func (tx *Tx) Set(k crdt.Key, cell string, value []byte) error {
	row, err := tx.row(k)
	if err != nil {
		return fmt.Errorf("set %s: %w", k, err)
	}
	had, ok := row.Cells[cell]
	if ok && bytes.Equal(had.Value, value) {
		return nil
	}
	at, err := tx.store.clock.After(had.At)
	if err != nil {
		return fmt.Errorf("set %s: %w", k, err)
	}
	return tx.put(k, row, cell, value, at)
}

// SetAt is Set with a stamp of the caller's choice, such as an epoch. The clock has no part in it. The rules of the merge
// decide: a cell that holds a higher stamp, or the same and a higher writer or value, stays as it is and
// nothing is written; the caller sees by Get what stands.
func (tx *Tx) SetAt(k crdt.Key, cell string, value []byte, at crdt.HLC) error {
	row, err := tx.row(k)
	if err != nil {
		return fmt.Errorf("set %s: %w", k, err)
	}
	return tx.put(k, row, cell, value, at)
}

// Remove unsets a cell by giving it an empty value. Nothing happens when row or cell is not there.
func (tx *Tx) Remove(k crdt.Key, cell string) error {
	row, err := tx.row(k)
	if err != nil {
		return fmt.Errorf("remove from %s: %w", k, err)
	}
	if _, ok := row.Cells[cell]; !ok {
		return nil
	}
	return tx.Set(k, cell, nil)
}

// Delete turns a present row into a tombstone, which beats every edit made without knowing of it.
func (tx *Tx) Delete(k crdt.Key) error {
	row, err := tx.row(k)
	if err != nil {
		return fmt.Errorf("delete %s: %w", k, err)
	}
	if !row.Present() {
		return nil
	}
	length, err := row.NextDeleted()
	if err != nil {
		return fmt.Errorf("delete %s: %w", k, err)
	}
	tx.record(k, crdt.Row{Length: length})
	return nil
}

func (tx *Tx) put(k crdt.Key, row crdt.Row, cell string, value []byte, at crdt.HLC) error {
	if err := checkCell(row, cell, value); err != nil {
		return fmt.Errorf("set %s: %w", k, err)
	}
	length, err := row.NextPresent()
	if err != nil {
		return fmt.Errorf("set %s: %w", k, err)
	}
	part := crdt.Row{Length: length, Cells: map[string]crdt.Cell{
		cell: {At: at, By: tx.store.ID(), Value: bytes.Clone(value)},
	}}
	if crdt.Merge(row, part).Equal(row) {
		return nil
	}
	tx.record(k, part)
	return nil
}

func (tx *Tx) record(k crdt.Key, part crdt.Row) {
	tx.written[k] = crdt.Merge(tx.written[k], part)
}

func checkCell(row crdt.Row, cell string, value []byte) error {
	if err := crdt.ValidateName(cell); err != nil {
		return err
	}
	if len(value) > crdt.MaxValueBytes {
		return fmt.Errorf("cell %s of %d bytes, at most %d: %w", cell, len(value), crdt.MaxValueBytes, crdt.ErrTooLarge)
	}
	if _, ok := row.Cells[cell]; !ok && len(row.Cells) >= crdt.MaxCells {
		return fmt.Errorf("more than %d cells: %w", crdt.MaxCells, crdt.ErrTooLarge)
	}
	return nil
}
