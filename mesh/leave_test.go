package mesh

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/token"
)

func TestLeave(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	old := b.mesh.MeshID()
	a.put("theirs", "1")
	eventually(t, "b has the row", func() bool { return b.get("theirs") == "1" })
	if err := b.mesh.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	if b.mesh.MeshID() == old || !b.mesh.Provisional() || len(b.mesh.Nodes()) != 1 || b.get("theirs") != "" {
		t.Errorf("after leaving: mesh %s, nodes %+v", b.mesh.MeshID(), b.mesh.Nodes())
	}
	for _, x := range []*box{a, c} {
		eventually(t, x.cfg.Name+" knows that b left", func() bool { return x.sees(b) == StateLeft })
	}
	if _, err := a.mesh.Open(context.Background(), b.id(), ProtocolInfer); !errors.Is(err, ErrNotMember) {
		t.Errorf("a stream to one who left: %v", err)
	}
	// What it left is gone for good, across a restart; and it may come back.
	b.kill()
	b.start()
	if b.mesh.MeshID() == old {
		t.Fatal("it is back in the old mesh")
	}
	b.join(c)
	allLive(t, a, b, c)
}

func TestFounderLeavesAndComesBack(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	if err := a.mesh.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b knows", func() bool { return b.sees(a) == StateLeft })
	// All that b's membership hangs on was signed by one who left.
	c := newBox(t, "c")
	c.join(b)
	a.join(b)
	allLive(t, a, b, c)
	d := newBox(t, "d")
	d.join(a)
	allLive(t, a, b, c, d)
}

func TestLastAdminStays(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	if _, err := b.mesh.Join(context.Background(), a.token(TokenOptions{Role: RoleMember}), false); err != nil {
		t.Fatal(err)
	}
	allLive(t, a, b)
	if err := a.mesh.Leave(context.Background()); !errors.Is(err, errLastAdmin) {
		t.Errorf("got %v", err)
	}
	if err := b.mesh.Leave(context.Background()); err != nil {
		t.Error(err)
	}
	eventually(t, "a knows", func() bool { return a.sees(b) == StateLeft })
	if err := a.mesh.Leave(context.Background()); err != nil {
		t.Errorf("the only box may leave: %v", err)
	}
}

func TestBannedBoxIsShutOut(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	open := make(chan Stream, 2)
	a.mesh.Handle(ProtocolInfer, func(s Stream) {
		io.ReadFull(s, make([]byte, 1))
		open <- s
	})
	b.join(a)
	c.join(b) // c's record is signed by the one who will be banned
	allLive(t, a, b, c)
	relay, err := b.mesh.Open(context.Background(), a.id(), ProtocolInfer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := relay.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	held := <-open

	if err := a.mesh.Ban(context.Background(), b.id(), "lost laptop"); err != nil {
		t.Fatal(err)
	}
	// A relay in progress ends, on both sides.
	held.SetReadDeadline(time.Now().Add(patience))
	if _, err := held.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the relay goes on: %v", err)
	}
	eventually(t, "c knows", func() bool { return c.mesh.view.Load().roster.standing(b.peer()) == banned })
	allLive(t, a, c)

	// The banned box is told, and says so itself.
	eventually(t, "b knows", func() bool { _, out := b.mesh.Banned(); return out })
	if ban, _ := b.mesh.Banned(); ban.By != a.id() || ban.Reason != "lost laptop" || ban.At.IsZero() {
		t.Errorf("b says %+v", ban)
	}
	if err := b.mesh.Serving(); err == nil || !strings.Contains(err.Error(), "lost laptop") {
		t.Errorf("b serves: %v", err)
	}
	if nodes := b.mesh.Nodes(); len(nodes) != 3 || nodes[0].State != StateSelf {
		t.Errorf("b lists %+v", nodes)
	}
	if _, err := b.mesh.Open(context.Background(), a.id(), ProtocolInfer); !errors.Is(err, ErrNotMember) {
		t.Errorf("b opens a stream: %v", err)
	}
	select {
	case <-open:
		t.Error("the handler saw a stream of a banned box")
	default:
	}
	// It started again with its old state, and knows it at once.
	b.kill()
	b.start()
	if _, out := b.mesh.Banned(); !out {
		t.Error("b forgot that it was banned")
	}
	a.put("secret", "x")
	eventually(t, "c has the row", func() bool { return c.get("secret") == "x" })
	if b.get("secret") != "" {
		t.Error("b reads what was written after its ban")
	}
	// With a good token it is told why, and stays out.
	_, err = b.mesh.Join(context.Background(), a.token(TokenOptions{}), false)
	if e := wantKind(t, err, token.Banned); e.Detail != "lost laptop" {
		t.Errorf("reason %q", e.Detail)
	}
	// Across a restart of those who banned it.
	a.kill()
	a.start()
	if a.mesh.view.Load().roster.standing(b.peer()) != banned || !a.mesh.view.Load().roster.active(c.peer()) {
		t.Error("the ban or the re-signed record was forgotten")
	}
}

func TestBanRefusals(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	ctx := context.Background()
	if err := a.mesh.Ban(ctx, a.id(), ""); err == nil {
		t.Error("a box banned itself")
	}
	if err := a.mesh.Unban(ctx, b.id()); err == nil {
		t.Error("unbanned one who is not banned")
	}
	if err := a.mesh.Promote(ctx, b.id()); err == nil {
		t.Error("promoted an admin")
	}
	if err := a.mesh.Ban(ctx, newBox(t, "x").id(), ""); !errors.Is(err, ErrNotMember) {
		t.Errorf("a stranger: %v", err)
	}
	if err := a.mesh.Ban(ctx, "nobody", ""); err == nil {
		t.Error("banned a peer that is none")
	}
	allLive(t, a, b)
}
