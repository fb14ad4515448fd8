package mesh

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/mesh/token"
)

func TestJoinByToken(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	a.put("before", "1")
	if !a.mesh.Provisional() || !b.mesh.Provisional() {
		t.Fatal("a fresh box is not provisional")
	}
	b.put("gone", "1")
	result := b.join(a)
	if result.MeshID != a.mesh.MeshID() || result.Issuer != a.id() || result.Replaced || result.Archive != "" {
		t.Errorf("result %+v", result)
	}
	if b.mesh.MeshID() != a.mesh.MeshID() {
		t.Error("the joiner is in another mesh")
	}
	if got := b.get("before"); got != "1" {
		t.Errorf("state was not there when the join returned: %q", got)
	}
	if got := b.get("gone"); got != "" {
		t.Error("a row of the old mesh came along")
	}
	allLive(t, a, b)
	if a.mesh.Provisional() || b.mesh.Provisional() {
		t.Error("a mesh of two is provisional")
	}
	nodes := b.mesh.Nodes()
	if len(nodes) != 2 || nodes[0].State != StateSelf || nodes[1].Name != "a" || nodes[1].Role != RoleAdmin || !strings.HasPrefix(nodes[1].Path, "127.0.0.1:") {
		t.Errorf("nodes %+v", nodes)
	}
}

// TestAJoinIsSeenWhole: who looks at a box that joins never finds it in the new mesh
// without the members of that: it would take the mesh for one that it founds.
func TestAJoinIsSeenWhole(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	for range 10 {
		b := newBox(t, "b")
		done, saw := make(chan struct{}), make(chan int, 1)
		go func() {
			for least := 2; ; {
				if b.mesh.MeshID() == a.mesh.MeshID() {
					least = min(least, len(b.mesh.Nodes()))
				}
				select {
				case <-done:
					saw <- least
					return
				default:
				}
			}
		}()
		b.join(a)
		close(done)
		if n := <-saw; n < 2 {
			t.Fatalf("in the middle of its join it was in the new mesh with %d members", n)
		}
	}
}

func TestJoinedBoxAdmitsOthers(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(b)
	allLive(t, a, b, c)
}

func TestJoinSurvivesRestart(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	mesh := a.mesh.MeshID()
	a.kill()
	b.kill()
	a.start()
	b.start()
	if a.mesh.MeshID() != mesh || b.mesh.MeshID() != mesh {
		t.Fatal("the mesh was forgotten")
	}
	allLive(t, a, b)
}

func TestJoinErrors(t *testing.T) {
	t.Parallel()
	clock := &testClock{}
	a := newBox(t, "a", func(c *Config) { c.Now = clock.now })
	ctx := context.Background()

	t.Run("mistyped", func(t *testing.T) {
		b := newBox(t, "b")
		text := a.token(TokenOptions{})
		_, err := b.mesh.Join(ctx, text[:len(text)-1]+"7", false)
		if strings.HasSuffix(text, "7") {
			_, err = b.mesh.Join(ctx, text[:len(text)-1]+"2", false)
		}
		wantKind(t, err, token.Mistyped)
	})
	t.Run("expired by the issuer's clock", func(t *testing.T) {
		b := newBox(t, "b")
		text := a.token(TokenOptions{TTL: time.Minute})
		clock.move(3 * time.Minute)
		defer clock.move(-3 * time.Minute)
		_, err := b.mesh.Join(ctx, text, false)
		if e := wantKind(t, err, token.Expired); e.Ago < time.Minute {
			t.Errorf("expired %s ago", e.Ago)
		}
	})
	t.Run("used", func(t *testing.T) {
		b, c := newBox(t, "b"), newBox(t, "c")
		text := a.token(TokenOptions{})
		if _, err := b.mesh.Join(ctx, text, false); err != nil {
			t.Fatal(err)
		}
		_, err := c.mesh.Join(ctx, text, false)
		wantKind(t, err, token.Used)
		if !c.mesh.Provisional() {
			t.Error("a failed join changed the joiner")
		}
		_, err = b.mesh.Join(ctx, text, false)
		wantKind(t, err, token.AlreadyMember)
	})
	t.Run("revoked", func(t *testing.T) {
		b := newBox(t, "b")
		text := a.token(TokenOptions{})
		parsed, err := token.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.mesh.RevokeToken(ctx, parsed.ID.String()); err != nil {
			t.Fatal(err)
		}
		_, err = b.mesh.Join(ctx, text, false)
		wantKind(t, err, token.Revoked)
	})
	t.Run("unknown secret", func(t *testing.T) {
		b := newBox(t, "b")
		parsed, err := token.Parse(a.token(TokenOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		parsed.Secret[3] ^= 1
		text, err := parsed.Text()
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.mesh.Join(ctx, text, false)
		wantKind(t, err, token.Unknown)
	})
	t.Run("wrong mesh", func(t *testing.T) {
		b, other := newBox(t, "b"), newBox(t, "other")
		parsed, err := token.Parse(a.token(TokenOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		// The right form, but the box that it names is of another mesh.
		seed, err := seedOf(other.peer(), other.mesh.addresses())
		if err != nil {
			t.Fatal(err)
		}
		parsed.Seeds = []token.Seed{seed}
		text, err := parsed.Text()
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.mesh.Join(ctx, text, false)
		if e := wantKind(t, err, token.WrongMesh); e.Want != a.mesh.MeshID() {
			t.Errorf("does not name the mesh: %v", err)
		}
	})
	t.Run("clock skew", func(t *testing.T) {
		late := &testClock{offset: -10 * time.Minute}
		b := newBox(t, "b", func(c *Config) { c.Now = late.now })
		_, err := b.mesh.Join(ctx, a.token(TokenOptions{}), false)
		if e := wantKind(t, err, token.ClockSkew); e.Skew < 9*time.Minute || e.Skew > 11*time.Minute {
			t.Errorf("skew %s", e.Skew)
		}
	})
}

func TestJoinUnreachable(t *testing.T) {
	t.Parallel()
	a, b, other := newBox(t, "a"), newBox(t, "b"), newBox(t, "other")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	parsed, err := token.Parse(a.token(TokenOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	parsed.Seeds[0].Addrs = []string{closed, other.addr()}
	text, err := parsed.Text()
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.mesh.Join(context.Background(), text, false)
	e := wantKind(t, err, token.Unreachable)
	got := map[string]string{}
	for _, attempt := range e.Attempts {
		got[attempt.Addr] = attempt.Reason
	}
	if got[closed] != "connection refused" {
		t.Errorf("closed port: %q", got[closed])
	}
	if !strings.Contains(got[other.addr()], "another box answers there: "+other.id()) {
		t.Errorf("foreign box: %q", got[other.addr()])
	}
}

func TestIssuerPullsBeforeItRefuses(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	allLive(t, a, b)
	// The token is made at a, and neither gossip nor a pull brings it to b.
	a.store.OnLocalWrite(func([]crdt.Item) {})
	b.mesh.puller.hold()
	seed, err := seedOf(b.peer(), b.mesh.addresses())
	if err != nil {
		t.Fatal(err)
	}
	made, err := token.New(a.mesh.view.Load().mesh, []token.Seed{seed}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.mesh.writeToken(made, TokenOptions{TTL: time.Hour, Uses: 1, Role: RoleAdmin}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := b.store.Get(tokenKey(made.ID)); ok || err != nil {
		t.Fatalf("b knows the token already (%v)", err)
	}
	text, err := made.Text()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.mesh.Join(context.Background(), text, false); err != nil {
		t.Fatal(err)
	}
	allLive(t, a, b, c)
}

func TestOneUseIsTakenByOne(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	text := a.token(TokenOptions{Uses: 2})
	joiners := []*box{newBox(t, "b"), newBox(t, "c"), newBox(t, "d"), newBox(t, "e")}
	var mu sync.Mutex
	admitted := 0
	var all sync.WaitGroup
	for _, b := range joiners {
		all.Go(func() {
			_, err := b.mesh.Join(context.Background(), text, false)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				admitted++
			} else if !strings.Contains(err.Error(), "used") {
				t.Errorf("refused for another reason: %v", err)
			}
		})
	}
	all.Wait()
	if admitted != 2 {
		t.Errorf("%d boxes joined by a token with two uses", admitted)
	}
}

func TestReplaceNeedsToBeSaid(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	archive := t.TempDir()
	b := newBox(t, "b", func(c *Config) { c.ArchiveDir = archive })
	old := b.mesh.MeshID()
	_, err := b.store.Update(func(tx *store.Tx) error {
		return tx.Set(crdt.NewKey("models", "m"), "source", []byte("s"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if b.mesh.Provisional() {
		t.Fatal("a mesh with a model is provisional")
	}
	text := a.token(TokenOptions{})
	_, err = b.mesh.Join(context.Background(), text, false)
	if e := wantKind(t, err, token.NotProvisional); !strings.Contains(e.Error(), old) {
		t.Errorf("does not name the mesh: %v", e)
	}
	result, err := b.mesh.Join(context.Background(), text, true)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(result.Archive); err != nil || info.Size() == 0 || info.Mode().Perm() != 0o600 || !result.Replaced {
		t.Errorf("archive %+v: %v %v", result, info, err)
	}
	if rows, _ := b.store.List("models"); len(rows) != 0 {
		t.Error("the old mesh's model is still there")
	}
	allLive(t, a, b)
}

func TestProvisionalRule(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		ns, id, cell string
		want         bool
	}{
		"first key":       {"keys", "k", "first", true},
		"another key":     {"keys", "k", "name", false},
		"model":           {"models", "m", "source", false},
		"a session":       {"sessions", "s", "creator", true},
		"an unknown kind": {"later", "x", "y", true},
		"a setting":       {"settings", "mesh", "log.level", false},
		"a tenant":        {"tenants", "acme", "made", false},
		"a project":       {"projects", "web", "made", false},
		"a price":         {"prices", "tiny", "input", false},
		"a route":         {"routes", "fast", "record", false},
		"a provider":      {"providers", "p", "target", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, "b")
			_, err := b.store.Update(func(tx *store.Tx) error {
				return tx.Set(crdt.NewKey(c.ns, c.id), c.cell, []byte("1"))
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := b.mesh.Provisional(); got != c.want {
				t.Errorf("provisional %v, want %v", got, c.want)
			}
		})
	}
	t.Run("a model of the config file, then its own", func(t *testing.T) {
		b := newBox(t, "b")
		models := catalog.New(b.store)
		m := catalog.Model{Name: "tiny", Source: catalog.Source{URI: "file:/tiny", Digest: "sha256:aa", SizeBytes: 5, Format: "sim"}, Declared: catalog.Declaration{Node: b.id(), File: "config.yaml"}}
		if err := models.CreateModel(m); err != nil {
			t.Fatal(err)
		}
		if !b.mesh.Provisional() {
			t.Error("a declared model made the mesh worth keeping")
		}
		if err := models.UpdateModel("tiny", func(m *catalog.Model) error { m.Declared = catalog.Declaration{}; return nil }); err != nil {
			t.Fatal(err)
		}
		if b.mesh.Provisional() {
			t.Error("a model that no file declares any more did not")
		}
	})
	t.Run("a model that was there once", func(t *testing.T) {
		b := newBox(t, "b")
		k := crdt.NewKey("models", "m")
		if _, err := b.store.Update(func(tx *store.Tx) error { return tx.Set(k, "source", []byte("1")) }); err != nil {
			t.Fatal(err)
		}
		b.mesh.Provisional()
		if _, err := b.store.Update(func(tx *store.Tx) error { return tx.Delete(k) }); err != nil {
			t.Fatal(err)
		}
		if b.mesh.Provisional() {
			t.Error("it became provisional again")
		}
	})
}

func TestMemberRoleAdmitsNobody(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	text := a.token(TokenOptions{Role: RoleMember})
	if _, err := b.mesh.Join(context.Background(), text, false); err != nil {
		t.Fatal(err)
	}
	_, err := b.mesh.NewToken(context.Background(), TokenOptions{})
	wantKind(t, err, token.NotAdmin)

	// A token of the mesh that names only the member.
	parsed, err := token.Parse(a.token(TokenOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := seedOf(b.peer(), b.mesh.addresses())
	if err != nil {
		t.Fatal(err)
	}
	parsed.Seeds = []token.Seed{seed}
	text, err = parsed.Text()
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.mesh.Join(context.Background(), text, false)
	wantKind(t, err, token.NotAdmin)
}

func TestTokensAreListedWithoutSecrets(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	text := a.token(TokenOptions{Uses: 3, TTL: time.Hour, Role: RoleMember})
	if _, err := b.mesh.Join(context.Background(), text, false); err != nil {
		t.Fatal(err)
	}
	tokens, err := a.mesh.Tokens()
	if err != nil {
		t.Fatal(err)
	}
	if len(tokens) != 1 || tokens[0].Uses != 3 || tokens[0].Used != 1 || tokens[0].Role != RoleMember || tokens[0].Revoked {
		t.Errorf("tokens %+v", tokens)
	}
	parsed, err := token.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	row, _, err := a.store.Get(tokenKey(parsed.ID))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := crdt.EncodeRow(row)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), string(parsed.Secret[:])) {
		t.Error("the secret is in shared state")
	}
}

func TestTokenOptionsAreChecked(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	for name, o := range map[string]TokenOptions{
		"too long":      {TTL: 8 * 24 * time.Hour},
		"negative":      {TTL: -time.Hour},
		"too many uses": {Uses: tokenMaxUses + 1},
		"negative uses": {Uses: -1},
		"odd role":      {Role: "king"},
	} {
		text, err := a.mesh.NewToken(context.Background(), o)
		if err == nil {
			t.Errorf("%s: made %s", name, text)
			continue
		}
		if e := wantKind(t, err, token.BadOptions); !strings.Contains(e.Error(), "want") {
			t.Errorf("%s: %s", name, e)
		}
	}
}

func TestTokensThatAreLongOverAreDeleted(t *testing.T) {
	t.Parallel()
	clock := &testClock{}
	a := newBox(t, "a", func(c *Config) { c.Now = clock.now })
	short, long := a.token(TokenOptions{TTL: time.Minute}), a.token(TokenOptions{TTL: 7 * 24 * time.Hour})
	listed := func() int {
		a.mesh.tidyTokens()
		tokens, err := a.mesh.Tokens()
		if err != nil {
			t.Fatal(err)
		}
		return len(tokens)
	}
	clock.move(tokenKeep)
	if n := listed(); n != 2 {
		t.Errorf("%d tokens while the first is over for less than %s", n, tokenKeep)
	}
	clock.move(time.Hour)
	if n := listed(); n != 1 {
		t.Errorf("%d tokens, want the long one alone", n)
	}
	clock.move(7 * 24 * time.Hour)
	if n := listed(); n != 0 {
		t.Errorf("%d tokens are left", n)
	}
	// Its ID is never made again.
	for _, text := range []string{short, long} {
		parsed, err := token.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.mesh.writeToken(parsed, TokenOptions{TTL: time.Hour, Uses: 1, Role: RoleAdmin}); !errors.Is(err, errTokenTwice) {
			t.Errorf("made again: %v", err)
		}
	}
}
