package mesh

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/token"
)

// made is a token with its row in m.
func made(t *testing.T, m *Mesh, o TokenOptions) token.Token {
	t.Helper()
	if err := o.settle(); err != nil {
		t.Fatal(err)
	}
	seed := token.Seed{Key: seedKey(1).Public().(ed25519.PublicKey), Addrs: []string{"192.0.2.1:8771"}}
	tok, err := token.New(m.view.Load().mesh, []token.Seed{seed}, m.cfg.Entropy)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.writeToken(tok, o); err != nil {
		t.Fatal(err)
	}
	return tok
}

// redeems is p's use of a token at m.
func redeems(m *Mesh, p peer.ID, tok token.Token, change ...func(*token.Transcript)) error {
	signed := token.Transcript{Mesh: tok.Mesh, Token: tok.ID, Joiner: p.String(), Issuer: m.Self()}
	proof := signed
	for _, c := range change {
		c(&signed)
	}
	return m.redeem(m.view.Load(), p, proof, signed.Sign(tok.Key()))
}

func TestTokenOptionsSettle(t *testing.T) {
	o := TokenOptions{}
	if err := o.settle(); err != nil || o != (TokenOptions{TTL: time.Hour, Uses: 1, Role: RoleAdmin}) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, c := range []struct {
		o    TokenOptions
		text string // empty: taken
	}{
		{TokenOptions{TTL: time.Second}, ""},
		{TokenOptions{TTL: tokenMaxTTL, Uses: tokenMaxUses, Role: RoleMember}, ""},
		{TokenOptions{TTL: time.Second - 1}, "no token can be made like this: life of 999.999999ms: want 1s to 168h0m0s"},
		{TokenOptions{TTL: -time.Hour}, "life of -1h0m0s"},
		{TokenOptions{TTL: tokenMaxTTL + 1}, "life of 168h0m0.000000001s"},
		{TokenOptions{Uses: -1}, "-1 uses: want 1 to 500"},
		{TokenOptions{Uses: tokenMaxUses + 1}, "501 uses: want 1 to 500"},
		{TokenOptions{Role: "king"}, `role "king": want admin or member`},
	} {
		err := c.o.settle()
		if c.text == "" {
			if err != nil {
				t.Errorf("%+v: %v", c.o, err)
			}
			continue
		}
		wantKind(t, err, token.BadOptions)
		wantText(t, fmt.Sprintf("%+v", c.o), err, c.text)
	}
}

// TestTokenRowsThatAdmitNobody: each has one thing wrong with it.
func TestTokenRowsThatAdmitNobody(t *testing.T) {
	c := newCast(t, "r", "m", "x")
	v := &view{mesh: c.root.mesh, roster: evaluate(c.root.mesh, mergeItems(c.items(c.record("r", "", 1, RoleAdmin), c.record("m", "r", 1, RoleMember))))}
	id := token.ID{1, 2, 3}
	good := tokenBody{Mesh: c.root.mesh[:], ID: id[:], Key: make([]byte, 32), Role: RoleAdmin, Uses: 1, Issuer: c.ids["r"].String()}
	row := func(kind string, body tokenBody, key ed25519.PrivateKey) crdt.Row {
		blob, err := sign(kind, body, key)
		if err != nil {
			t.Fatal(err)
		}
		return crdt.Row{Length: 1, Cells: map[string]crdt.Cell{cellRecord: {Value: blob}}}
	}
	if body, err := checkToken(v, id, row(kindToken, good, c.keys["r"])); err != nil || body.Issuer != good.Issuer {
		t.Fatalf("a good one: %+v, %v", body, err)
	}
	spoil := func(f func(*tokenBody)) tokenBody { b := good; f(&b); return b }
	for name, tc := range map[string]struct {
		row  crdt.Row
		text string
	}{
		"no record":           {crdt.Row{Length: 1}, "decode token: EOF"},
		"another's signature": {row(kindToken, good, c.keys["m"]), "check token: signature does not hold"},
		"of another kind":     {row(kindLeft, good, c.keys["r"]), "check token: signature does not hold"},
		"of a plain member":   {row(kindToken, spoil(func(b *tokenBody) { b.Issuer = c.ids["m"].String() }), c.keys["m"]), "token was not made by an admin"},
		"of a stranger":       {row(kindToken, spoil(func(b *tokenBody) { b.Issuer = c.ids["x"].String() }), c.keys["x"]), "token was not made by an admin"},
		"of nobody":           {row(kindToken, spoil(func(b *tokenBody) { b.Issuer = "" }), c.keys["r"]), "decode peer ID"},
		"of another mesh":     {row(kindToken, spoil(func(b *tokenBody) { b.Mesh = make([]byte, 32) }), c.keys["r"]), "token record is of another token"},
		"of another token":    {row(kindToken, spoil(func(b *tokenBody) { b.ID = make([]byte, 8) }), c.keys["r"]), "token record is of another token"},
		"a role of no box":    {row(kindToken, spoil(func(b *tokenBody) { b.Role = "king" }), c.keys["r"]), `token of role "king" for 1 uses`},
		"no role":             {row(kindToken, spoil(func(b *tokenBody) { b.Role = "" }), c.keys["r"]), `token of role "" for 1 uses`},
		"no uses":             {row(kindToken, spoil(func(b *tokenBody) { b.Uses = 0 }), c.keys["r"]), `token of role "admin" for 0 uses`},
		"fewer than none":     {row(kindToken, spoil(func(b *tokenBody) { b.Uses = -1 }), c.keys["r"]), `for -1 uses`},
	} {
		_, err := checkToken(v, id, tc.row)
		wantText(t, name, err, tc.text)
	}
}

// TestRedeem: each way in which a use of a token ends, with its kind.
func TestRedeem(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	clock := &fixedClock{}
	m := bareMesh(t, "a", withFixedClock(clock))
	one := made(t, m, TokenOptions{})
	p := peerOf(t, 1)
	for name, change := range map[string]func(*token.Transcript){
		"another's proof":    func(s *token.Transcript) { s.Joiner = peerOf(t, 2).String() },
		"made for another":   func(s *token.Transcript) { s.Issuer = peerOf(t, 2).String() },
		"of another time":    func(s *token.Transcript) { s.IssuerNonce[0]++ },
		"of another joining": func(s *token.Transcript) { s.JoinerNonce[31]++ },
		"of another mesh":    func(s *token.Transcript) { s.Mesh[5]++ },
		"of another token":   func(s *token.Transcript) { s.Token[5]++ },
	} {
		if e := wantKind(t, redeems(m, p, one, change), token.Unknown); e.Detail != "the proof does not hold" {
			t.Errorf("%s: %v", name, e)
		}
	}
	unknown := one
	unknown.ID[0]++
	wantKind(t, redeems(m, p, unknown), token.Unknown)
	if m.view.Load().roster.standing(p) != stranger {
		t.Fatal("somebody got in by a proof that does not hold")
	}
	if err := redeems(m, p, one); err != nil {
		t.Fatal(err)
	}
	member := m.view.Load().roster.members[p]
	if member == nil || member.role != RoleAdmin || string(member.record.Token) != string(one.ID[:]) {
		t.Fatalf("admitted as %+v", member)
	}
	// The answer was lost: the same box asks once more, and that is no second use.
	if err := redeems(m, p, one); err != nil {
		t.Errorf("asked again: %v", err)
	}
	wantKind(t, redeems(m, peerOf(t, 2), one), token.Used)
	infos, err := m.Tokens()
	if err != nil || len(infos) != 1 || infos[0].Used != 1 || len(infos[0].Redeemed) != 1 || infos[0].Redeemed[0].Peer != p.String() || infos[0].Redeemed[0].Excess {
		t.Errorf("listed as %+v, %v", infos, err)
	}
	// Expiry is by this box's clock, to the second.
	short := made(t, m, TokenOptions{TTL: time.Minute, Uses: 5})
	clock.at = clock.at.Add(time.Minute - time.Second)
	if err := redeems(m, peerOf(t, 3), short); err != nil {
		t.Errorf("a second before its end: %v", err)
	}
	clock.at = clock.at.Add(3 * time.Second)
	if e := wantKind(t, redeems(m, peerOf(t, 4), short), token.Expired); e.Ago != 2*time.Second {
		t.Errorf("expired %s ago", e.Ago)
	}
	// Revoked is said before expired, and both only to one who holds it.
	if err := m.RevokeToken(ctx, short.ID.String()); err != nil {
		t.Fatal(err)
	}
	wantKind(t, redeems(m, peerOf(t, 4), short), token.Revoked)
	wantKind(t, redeems(m, peerOf(t, 4), short, func(s *token.Transcript) { s.Joiner = "" }), token.Unknown)
	wantKind(t, m.RevokeToken(ctx, token.ID{9}.String()), token.Unknown)
	wantText(t, "revoke nonsense", m.RevokeToken(ctx, "?"), "revoke token:")
	// A view of before the mesh was replaced admits nobody to the new one.
	before := m.view.Load()
	again := made(t, m, TokenOptions{})
	if err := m.foundRandom(); err != nil {
		t.Fatal(err)
	}
	proof := token.Transcript{Mesh: again.Mesh, Token: again.ID, Joiner: p.String(), Issuer: m.Self()}
	if err := m.redeem(before, p, proof, proof.Sign(again.Key())); !errors.Is(err, errMeshReplaced) {
		t.Errorf("in a mesh that was left: %v", err)
	}
}

// TestTokensOfThoseWhoWereRemoved: a banned box does not come in by any token, and what a
// demoted admin made is worth nothing.
func TestTokensOfThoseWhoWereRemoved(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := bareMeshes(t, 2)
	a, b := all[0], all[1]
	p := a.adds(t, 1, RoleAdmin)
	less := made(t, a, TokenOptions{Role: RoleMember, Uses: 5})
	byB := made(t, b, TokenOptions{Uses: 5})
	if err := a.Ban(ctx, p.String(), "sold"); err != nil {
		t.Fatal(err)
	}
	if e := wantKind(t, redeems(a, p, less), token.Banned); e.Detail != "sold" {
		t.Errorf("%+v", e)
	}
	if err := a.Unban(ctx, p.String()); err != nil {
		t.Fatal(err)
	}
	if err := redeems(a, p, less); err != nil || a.view.Load().roster.members[p].role != RoleMember {
		t.Errorf("after the pardon: %v", err)
	}
	// One that was an admin, left, and comes back as less than its records still make it.
	if err := b.writeLeft(); err != nil {
		t.Fatal(err)
	}
	if err := b.foundRandom(); err != nil {
		t.Fatal(err)
	}
	q := b.self
	if err := a.merges("unrelated"); err != nil {
		t.Fatal(err)
	}
	left := leftBody{Mesh: a.view.Load().mesh[:], Peer: q.String(), Serial: a.view.Load().roster.members[q].record.Serial}
	blob, err := sign(kindLeft, left, b.privateKey())
	if err != nil {
		t.Fatal(err)
	}
	row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{cellLeft: {At: crdt.HLC(left.Serial), By: 9, Value: blob}}}
	if _, err := a.merge(a.view.Load().generation, []crdt.Item{{Key: memberKey(q), Row: row}}); err != nil || a.view.Load().roster.standing(q) != departed {
		t.Fatalf("left: %v", err)
	}
	if e := wantKind(t, redeems(a, q, less), token.Refused); !strings.Contains(e.Detail, "an admin must demote it") {
		t.Errorf("%+v", e)
	}
	if err := a.Demote(ctx, q.String(), ""); err != nil {
		t.Fatal(err)
	}
	if err := redeems(a, q, less); err != nil {
		t.Errorf("after the demotion: %v", err)
	}
	// What q made while it was an admin.
	a.view.Load().roster.admitters[q] = false
	wantKind(t, redeems(a, peerOf(t, 5), byB), token.Unknown)
}

// TestATokenIsNeverMadeTwice, not even when its row is gone.
func TestATokenIsNeverMadeTwice(t *testing.T) {
	m := bareMesh(t, "a")
	tok := made(t, m, TokenOptions{})
	o := TokenOptions{TTL: time.Hour, Uses: 1, Role: RoleAdmin}
	if err := m.writeToken(tok, o); !errors.Is(err, errTokenTwice) {
		t.Errorf("made twice: %v", err)
	}
	if _, err := m.store.Update(func(tx *store.Tx) error { return tx.Delete(tokenKey(tok.ID)) }); err != nil {
		t.Fatal(err)
	}
	if err := m.writeToken(tok, o); !errors.Is(err, errTokenTwice) {
		t.Errorf("made again after its end: %v", err)
	}
	tok.Mesh[0]++
	if err := m.writeToken(tok, o); !errors.Is(err, errMeshReplaced) {
		t.Errorf("of a mesh that was left: %v", err)
	}
}

// TestUsesAreCountedHoweverTheyAreHidden: a member may write into a token's row, and gets
// no use back by that.
func TestUsesAreCountedHoweverTheyAreHidden(t *testing.T) {
	m := bareMesh(t, "a")
	tok := made(t, m, TokenOptions{})
	if err := redeems(m, peerOf(t, 1), tok); err != nil {
		t.Fatal(err)
	}
	_, err := m.store.Update(func(tx *store.Tx) error {
		return errors.Join(tx.Set(tokenKey(tok.ID), useCell(peerOf(t, 1), 1), nil), tx.Set(tokenKey(tok.ID), "other/use", []byte{1}))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, redeems(m, peerOf(t, 2), tok), token.Used)
	// Uses that nobody made keep others out at most.
	many := made(t, m, TokenOptions{Uses: 2})
	if _, err := m.store.Update(func(tx *store.Tx) error { return tx.Set(tokenKey(many.ID), cellUsePrefix+"x/1", []byte{1}) }); err != nil {
		t.Fatal(err)
	}
	if err := redeems(m, peerOf(t, 3), many); err != nil {
		t.Fatal(err)
	}
	wantKind(t, redeems(m, peerOf(t, 4), many), token.Used)
}

// TestSeedsAreAddressesThatCanBeDialled: a token stays short, and names nothing that means
// something on one box alone.
func TestSeedsAreAddressesThatCanBeDialled(t *testing.T) {
	p := peerOf(t, 1)
	seed, err := seedOf(p, []string{
		"/ip6/fe80::1%25eth0/tcp/1", "/ip6zone/eth0/ip6/fe80::1/tcp/8771", "/ip4/192.0.2.1/udp/8771/quic-v1", "nonsense", "/dns4/box.example/tcp/8771",
		"/ip4/192.0.2.1/tcp/8771", "/ip6/2001:db8::1/tcp/8771", "/ip4/192.0.2.2/tcp/1", "/ip4/192.0.2.3/tcp/1", "/ip4/192.0.2.4/tcp/1",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"192.0.2.1:8771", "[2001:db8::1]:8771", "192.0.2.2:1", "192.0.2.3:1"}
	if strings.Join(seed.Addrs, " ") != strings.Join(want, " ") {
		t.Errorf("addresses %v, want %v", seed.Addrs, want)
	}
	for _, a := range seed.Addrs {
		if _, _, err := net.SplitHostPort(a); err != nil {
			t.Error(err)
		}
	}
	if id, err := seedPeer(seed); err != nil || id != p {
		t.Errorf("the seed is %s, %v", id, err)
	}
	_, err = seedOf(p, []string{"/ip4/192.0.2.1/udp/1"})
	wantText(t, "no address", err, "node "+p.String()+" has no address that another box could dial")
	if _, err := seedPeer(token.Seed{Key: []byte("short")}); err == nil {
		t.Error("a key of five bytes is a peer")
	}
}
