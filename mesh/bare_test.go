package mesh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/token"
)

// bareMesh is a mesh without a host: its store is in memory, and all that needs no
// stream is real. It has founded a mesh of its own.
func bareMesh(t testing.TB, name string, change ...func(*Config)) *Mesh {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Key: key, Name: name, Version: "test"}
	for _, c := range change {
		c(&cfg)
	}
	if cfg.Store == nil {
		cfg.Store = memoryStore(t)
	}
	cfg.setDefaults()
	m, err := newMesh(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.cancel)
	if err := m.openMembership(); err != nil {
		t.Fatal(err)
	}
	return m
}

func memoryStore(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open("", store.Options{Disk: store.NewDisk()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// admits has m make other a member and move there, as a join does.
func (m *Mesh) admits(t testing.TB, other *Mesh, role Role) {
	t.Helper()
	err := m.writeMembers(func(v *view, tx rowWriter) error {
		return m.writeRecord(v, tx, other.self, memberBody{
			Role: role, Serial: v.roster.floors[other.self] + 1, Joined: m.now().Unix(),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.replaceMesh(m.view.Load().mesh, m.memberRows(t)); err != nil {
		t.Fatal(err)
	}
}

func (m *Mesh) memberRows(t testing.TB) []crdt.Item {
	t.Helper()
	rows, err := m.store.List(nsMembers)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// hears has m take over the membership rows of others.
func (m *Mesh) hears(t testing.TB, others ...*Mesh) {
	t.Helper()
	for _, o := range others {
		if _, err := m.merge(m.view.Load().generation, o.memberRows(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// bareMeshes are n meshes that are admins of one.
func bareMeshes(t testing.TB, n int) []*Mesh {
	t.Helper()
	var all []*Mesh
	for i := range n {
		all = append(all, bareMesh(t, fmt.Sprintf("m%d", i)))
	}
	unite(t, all)
	return all
}

// unite has the first found a new mesh and admit all others as admins.
func unite(t testing.TB, all []*Mesh) {
	t.Helper()
	if err := all[0].foundRandom(); err != nil {
		t.Fatal(err)
	}
	for _, m := range all[1:] {
		all[0].admits(t, m, RoleAdmin)
	}
	for _, m := range all[1:] {
		m.hears(t, all[0])
	}
}

// adds puts a member with this standing to m into its roster for good, without a row of
// its own: somebody whom m only has to judge.
func (m *Mesh) adds(t testing.TB, seed byte, role Role) peer.ID {
	t.Helper()
	p := peerOf(t, seed)
	err := m.writeMembers(func(v *view, tx rowWriter) error {
		return m.writeRecord(v, tx, p, memberBody{Role: role, Serial: v.roster.floors[p] + 1, Joined: m.now().Unix()})
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// seedKey is the same key each time.
func seedKey(seed byte) ed25519.PrivateKey {
	raw := make([]byte, ed25519.SeedSize)
	raw[0], raw[1] = seed, 0xfe
	return ed25519.NewKeyFromSeed(raw)
}

func peerOf(t testing.TB, seed byte) peer.ID {
	t.Helper()
	id, err := seedPeer(token.Seed{Key: seedKey(seed).Public().(ed25519.PublicKey)})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// speaksTo makes p live to m without a connection.
func (m *Mesh) speaksTo(p peer.ID, id crdt.ReplicaID) *link {
	l := &link{m: m, peer: p, kicked: make(chan struct{}, 1), news: make(chan struct{}, 1), pulse: make(chan struct{}, 1)}
	l.health.heard(m.now())
	m.links.mu.Lock()
	defer m.links.mu.Unlock()
	m.links.links[p] = l
	if m.links.ctx == nil {
		m.links.ctx = context.Background() // the set counts as started
	}
	m.authors.learn(p, id)
	return l
}

// wants says whether the puller was asked to pull from p, and forgets it.
func (u *puller) wants(p peer.ID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	had := u.wanted[p]
	delete(u.wanted, p)
	return had
}

// wantsAny is wants for a pull from whomever.
func (u *puller) wantsAny() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	had := u.any
	u.any = false
	return had
}

// alarmsOf lists the texts of a kind.
func (m *Mesh) alarmsOf(kind AlarmKind) []string {
	var out []string
	for _, a := range m.Alarms() {
		if a.Kind == kind {
			out = append(out, a.Text)
		}
	}
	return out
}

// merges has m write a row of its own.
func (m *Mesh) merges(key string) error {
	_, err := m.store.Update(func(tx *store.Tx) error { return tx.Set(crdt.NewKey("things", key), "v", []byte("1")) })
	return err
}
