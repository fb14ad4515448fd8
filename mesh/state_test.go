package mesh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func TestStateSpreadsByGossip(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	// Only gossip is left: nobody pulls any more.
	for _, x := range []*box{a, b, c} {
		x.mesh.puller.hold()
	}
	eventually(t, "gossip has peers", func() bool {
		return len(a.mesh.gossip.topicPeers()) == 2 && len(b.mesh.gossip.topicPeers()) == 2
	})
	for i := range 20 {
		a.put(fmt.Sprintf("a%d", i), "1")
		b.put(fmt.Sprintf("b%d", i), "2")
	}
	for _, x := range []*box{a, b, c} {
		eventually(t, x.cfg.Name+" has everything", func() bool { return x.get("a19") == "1" && x.get("b19") == "2" && x.get("a0") == "1" })
	}
}

func TestStateSpreadsByPullAlone(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	a.store.OnLocalWrite(func([]crdt.Item) {}) // no gossip
	// More than a page, and one row that no gossip message could carry.
	for i := range 60 {
		a.put(fmt.Sprintf("k%d", i), strings.Repeat("x", 8<<10))
	}
	a.put("large", strings.Repeat("y", 100<<10))
	if err := b.mesh.pull(context.Background(), a.peer()); err != nil {
		t.Fatal(err)
	}
	if len(b.get("k59")) != 8<<10 || len(b.get("large")) != 100<<10 {
		t.Error("rows are missing after the pull")
	}
	cursor, err := b.store.Cursor(a.id())
	if err != nil || cursor.Seq != a.store.Sequence() || cursor.IndexID != a.store.IndexID() {
		t.Errorf("cursor %+v, log at %d (%v)", cursor, a.store.Sequence(), err)
	}
}

func TestLargeRowsTravelWithoutGossip(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	a.put("large", strings.Repeat("y", 100<<10))
	if err := a.mesh.Offer(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(b.get("large")) != 100<<10 {
		t.Error("not there after the offer")
	}
}

func TestOfferIsOnAnotherDiskWhenItReturns(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	if err := a.mesh.Offer(context.Background()); err != nil {
		t.Errorf("with nobody to offer to: %v", err)
	}
	b.join(a)
	allLive(t, a, b)
	a.store.OnLocalWrite(func([]crdt.Item) {}) // gossip must not do the work
	for i := range 10 {
		k := fmt.Sprintf("k%d", i)
		a.put(k, "1")
		if err := a.mesh.Offer(context.Background()); err != nil {
			t.Fatal(err)
		}
		if b.get(k) != "1" {
			t.Fatal("acknowledged before it was there")
		}
	}
}

func TestBoxThatWasAwayCatchesUp(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	b.kill()
	a.put("meanwhile", "1")
	if err := a.mesh.Offer(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.kill() // the writer is gone too when b comes back
	if c.get("meanwhile") != "1" {
		t.Fatal("c does not have what was offered")
	}
	b.start()
	eventually(t, "b has it from c", func() bool { return b.get("meanwhile") == "1" })
}

func TestKilledBoxDiesAndReturns(t *testing.T) {
	t.Parallel()
	clock := &testClock{}
	a := newBox(t, "a", func(c *Config) { c.Now = clock.now })
	b := newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	b.kill()
	// Time runs faster, yet not so much that the box believes it has slept.
	faster := func(state State) func() bool {
		return func() bool {
			clock.move(15 * time.Millisecond)
			return a.sees(b) == state
		}
	}
	eventually(t, "a suspects b", faster(StateSuspect))
	eventually(t, "a calls b dead", faster(StateDead))
	b.start()
	allLive(t, a, b)
}

func TestWallClockKillsNobody(t *testing.T) {
	t.Parallel()
	fast := &testClock{offset: 48 * time.Hour}
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	b.kill()
	b.cfg.Now = fast.now
	b.start()
	allLive(t, a, b)
	// Live may still mean the former life; the skew is of the new one.
	eventually(t, "a shows the skew", func() bool {
		for _, n := range a.mesh.Nodes() {
			if n.ID == b.id() {
				return n.State == StateLive && n.Skew > 47*time.Hour && n.Skew < 49*time.Hour
			}
		}
		return false
	})
}

func TestCellOfAnotherWriterIsNoGossip(t *testing.T) {
	t.Parallel()
	items := []crdt.Item{{Key: crdt.NewKey("n", "k"), Row: crdt.Row{Length: 1, Cells: map[string]crdt.Cell{
		"mine": {By: 7}, "yours": {By: 8},
	}}}}
	if writtenBy(items, 7) || writtenBy(items, 8) {
		t.Error("a cell of another writer is accepted")
	}
	delete(items[0].Row.Cells, "yours")
	if !writtenBy(items, 7) {
		t.Error("an author's own cell is refused")
	}
}

func TestStreamsCarryBothWaysAndReset(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	type end struct {
		peer string
		got  string
		err  error
	}
	ends, began := make(chan end, 4), make(chan bool, 4)
	b.mesh.Handle(ProtocolInfer, func(s Stream) {
		first := make([]byte, 1)
		_, err := io.ReadFull(s, first)
		began <- err == nil
		got, err := io.ReadAll(s)
		got = append(first, got...)
		if err == nil {
			_, err = s.Write([]byte("answer to " + string(got)))
		}
		if err != nil {
			s.Reset()
		} else {
			s.Close()
		}
		ends <- end{s.Peer(), string(got), err}
	})
	b.join(a)
	allLive(t, a, b)
	ctx := context.Background()

	s, err := a.mesh.Open(ctx, b.id(), ProtocolInfer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(s)
	if err != nil || string(answer) != "answer to question" {
		t.Fatalf("%q %v", answer, err)
	}
	s.Close()
	if e := <-ends; e.peer != a.id() || e.got != "question" || e.err != nil || s.Peer() != b.id() {
		t.Errorf("handler saw %+v", e)
	}

	// A reset in the middle ends the other side at once.
	if s, err = a.mesh.Open(ctx, b.id(), ProtocolInfer); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("half a que")); err != nil {
		t.Fatal(err)
	}
	<-began // of the first stream
	if !<-began {
		t.Fatal("the handler never saw the data")
	}
	s.Reset()
	select {
	case e := <-ends:
		if e.err == nil {
			t.Errorf("a reset reads like a clean end: %+v", e)
		}
	case <-time.After(patience):
		t.Fatal("the handler hangs after a reset")
	}
}

func TestReadDeadlineInTheHelloIsNotTheEnd(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	go_ := make(chan struct{})
	b.mesh.Handle("/llmgw/test/1", func(s Stream) {
		<-go_
		s.Write([]byte("late"))
		s.Close()
	})
	b.join(a)
	allLive(t, a, b)
	s, err := a.mesh.Open(context.Background(), b.id(), "/llmgw/test/1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	// Long enough for libp2p's own negotiation, in which a deadline is final.
	s.SetReadDeadline(time.Now().Add(time.Second))
	var timeout net.Error
	if _, err := s.Read(make([]byte, 8)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("got %v, want a timeout", err)
	}
	close(go_)
	s.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(s)
	if err != nil || string(got) != "late" {
		t.Errorf("%q %v", got, err)
	}
}

func TestOpenRefusals(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	ctx := context.Background()
	if _, err := a.mesh.Open(ctx, a.id(), ProtocolInfer); !errors.Is(err, ErrSelf) {
		t.Errorf("self: %v", err)
	}
	if _, err := a.mesh.Open(ctx, b.id(), ProtocolInfer); !errors.Is(err, ErrNotMember) {
		t.Errorf("stranger: %v", err)
	}
	if _, err := a.mesh.Open(ctx, "nobody", ProtocolInfer); err == nil {
		t.Error("opened to a peer that is none")
	}
	b.join(a)
	allLive(t, a, b)
	s, err := a.mesh.Open(ctx, b.id(), "/llmgw/unheard-of/1")
	if err == nil {
		s.SetReadDeadline(time.Now().Add(patience))
		if _, err = s.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a protocol that nobody speaks: %v", err)
		}
		s.Reset()
	}
}

func TestManyStreamsOfOnePeer(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.mesh.Handle(ProtocolInfer, func(s Stream) {
		io.Copy(s, s)
		s.Close()
	})
	b.join(a)
	allLive(t, a, b)
	var open []Stream
	for i := range 600 {
		s, err := a.mesh.Open(context.Background(), b.id(), ProtocolInfer)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		open = append(open, s)
	}
	for i, s := range open {
		s.Write([]byte("x"))
		s.CloseWrite()
		if got, err := io.ReadAll(s); err != nil || string(got) != "x" {
			t.Fatalf("stream %d: %q %v", i, got, err)
		}
		s.Close()
	}
}

func TestPortInUseIsNamed(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	b := newBox(t, "b")
	b.kill()
	b.cfg.Listen = a.addr()
	err := b.tryStart()
	var op *net.OpError
	if !errors.As(err, &op) || !strings.Contains(err.Error(), a.addr()) {
		t.Errorf("got %v, want a *net.OpError that names %s", err, a.addr())
	}
}

func TestBootNumberGrows(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at := time.Unix(1_000_000, 0)
	var last uint64
	for _, now := range []time.Time{at, at, at.Add(-time.Hour), at.Add(time.Hour), {}} {
		boot, err := nextBoot(s, now)
		if err != nil {
			t.Fatal(err)
		}
		if boot <= last {
			t.Errorf("boot %d after %d", boot, last)
		}
		last = boot
	}
}

func TestCrashWhileTheMeshIsReplacedIsCompleted(t *testing.T) {
	t.Parallel()
	b := newBox(t, "b")
	b.put("old", "1")
	r, err := randomRoot(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	body, blob, err := b.mesh.rootRecord(r, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := crdt.EncodeItems([]crdt.Item{recordItem(b.peer(), body, blob, 1)})
	if err != nil {
		t.Fatal(err)
	}
	// The crash comes right after the intent was written.
	if err := b.mesh.writeSaved(metaPending, savedMesh{Mesh: r.mesh[:], Rows: rows}); err != nil {
		t.Fatal(err)
	}
	b.kill()
	b.start()
	if b.mesh.MeshID() != r.mesh.String() || b.get("old") != "" || len(b.mesh.Nodes()) != 1 {
		t.Errorf("mesh %s with %+v, want %s", b.mesh.MeshID(), b.mesh.Nodes(), r.mesh)
	}
	b.kill()
	b.start()
	if b.mesh.MeshID() != r.mesh.String() {
		t.Error("it was replaced again")
	}
}
