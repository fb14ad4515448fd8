package mesh

import (
	"bytes"
	"context"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/token"
)

func withSecret(secret []byte, peers ...string) func(*Config) {
	return func(c *Config) { c.Secret, c.Peers = secret, peers }
}

func TestSameSecretAdmits(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{7}, 32)
	a := newBox(t, "a", withSecret(secret))
	if !a.mesh.Provisional() {
		t.Error("alone with a secret, and not provisional")
	}
	a.put("before", "1")
	b := newBox(t, "b", withSecret(secret, a.addr()))
	c := newBox(t, "c", withSecret(secret, b.addr()))
	allLive(t, a, b, c)
	eventually(t, "c has a's row", func() bool { return c.get("before") == "1" })
	if a.mesh.MeshID() != c.mesh.MeshID() {
		t.Error("two meshes")
	}
}

func TestTwoHalvesOfASecretMeshMeet(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{9}, 32)
	a := newBox(t, "a", withSecret(secret))
	b := newBox(t, "b", withSecret(secret, a.addr()))
	allLive(t, a, b)
	c := newBox(t, "c", withSecret(secret))
	d := newBox(t, "d", withSecret(secret, c.addr()))
	allLive(t, c, d)
	a.put("half", "one")
	c.put("other", "two")
	b.kill()
	b.cfg.Peers = append(b.cfg.Peers, d.addr())
	b.start()
	allLive(t, a, b, c, d)
	eventually(t, "both halves are everywhere", func() bool { return a.get("other") == "two" && c.get("half") == "one" })
}

func TestOtherSecretStaysOut(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a", withSecret(bytes.Repeat([]byte{1}, 32)))
	b := newBox(t, "b", withSecret(bytes.Repeat([]byte{2}, 32), a.addr()))
	eventually(t, "b says why", func() bool {
		seen := b.mesh.Sightings()
		return len(seen) == 1 && seen[0].Reason == "it does not hold the same mesh secret"
	})
	if len(a.mesh.Nodes()) != 1 || len(b.mesh.Nodes()) != 1 {
		t.Error("they joined")
	}
}

func TestShortSecretIsRefused(t *testing.T) {
	t.Parallel()
	for _, secret := range [][]byte{{}, bytes.Repeat([]byte{1}, MinSecret-1)} {
		b := newBox(t, "b")
		b.kill()
		b.cfg.Secret = secret
		if err := b.tryStart(); err == nil {
			t.Errorf("a secret of %d bytes was taken", len(secret))
		}
	}
}

func TestSecretReplacesOnlyAProvisionalMesh(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{3}, 32)
	b := newBox(t, "b")
	first := b.mesh.MeshID()
	b.kill()
	b.cfg.Secret = secret
	b.start()
	if b.mesh.MeshID() == first {
		t.Error("the provisional mesh stayed")
	}
	c := newBox(t, "c")
	if _, err := c.store.Update(func(tx *store.Tx) error {
		return tx.Set(crdt.NewKey("models", "m"), "source", []byte("1"))
	}); err != nil {
		t.Fatal(err)
	}
	c.kill()
	c.cfg.Secret = secret
	wantKind(t, c.tryStart(), token.NotProvisional)
}

func TestLeftSecretMeshCanBeJoinedAgain(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{4}, 32)
	a := newBox(t, "a", withSecret(secret))
	b := newBox(t, "b", withSecret(secret, a.addr()))
	allLive(t, a, b)
	if err := b.mesh.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a knows", func() bool { return a.sees(b) == StateLeft })
	if b.mesh.MeshID() == a.mesh.MeshID() {
		t.Fatal("it did not leave")
	}
	b.kill()
	b.start() // with the secret still configured
	allLive(t, a, b)
}

func TestBanClosesAdmissionBySecret(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{5}, 32)
	a := newBox(t, "a", withSecret(secret))
	b := newBox(t, "b", withSecret(secret, a.addr()))
	allLive(t, a, b)
	if err := a.mesh.Ban(context.Background(), b.id(), "gone"); err != nil {
		t.Fatal(err)
	}
	// Under its old identity, with a record that it signs anew.
	b.kill()
	b.start()
	// Under a new one.
	c := newBox(t, "c", withSecret(secret, a.addr()))
	eventually(t, "c says why", func() bool {
		seen := c.mesh.Sightings()
		return len(seen) == 1 && bytes.Contains([]byte(seen[0].Reason), []byte("admits nobody"))
	})
	if len(a.mesh.Nodes()) != 1 {
		t.Errorf("nodes %+v", a.mesh.Nodes())
	}
}

func TestStaticPeerWithoutSecretIsListed(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	b := newBox(t, "b", func(c *Config) { c.Peers = []string{a.addr(), "nonsense", "/ip4/127.0.0.1/tcp/1"} })
	eventually(t, "both are listed", func() bool { return len(b.mesh.Sightings()) == 2 })
	eventually(t, "with reasons", func() bool {
		reasons := map[string]string{}
		for _, s := range b.mesh.Sightings() {
			reasons[s.Addrs[0]] = s.Reason
		}
		return reasons["127.0.0.1:1"] == "connection refused" && reasons[a.addr()] != "" && reasons[a.addr()] != "not reached yet"
	})
}
