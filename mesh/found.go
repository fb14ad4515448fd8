package mesh

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/mesh/token"
)

// Names of local meta values. They are never shared and outlive a reset of
// the rows.
const (
	metaBoot    = "mesh/boot"
	metaCurrent = "mesh/current" // savedMesh
	metaPending = "mesh/pending" // savedMesh that is about to replace the current one
)

// savedMesh is which mesh the store's rows belong to.
type savedMesh struct {
	Mesh    []byte `cbor:"1,keyasint"`
	Settled bool   `cbor:"2,keyasint"`           // no longer provisional
	Rows    []byte `cbor:"3,keyasint,omitempty"` // pending only: the rows to begin with
}

func (s savedMesh) id() meshID { return meshID(s.Mesh) }

// nextBoot counts this start of the daemon durably: max(saved+1, unix
// milliseconds), so that it grows even when the saved one is lost with the disk, and
// differs between two copies of one disk.
func nextBoot(s *store.Store, now time.Time) (uint64, error) {
	raw, ok, err := s.Meta(metaBoot)
	if err != nil {
		return 0, fmt.Errorf("read boot number: %w", err)
	}
	boot := uint64(max(now.UnixMilli(), 1))
	if ok && len(raw) == 8 {
		boot = max(boot, binary.BigEndian.Uint64(raw)+1)
	}
	if err := s.SetMeta(metaBoot, binary.BigEndian.AppendUint64(nil, boot)); err != nil {
		return 0, fmt.Errorf("save boot number: %w", err)
	}
	return boot, nil
}

// openMembership brings the store to one mesh with this box in it: it finishes a
// replacement that a crash cut short, and founds a mesh where there is none.
func (m *Mesh) openMembership() error {
	if err := m.finishPending(); err != nil {
		return err
	}
	saved, ok, err := m.readSaved(metaCurrent)
	if err != nil {
		return err
	}
	if ok {
		m.view.Store(&view{mesh: saved.id(), roster: &roster{mesh: saved.id()}})
		if _, err := m.reload(); err != nil {
			return err
		}
	}
	if m.cfg.Secret != nil {
		return m.openSecret(ok)
	}
	if !ok {
		return m.foundRandom()
	}
	return nil
}

// openSecret makes sure that this box is in the mesh of its secret. A provisional
// mesh of one gives way silently, another one is the user's to leave.
func (m *Mesh) openSecret(have bool) error {
	r, err := secretRoot(m.cfg.Secret)
	if err != nil {
		return err
	}
	if have && m.view.Load().mesh == r.mesh {
		return nil
	}
	if have && !m.Provisional() {
		return &token.Error{Kind: token.NotProvisional, Detail: "it belongs to mesh " + m.MeshID() +
			" and the mesh secret to mesh " + r.mesh.String() + "; leave the one or drop the other"}
	}
	return m.found(r)
}

func (m *Mesh) foundRandom() error {
	r, err := randomRoot(m.cfg.Entropy)
	if err != nil {
		return err
	}
	return m.found(r)
}

// found makes this box the first member of the mesh of r and moves there.
func (m *Mesh) found(r root) error {
	body, blob, err := m.rootRecord(r, 1)
	if err != nil {
		return err
	}
	return m.replaceMesh(r.mesh, []crdt.Item{recordItem(m.self, body, blob, m.replica())})
}

// rootRecord signs this box's own record with the genesis key.
func (m *Mesh) rootRecord(r root, serial uint64) (memberBody, []byte, error) {
	body := memberBody{
		Mesh: r.mesh[:], Peer: m.self.String(), Role: RoleAdmin, Serial: serial,
		Joined: m.now().Unix(), Genesis: r.record,
	}
	blob, err := sign(kindMember, body, r.private)
	return body, blob, err
}

// replaceMesh moves this box to another mesh, which begins with rows. It is
// complete after a crash too: what is pending is finished at the next Open.
func (m *Mesh) replaceMesh(mesh meshID, rows []crdt.Item) error {
	m.swap.Lock()
	defer m.swap.Unlock()
	raw, err := crdt.EncodeItems(rows)
	if err != nil {
		return fmt.Errorf("replace mesh: %w", err)
	}
	if err := m.writeSaved(metaPending, savedMesh{Mesh: mesh[:], Rows: raw}); err != nil {
		return err
	}
	if err := m.finishPending(); err != nil {
		return err
	}
	m.reloadMu.Lock()
	defer m.reloadMu.Unlock()
	m.absence.enters()
	old, generation := m.view.Load(), uint64(0)
	if old == nil {
		old = &view{roster: &roster{}}
	} else {
		generation = old.generation + 1
	}
	v, err := m.reloadAs(old, mesh, generation)
	if err != nil {
		// The store is the new mesh's: nobody of the old one may write to it.
		m.view.Store(&view{generation: generation, mesh: mesh, roster: &roster{mesh: mesh}})
		return err
	}
	m.keyDigest(v)
	return nil
}

func (m *Mesh) finishPending() error {
	pending, ok, err := m.readSaved(metaPending)
	if err != nil || !ok {
		return err
	}
	rows, err := crdt.DecodeItems(pending.Rows)
	if err != nil {
		return fmt.Errorf("read rows of the new mesh: %w", err)
	}
	if err := m.store.Reset(); err != nil {
		return fmt.Errorf("drop rows of the old mesh: %w", err)
	}
	if _, err := m.store.Merge(rows); err != nil {
		return fmt.Errorf("write rows of the new mesh: %w", err)
	}
	if err := m.writeSaved(metaCurrent, savedMesh{Mesh: pending.Mesh}); err != nil {
		return err
	}
	if err := m.store.SetMeta(metaPending, nil); err != nil {
		return fmt.Errorf("end replacement of the mesh: %w", err)
	}
	return nil
}

func (m *Mesh) readSaved(name string) (savedMesh, bool, error) {
	var saved savedMesh
	raw, ok, err := m.store.Meta(name)
	if err != nil {
		return saved, false, fmt.Errorf("read %s: %w", name, err)
	}
	if !ok || len(raw) == 0 {
		return saved, false, nil
	}
	if err := unmarshal(raw, &saved); err != nil {
		return saved, false, fmt.Errorf("read %s: %w", name, err)
	}
	if len(saved.Mesh) != len(meshID{}) {
		return saved, false, fmt.Errorf("read %s: mesh ID of %d bytes", name, len(saved.Mesh))
	}
	return saved, true, nil
}

func (m *Mesh) writeSaved(name string, saved savedMesh) error {
	raw, err := marshal(saved)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := m.store.SetMeta(name, raw); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Provisional says whether this box's mesh may be replaced silently by a join: it
// never had a second member nor a row that an admin made.
func (m *Mesh) Provisional() bool {
	saved, ok, err := m.readSaved(metaCurrent)
	if err != nil || !ok || saved.Settled {
		return false
	}
	if saved.id() != m.view.Load().mesh || !m.hasContent() {
		return saved.id() == m.view.Load().mesh
	}
	saved.Settled = true
	if err := m.writeSaved(metaCurrent, saved); err != nil {
		m.log.Error("mesh state not saved", "err", err)
	}
	return false
}

// adminMade are the namespaces in which every row was made by somebody.
var adminMade = [...]string{
	catalog.NamespaceSettings, catalog.NamespaceTenants, catalog.NamespaceProjects, catalog.NamespacePrices,
	catalog.NamespaceRoutes, catalog.NamespaceProviders,
}

// hasContent is the rule for what makes a mesh worth keeping: a second member,
// now or ever, a model that no config file declares, an API key that is not the
// first, or any row that only an admin makes.
func (m *Mesh) hasContent() bool {
	if m.view.Load().roster.everHad() > 1 {
		return true
	}
	return m.holds(catalog.NamespaceModels, func(r crdt.Row) bool { return !catalog.IsDeclared(r) }) ||
		m.holds(catalog.NamespaceKeys, func(r crdt.Row) bool { return len(r.Cells["first"].Value) == 0 }) ||
		slices.ContainsFunc(adminMade[:], func(ns string) bool { return m.holds(ns, func(crdt.Row) bool { return true }) })
}

// holds says whether there is a row that somebody made on purpose; one that cannot
// be read may be.
func (m *Mesh) holds(namespace string, onPurpose func(crdt.Row) bool) bool {
	rows, err := m.store.List(namespace)
	return err != nil || slices.ContainsFunc(rows, func(item crdt.Item) bool { return onPurpose(item.Row) })
}

func (m *Mesh) privateKey() ed25519.PrivateKey { return m.cfg.Key }
