package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// cellOwner is the one cell of an assignment's row. Its stamp is the epoch and
// its writer the steward's store, so the row's ordinary join keeps the higher
// (epoch, steward).
const cellOwner = "owner"

// AssignmentID is one slot of a model.
type AssignmentID struct {
	Model string
	Slot  int
}

// Assignments lists who owns which slot, ordered by model and slot, without rows that
// cannot be read. Vacant slots are listed too: their epoch is the one to go on from.
func (c *Catalog) Assignments() ([]Assignment, error) {
	assignments, err := listRows(c, NamespaceAssignments, assignmentFromRow)
	slices.SortFunc(assignments, func(a, b Assignment) int {
		return cmp.Or(strings.Compare(a.Model, b.Model), cmp.Compare(a.Slot, b.Slot))
	})
	return assignments, err
}

// UnreadableSlots are the slots whose assignments cannot be read: nobody here knows
// whose they are.
func (c *Catalog) UnreadableSlots() ([]AssignmentID, error) {
	rows, err := c.Unreadable(NamespaceAssignments)
	var out []AssignmentID
	for _, e := range rows {
		if parts, err := keyParts(e.Key, "assignment", 2); err == nil {
			if slot, err := strconv.Atoi(parts[1]); err == nil {
				out = append(out, AssignmentID{parts[0], slot})
			}
		}
	}
	return out, err
}

// PutAssignment writes who owns a slot. An epoch that is not above the one on
// disk changes nothing: the same one would name two owners in turn. One on disk that
// cannot be read is an *UnreadableError.
func (c *Catalog) PutAssignment(a Assignment) error {
	key := crdt.NewKey(NamespaceAssignments, a.Model, strconv.Itoa(a.Slot))
	value, err := encode(a)
	if err != nil {
		return err
	}
	_, err = c.store.Update(func(tx *store.Tx) error {
		row, _, err := tx.Get(key)
		if err != nil {
			return err
		}
		if _, err := assignmentFromRow(key, row); err != nil {
			return err
		}
		if had, ok := row.Cells[cellOwner]; ok && had.At >= crdt.HLC(a.Epoch) {
			return nil
		}
		return tx.SetAt(key, cellOwner, value, crdt.HLC(a.Epoch))
	})
	if err != nil {
		return fmt.Errorf("assign %s slot %d: %w", a.Model, a.Slot, err)
	}
	return nil
}

func assignmentFromRow(key crdt.Key, row crdt.Row) (Assignment, error) {
	parts, err := keyParts(key, "assignment", 2)
	if err != nil {
		return Assignment{}, unreadable(key, row, err)
	}
	slot, err := strconv.Atoi(parts[1])
	if err == nil && strconv.Itoa(slot) != parts[1] {
		err = errors.New("is not in its shortest form")
	}
	if err != nil {
		return Assignment{}, unreadable(key, row, fmt.Errorf("slot %q: %w", parts[1], err))
	}
	var a Assignment
	if err := decode(row, cellOwner, &a); err != nil {
		return Assignment{}, unreadable(key, row, err)
	}
	a.Model, a.Slot = parts[0], slot
	return a, nil
}
