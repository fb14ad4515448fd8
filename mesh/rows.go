package mesh

import (
	"errors"
	"fmt"
	"slices"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// errMeshReplaced: what was asked for belongs to a mesh that this box left.
var errMeshReplaced = errors.New("this box moved to another mesh meanwhile")

// rowWriter is the part of a store transaction that membership needs.
type rowWriter interface {
	Get(k crdt.Key) (crdt.Row, bool, error)
	Set(k crdt.Key, cell string, value []byte) error
	SetAt(k crdt.Key, cell string, value []byte, at crdt.HLC) error
}

var _ rowWriter = (*store.Tx)(nil)

// updateRows runs one local write. The caller holds swap shared.
func (m *Mesh) updateRows(write func(v *view, tx rowWriter) error) error {
	_, err := m.store.Update(func(tx *store.Tx) error { return write(m.view.Load(), tx) })
	if err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	return nil
}

// publishSelf writes what this box says of itself beside its signed record: its
// label and the addresses to dial, which must outlive every restart.
func (m *Mesh) publishSelf() error {
	addrs, err := marshal(m.addresses())
	if err != nil {
		return fmt.Errorf("encode addresses: %w", err)
	}
	return m.writeMembers(func(v *view, tx rowWriter) error {
		if !v.roster.active(m.self) {
			return nil // one who left or was banned says nothing
		}
		if err := tx.Set(memberKey(m.self), cellName, []byte(m.Name())); err != nil {
			return err
		}
		return tx.Set(memberKey(m.self), cellAddresses, addrs)
	})
}

// addressesChanged says whether the row holds other addresses than the host has.
func (m *Mesh) addressesChanged() bool {
	self, ok := m.view.Load().roster.members[m.self]
	return ok && !slices.Equal(self.addrs, m.addresses())
}
