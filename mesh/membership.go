package mesh

import (
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// reload derives the roster from the rows again and acts on the difference. It
// returns the view that it put in place.
func (m *Mesh) reload() (*view, error) {
	m.reloadMu.Lock()
	defer m.reloadMu.Unlock()
	old := m.view.Load()
	return m.reloadAs(old, old.mesh, old.generation)
}

// reloadAs is reload for a box that may be in another mesh from now on: who looks sees
// the new mesh and its members at once, or neither. The caller holds reloadMu.
func (m *Mesh) reloadAs(old *view, mesh meshID, generation uint64) (*view, error) {
	rows, err := m.store.List(nsMembers)
	if err != nil {
		return nil, fmt.Errorf("read members: %w", err)
	}
	v := &view{generation: generation, mesh: mesh, roster: evaluate(mesh, rows)}
	v.roster.outcast = v.roster.removed(m.self)
	m.view.Store(v)
	if v.roster.outcast && !old.roster.outcast {
		ban := v.roster.banOf(m.self)
		m.log.Error("THIS BOX WAS REMOVED FROM ITS MESH and serves no more; to return it needs to be unbanned and a new token",
			"mesh", v.mesh.String(), "by", ban.By, "reason", ban.Reason, "at", ban.At)
	}
	if m.host != nil {
		m.enforce(old.roster, v)
	}
	m.changes.notify()
	return v, nil
}

// enforce brings connections, addresses and links in line with the roster.
func (m *Mesh) enforce(old *roster, v *view) {
	for _, p := range m.host.Network().Peers() {
		was := m.conns.IsProtected(p, "member")
		switch {
		case v.roster.active(p):
			m.conns.Protect(p, "member")
		case was, v.roster.removed(p) && !m.guests.holds(p):
			m.conns.Unprotect(p, "member")
			m.forget(p)
		}
	}
	m.guests.promote(v.roster)
	m.keepAddresses(old, v.roster)
	m.links.reconcile(v.roster)
	if m.gossip != nil {
		m.followTopics(v)
	}
}

// forget ends all that connects this box to one who is no member any more: its
// connections with every relay on them, and its addresses.
func (m *Mesh) forget(p peer.ID) {
	m.log.Info("peer is no longer a member; connection closed", "peer", p.String())
	if err := m.host.Network().ClosePeer(p); err != nil {
		m.log.Debug("connection did not close cleanly", "peer", p.String(), "err", err)
	}
	m.host.Peerstore().RemovePeer(p)
	m.authors.forget(p)
	m.warden.forget(p)
}

// merge takes remote rows into the store, screened, unless the mesh was replaced
// since the generation in which they were asked for. It returns how many rows
// and cells were refused.
func (m *Mesh) merge(generation uint64, items []crdt.Item) (refused int, err error) {
	m.swap.RLock()
	defer m.swap.RUnlock()
	v := m.view.Load()
	if v.generation != generation {
		return 0, errMeshReplaced
	}
	var current []crdt.Item
	if slices.ContainsFunc(items, isMember) {
		if current, err = m.store.List(nsMembers); err != nil {
			return 0, fmt.Errorf("read members: %w", err)
		}
	}
	kept, refused := screen(v.mesh, current, items)
	changed, err := m.store.Merge(kept)
	if err != nil {
		return refused, fmt.Errorf("merge rows: %w", err)
	}
	if slices.ContainsFunc(changed, func(k crdt.Key) bool { return k.Namespace() == nsMembers }) {
		_, err = m.reload()
	}
	return refused, err
}

func isMember(i crdt.Item) bool { return i.Key.Namespace() == nsMembers }

// writeMembers makes a local write to membership rows and reloads the roster.
func (m *Mesh) writeMembers(write func(v *view, tx rowWriter) error) error {
	m.swap.RLock()
	defer m.swap.RUnlock()
	if err := m.updateRows(write); err != nil {
		return err
	}
	_, err := m.reload()
	return err
}
