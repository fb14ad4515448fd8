package mesh

import (
	"context"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/mesh/token"
)

func TestTokensTellWhoUsedThem(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	text := a.token(TokenOptions{Uses: 2})
	start := time.Now().Add(-time.Second)
	for _, x := range []*box{b, c} {
		if _, err := x.mesh.Join(context.Background(), text, false); err != nil {
			t.Fatal(err)
		}
	}
	allLive(t, a, b, c)
	eventually(t, "c knows who used it", func() bool {
		tokens, err := c.mesh.Tokens()
		if err != nil {
			t.Fatal(err)
		}
		return len(tokens) == 1 && len(tokens[0].Redeemed) == 2 && tokens[0].Used == 2 && tokens[0].Redeemed[0].Name == "b"
	})
	tokens, err := c.mesh.Tokens()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []*box{b, c} {
		if r := tokens[0].Redeemed[i]; r.Peer != want.id() || r.By != a.id() || r.Excess || r.At.Before(start) || r.At.After(time.Now().Add(time.Second)) {
			t.Errorf("use %d: %+v", i, r)
		}
	}
}

// TestDoubleUseIsFoundAtMerge: on each side of a cut a box takes the one use. The
// cut is made by running each side while the other is off.
func TestDoubleUseIsFoundAtMerge(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	eventually(t, "a token names both", func() bool {
		seeds, err := a.mesh.tokenSeeds(a.mesh.view.Load())
		return err == nil && len(seeds) == 2
	})
	text := a.token(TokenOptions{})
	parsed, err := token.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "b knows the token", func() bool { _, ok, err := b.store.Get(tokenKey(parsed.ID)); return ok && err == nil })
	b.kill()
	early, late := newBox(t, "early"), newBox(t, "late")
	if _, err := early.mesh.Join(ctx, text, false); err != nil {
		t.Fatal(err)
	}
	allLive(t, a, early)
	a.kill()
	early.kill()
	b.start()
	if _, err := late.mesh.Join(ctx, text, false); err != nil {
		t.Fatal(err)
	}
	allLive(t, b, late)
	a.start()
	early.start()
	eventually(t, "the later one is removed everywhere", func() bool {
		return a.knows(late, banned)() && b.knows(late, banned)() && early.knows(late, banned)()
	})
	allLive(t, a, b, early)
	eventually(t, "it knows why", func() bool {
		ban, out := late.mesh.Banned()
		return out && strings.Contains(ban.Reason, "had been used before")
	})
	for _, x := range []*box{a, b, early} {
		eventually(t, x.cfg.Name+" raises the alarm", func() bool { return hasAlarm(x, AlarmToken) })
	}
	tokens, err := early.mesh.Tokens()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range tokens {
		if info.ID != parsed.ID.String() {
			continue
		}
		if r := info.Redeemed; len(r) != 2 || r[0].Peer != early.id() || r[0].Excess || r[1].Peer != late.id() || !r[1].Excess {
			t.Errorf("uses %+v", r)
		}
	}
	// It may come back by a new token.
	if err := a.mesh.Unban(ctx, late.id()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all know of the pardon", func() bool { return !b.knows(late, banned)() && !early.knows(late, banned)() })
	late.join(a)
	allLive(t, a, b, early, late)
}

func TestOneJoinWithTwoRecordsIsOneUse(t *testing.T) {
	c := newCast(t, "a", "b", "j", "k")
	id := token.ID{7}
	by := func(p, issuer string, at uint64) memberBody {
		return memberBody{
			Mesh: c.root.mesh[:], Peer: c.ids[p].String(), Role: RoleAdmin, Serial: 1, Issuer: c.ids[issuer].String(), IssuerSerial: 1,
			Token: id[:], At: 100 + crdt.HLC(at),
		}
	}
	rows := mergeItems(
		c.items(c.record("a", "", 1, RoleAdmin), c.record("b", "a", 1, RoleAdmin)),
		c.items(c.signed("j", by("j", "a", 2)), c.signed("j", by("j", "b", 1)), c.signed("k", by("k", "b", 3))),
	)
	uses := evaluate(c.root.mesh, rows).redemptions(id, 1)
	if len(uses) != 2 || uses[0].rec.peer != c.ids["j"] || uses[0].excess || uses[1].rec.peer != c.ids["k"] || !uses[1].excess {
		t.Errorf("uses %+v", uses)
	}
}
