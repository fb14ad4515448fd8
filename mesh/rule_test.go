package mesh

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/mesh/token"
)

// wantText says that err is there and says this.
func wantText(t *testing.T, what string, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %q", what, err, text)
	}
}

// TestRulingsThatAreRefused: each with the words that say why, and without a trace.
func TestRulingsThatAreRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := bareMeshes(t, 3)
	a, b, c := all[0], all[1], all[2]
	plain := a.adds(t, 1, RoleMember)
	gone := a.adds(t, 2, RoleMember)
	never := peerOf(t, 3)
	if err := a.Ban(ctx, gone.String(), "sold"); err != nil {
		t.Fatal(err)
	}
	for _, m := range all[1:] {
		m.hears(t, a)
	}
	before := verdictOf(a, all...)
	for name, c := range map[string]struct {
		err  error
		text string
	}{
		"ban of oneself":            {a.Ban(ctx, a.Self(), ""), "ban " + a.Self() + ": write rows: a box cannot ban itself; it can leave"},
		"ban of a stranger":         {a.Ban(ctx, never.String(), ""), ErrNotMember.Error()},
		"ban of one who is banned":  {a.Ban(ctx, gone.String(), ""), "it is banned already"},
		"ban of nobody":             {a.Ban(ctx, "nobody", ""), "ban nobody: decode peer ID"},
		"demotion of a member":      {a.Demote(ctx, plain.String(), ""), "it is no admin"},
		"demotion of a stranger":    {a.Demote(ctx, never.String(), ""), ErrNotMember.Error()},
		"demotion of one banned":    {a.Demote(ctx, gone.String(), ""), "it is banned already"},
		"pardon of a member":        {a.Unban(ctx, plain.String()), "unban " + plain.String() + ": write rows: it is not banned"},
		"pardon of a stranger":      {a.Unban(ctx, never.String()), "it is not banned"},
		"promotion of an admin":     {a.Promote(ctx, b.Self()), "promote " + b.Self() + ": write rows: it is an admin already"},
		"promotion of a stranger":   {a.Promote(ctx, never.String()), ErrNotMember.Error()},
		"promotion of one banned":   {a.Promote(ctx, gone.String()), ErrNotMember.Error()},
		"promotion of nobody":       {a.Promote(ctx, ""), "promote : decode peer ID"},
		"another form of a peer ID": {a.Ban(ctx, peer.ToCid(plain).String(), ""), "is not in its usual form"},
	} {
		wantText(t, name, c.err, c.text)
	}
	if got := verdictOf(a, all...); got != before {
		t.Errorf("what was refused left %s, before %s", got, before)
	}
	// Those who may not rule at all.
	if err := a.Demote(ctx, c.Self(), ""); err != nil {
		t.Fatal(err)
	}
	c.hears(t, a)
	for name, err := range map[string]error{
		"ban": c.Ban(ctx, plain.String(), ""), "demotion": c.Demote(ctx, b.Self(), ""), "pardon": c.Unban(ctx, gone.String()),
		"promotion": c.Promote(ctx, plain.String()),
	} {
		if e := wantKind(t, err, token.NotAdmin); e.Detail != "this box has no admin role in its mesh" {
			t.Errorf("%s by a member: %v", name, err)
		}
	}
}

// TestTheLastAdminStaysInOffice: no way of ruling or leaving takes the last one away, and
// one of two may always go.
func TestTheLastAdminStaysInOffice(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := bareMeshes(t, 2)
	a, b := all[0], all[1]
	plain := a.adds(t, 1, RoleMember)
	if err := a.mayLeave(); err != nil {
		t.Errorf("one of two: %v", err)
	}
	if err := a.Demote(ctx, b.Self(), "rotation"); err != nil {
		t.Fatal(err)
	}
	if err := a.Demote(ctx, a.Self(), ""); !errors.Is(err, errNoAdminLeft) {
		t.Errorf("the last admin demotes itself: %v", err)
	}
	if err := a.mayLeave(); !errors.Is(err, errLastAdmin) {
		t.Errorf("the last admin leaves: %v", err)
	}
	wantText(t, "leave", a.Leave(ctx), "leave mesh: it is the last admin of a mesh with other members")
	b.hears(t, a)
	if err := b.mayLeave(); err != nil {
		t.Errorf("a member leaves: %v", err)
	}
	if err := a.Promote(ctx, plain.String()); err != nil {
		t.Fatal(err)
	}
	if err := a.mayLeave(); err != nil {
		t.Errorf("with a successor: %v", err)
	}
	alone := bareMesh(t, "alone")
	if err := alone.mayLeave(); err != nil {
		t.Errorf("of a mesh of one: %v", err)
	}
	if err := alone.Demote(ctx, alone.Self(), ""); !errors.Is(err, errNoAdminLeft) {
		t.Errorf("of a mesh of one: %v", err)
	}
}

// TestRemovedBoxSaysWhy: to itself, to who asks it to serve, and in its list of nodes.
func TestRemovedBoxSaysWhy(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := bareMeshes(t, 2)
	a, b := all[0], all[1]
	if err := b.Serving(); err != nil {
		t.Fatal(err)
	}
	if err := a.Ban(ctx, b.Self(), "sold\x1b[2J\u202e it"); err != nil {
		t.Fatal(err)
	}
	b.hears(t, a)
	ban, out := b.Banned()
	if !out || ban.By != a.Self() || ban.Reason != "sold[2J it" || ban.Peer != b.Self() {
		t.Errorf("ban %+v, out %v", ban, out)
	}
	err := b.Serving()
	if !errors.Is(err, errNotServing) {
		t.Errorf("serves: %v", err)
	}
	wantText(t, "serving", err, "it was removed from its mesh by "+a.Self()+": sold[2J it")
	if b.view.Load().roster.active(a.self) {
		t.Error("to a removed box somebody is still a member")
	}
	if _, err := b.vouchForSuccessor(peerOf(t, 9)); !errors.Is(err, errNotServing) {
		t.Errorf("it vouched for another identity of itself: %v", err)
	}
	wantKind(t, b.needAdmin(b.view.Load()), token.NotAdmin)
	if bans := a.Bans(); len(bans) != 1 || bans[0] != ban {
		t.Errorf("a lists %+v, b %+v", bans, ban)
	}
	if err := a.Unban(ctx, b.Self()); err != nil {
		t.Fatal(err)
	}
	if bans := a.Bans(); len(bans) != 0 || a.view.Load().roster.standing(b.self) != stranger {
		t.Errorf("after the pardon: %+v", bans)
	}
	a.admits(t, b, RoleMember)
	if _, out := b.Banned(); out || b.Serving() != nil {
		t.Error("admitted anew and still out")
	}
}

// TestReasonsOfOthersAreMadeFitToBeShown: an admin's box may sign whatever it likes.
func TestReasonsOfOthersAreMadeFitToBeShown(t *testing.T) {
	c := newCast(t, "a", "b")
	body := rulingBody{
		Mesh: c.root.mesh[:], Peer: c.ids["b"].String(), Serial: 2, Kind: rulingBan, Issuer: c.ids["a"].String(), IssuerSerial: 1, At: 5,
		Reason: "\u009b31m" + strings.Repeat("x", 3*maxDetail) + "\n",
	}
	rows := mergeItems(c.items(c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin), c.cell("b", rulingCell(body), 2, kindRuling, body, c.keys["a"])))
	ban := evaluate(c.root.mesh, rows).banOf(c.ids["b"])
	if want := "31m" + strings.Repeat("x", maxDetail-3); ban.Reason != want {
		t.Errorf("reason %q", ban.Reason)
	}
}

// TestOrphansAreToldWhoTookTheirSponsor: one whom only a banned admin had vouched for, when
// the ban keeps nobody.
func TestOrphansAreToldWhoTookTheirSponsor(t *testing.T) {
	c := newCast(t, "a", "b", "c")
	r := evaluate(c.root.mesh, mergeItems(c.items(c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin),
		c.record("c", "b", 1, RoleAdmin), c.ban("b", "a", 2, 5))))
	orphan := c.ids["c"]
	if !r.removed(orphan) || r.standing(orphan) != stranger || r.active(orphan) {
		t.Errorf("removed %v, standing %d", r.removed(orphan), r.standing(orphan))
	}
	ban := r.banOf(orphan)
	if ban.By != "" || !ban.At.IsZero() || !strings.Contains(ban.Reason, "the box that admitted it was removed") {
		t.Errorf("%+v", ban)
	}
	if r.everHad() != 3 || r.admins("") != 1 || r.admins(c.ids["a"]) != 0 {
		t.Errorf("ever %d, admins %d", r.everHad(), r.admins(""))
	}
}

// TestVoidRulingsAreShown: as an alarm that names both and says what to do.
func TestVoidRulingsAreShown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	all := bareMeshes(t, 3)
	a, b, c := all[0], all[1], all[2]
	if err := a.Ban(ctx, b.Self(), "first"); err != nil {
		t.Fatal(err)
	}
	// b does not know of it, and its stamp is later for sure.
	b.view.Load().roster.lastAt = a.view.Load().roster.lastAt + 1
	if err := b.Ban(ctx, a.Self(), "second"); err != nil {
		t.Fatal(err)
	}
	c.hears(t, b)
	if c.view.Load().roster.standing(a.self) != banned {
		t.Fatal("c does not believe b, of which alone it has heard")
	}
	c.hears(t, a)
	a.hears(t, b)
	b.hears(t, a)
	for _, m := range all {
		texts := m.alarmsOf(AlarmRuling)
		want := "the ban of " + a.Self() + " by " + b.Self() + " does not stand"
		if len(texts) != 1 || !strings.HasPrefix(texts[0], want) {
			t.Errorf("%s: %q, want %q", m.cfg.Name, texts, want)
		}
		if m.view.Load().roster.standing(b.self) != banned {
			t.Errorf("%s: b is %d", m.cfg.Name, m.view.Load().roster.standing(b.self))
		}
	}
	if a.Serving() != nil || c.Serving() != nil || b.Serving() == nil {
		t.Errorf("a %v, c %v, b %v", a.Serving(), c.Serving(), b.Serving())
	}
}

// TestRowsOfAFormerMeshAreNotMerged: what was asked for in the mesh that a box left must
// not reach the new one.
func TestRowsOfAFormerMeshAreNotMerged(t *testing.T) {
	t.Parallel()
	all := bareMeshes(t, 2)
	a, b := all[0], all[1]
	before, rows := b.view.Load().generation, a.memberRows(t)
	if err := b.foundRandom(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.merge(before, rows); !errors.Is(err, errMeshReplaced) {
		t.Errorf("merged: %v", err)
	}
	// Even under the generation of now they make nobody a member.
	if refused, err := b.merge(b.view.Load().generation, rows); err != nil || refused == 0 {
		t.Errorf("%d refused, %v", refused, err)
	}
	if b.view.Load().roster.standing(a.self) != stranger || b.view.Load().roster.everHad() != 1 {
		t.Error("a member of the former mesh is one of the new")
	}
}
