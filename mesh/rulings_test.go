package mesh

import (
	"context"
	"errors"
	"testing"
	"time"

	"llmgw/mesh/token"
)

// knows says whether b takes other for banned.
func (b *box) knows(other *box, want standing) func() bool {
	return func() bool { return b.mesh.view.Load().roster.standing(other.peer()) == want }
}

func (b *box) roleOf(other *box) Role {
	for _, n := range b.mesh.Nodes() {
		if n.ID == other.id() {
			return n.Role
		}
	}
	return ""
}

func TestFounderIsBanned(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	if err := b.mesh.Ban(ctx, a.id(), "sold"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "c knows", c.knows(a, banned))
	eventually(t, "a knows itself", func() bool { ban, out := a.mesh.Banned(); return out && ban.By == b.id() })
	allLive(t, b, c)
	// The mesh goes on: it admits, by b and by whom b did not admit.
	d, e := newBox(t, "d"), newBox(t, "e")
	d.join(c)
	e.join(b)
	allLive(t, b, c, d, e)
	if bans := d.mesh.Bans(); len(bans) != 1 || bans[0].Peer != a.id() || bans[0].Name != "a" || bans[0].Reason != "sold" {
		t.Errorf("d lists %+v", bans)
	}
	// b in turn goes too, and all that it vouched for stays.
	if err := d.mesh.Ban(ctx, b.id(), ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "c knows of b", c.knows(b, banned))
	allLive(t, c, d, e)
}

func TestUnbannedBoxComesBackByANewToken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(b)
	allLive(t, a, b, c)
	if err := a.mesh.Ban(ctx, b.id(), "by mistake"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b knows", func() bool { _, out := b.mesh.Banned(); return out })
	_, err := b.mesh.Join(ctx, a.token(TokenOptions{}), false)
	wantKind(t, err, token.Banned)
	if err := a.mesh.Unban(ctx, b.id()); err != nil {
		t.Fatal(err)
	}
	if a.mesh.view.Load().roster.active(b.peer()) {
		t.Error("the pardon alone made it a member")
	}
	// To its own mesh it comes back without replacing anything.
	if result := b.join(a); result.Replaced {
		t.Errorf("result %+v", result)
	}
	allLive(t, a, b, c)
	if _, out := b.mesh.Banned(); out || b.mesh.Serving() != nil {
		t.Error("b still takes itself for banned")
	}
}

func TestPromoteAndDemote(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	if _, err := b.mesh.Join(ctx, a.token(TokenOptions{Role: RoleMember}), false); err != nil {
		t.Fatal(err)
	}
	allLive(t, a, b)
	if err := a.mesh.Demote(ctx, a.id(), ""); !errors.Is(err, errNoAdminLeft) {
		t.Errorf("the last admin demoted itself: %v", err)
	}
	if err := b.mesh.Ban(ctx, a.id(), ""); err == nil {
		t.Error("a plain member banned")
	}
	if err := a.mesh.Promote(ctx, b.id()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b is an admin", func() bool { return b.roleOf(b) == RoleAdmin })
	c.join(b)
	allLive(t, a, b, c)
	// The founder is demoted by the one whom it promoted; all stay.
	if err := b.mesh.Demote(ctx, a.id(), "rotation"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all know", func() bool { return a.roleOf(a) == RoleMember && c.roleOf(a) == RoleMember })
	allLive(t, a, b, c)
	if _, err := a.mesh.NewToken(ctx, TokenOptions{}); err == nil {
		t.Error("a demoted box made a token")
	}
	if err := b.mesh.Demote(ctx, b.id(), ""); err != nil {
		t.Errorf("an admin of two may step down: %v", err)
	}
	eventually(t, "c is the only admin", func() bool { return c.roleOf(b) == RoleMember && c.roleOf(c) == RoleAdmin })
	allLive(t, a, b, c)
}

// TestMutualBanAcrossACut: the cut is made by running each side while the other
// is off.
func TestMutualBanAcrossACut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	b.kill()
	c.kill()
	if err := a.mesh.Ban(ctx, b.id(), "the earlier"); err != nil {
		t.Fatal(err)
	}
	a.kill()
	time.Sleep(2 * time.Millisecond) // the stamps are in milliseconds
	b.start()
	if err := b.mesh.Ban(ctx, a.id(), "the later"); err != nil {
		t.Fatal(err)
	}
	// c hears the later ban first.
	c.start()
	eventually(t, "c believes b", c.knows(a, banned))
	a.start()
	eventually(t, "c knows better", func() bool { return c.knows(a, active)() && c.knows(b, banned)() })
	allLive(t, a, c)
	eventually(t, "b knows that it lost", func() bool { ban, out := b.mesh.Banned(); return out && ban.Reason == "the earlier" })
	if _, out := a.mesh.Banned(); out {
		t.Error("a takes itself for banned")
	}
	eventually(t, "all show the ban that is void", func() bool {
		for _, x := range []*box{a, b, c} {
			if void := x.mesh.view.Load().roster.void; len(void) != 1 || void[0].body.Reason != "the later" {
				return false
			}
		}
		return true
	})
}

func TestRename(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	named := func(want string) func() bool {
		return func() bool {
			for _, n := range a.mesh.Nodes() {
				if n.ID == b.id() {
					return n.Name == want
				}
			}
			return false
		}
	}
	if err := b.mesh.Rename(context.Background(), " \x00"); err == nil {
		t.Error("an empty name was taken")
	}
	if err := b.mesh.Rename(context.Background(), "rack 7"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a knows the new name", named("rack 7"))
	if b.mesh.announcement().Name != "rack 7" {
		t.Error("mDNS tells the old name")
	}
	b.kill()
	b.start()
	allLive(t, a, b)
	eventually(t, "the name outlives a restart", named("rack 7"))
	b.kill()
	b.cfg.Name = "configured"
	b.start()
	allLive(t, a, b)
	eventually(t, "a new configured name is the newer word", named("configured"))
}
