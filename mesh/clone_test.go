package mesh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/discovery"
)

func TestBootLog(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	var b bootLog
	b.note(10, at(0))
	b.note(11, at(time.Minute)) // a restart
	b.note(10, at(time.Minute+bootOverlap-1))
	if twin := b.twin(11, at(2*time.Minute)); twin != 0 {
		t.Errorf("an echo of a restart is taken for a copy: %d", twin)
	}
	b.note(10, at(time.Minute+bootOverlap))
	for boot, want := range map[uint64]uint64{11: 10, 10: 11} {
		if twin := b.twin(boot, at(90*time.Second)); twin != want {
			t.Errorf("the twin of %d is %d, want %d", boot, twin, want)
		}
	}
	if twin := b.twin(11, at(time.Hour)); twin != 0 {
		t.Errorf("a copy that is gone is still reported: %d", twin)
	}
}

// cloneOf starts a copy of b's state directory as it is on disk, elsewhere.
func cloneOf(t *testing.T, b *box) *box {
	t.Helper()
	b.kill()
	c := &box{t: t, dir: t.TempDir(), cfg: b.cfg}
	c.cfg.Listen, c.cfg.Log = freePort(t), testLog(t, b.cfg.Name+" copy")
	if err := os.CopyFS(c.dir, os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	b.start()
	c.start()
	t.Cleanup(c.kill)
	return c
}

func hasAlarm(b *box, kind AlarmKind) bool {
	for _, a := range b.mesh.Alarms() {
		if a.Kind == kind && a.Text != "" && a.Fix != "" {
			return true
		}
	}
	return false
}

func TestCloneIsFoundByTheOthersAndRotates(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	copied := cloneOf(t, b)
	eventually(t, "all say so", func() bool {
		return hasAlarm(a, AlarmClone) && hasAlarm(b, AlarmClone) && hasAlarm(copied, AlarmClone)
	})
	eventually(t, "the later one stops", func() bool { return copied.mesh.Serving() != nil })
	if err := b.mesh.Serving(); err != nil {
		t.Errorf("the first one stopped too: %v", err)
	}
	if err := copied.mesh.Serving(); !errors.Is(err, errNotServing) || !strings.Contains(err.Error(), "rotate") {
		t.Errorf("it says %v", err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	store := copied.store.ID()
	var r Rotation
	eventually(t, "it rotates", func() bool { r, err = copied.mesh.RotateIdentity(ctx, key); return err == nil })
	if !r.Admitted || r.Left || copied.store.ID() == store {
		t.Errorf("rotation %+v", r)
	}
	copied.kill()
	copied.cfg.Key, copied.cfg.Name = key, "b2"
	copied.start()
	if copied.id() != r.Peer || copied.mesh.Serving() != nil {
		t.Errorf("after the rotation: %s, %v", copied.id(), copied.mesh.Serving())
	}
	allLive(t, a, b, c, copied)
}

func TestCloneIsFoundByMDNS(t *testing.T) {
	t.Parallel()
	a := newBox(t, "a")
	copied := cloneOf(t, a)
	// What is announced is worth nothing until a handshake proves it.
	liar := seenBy(newBox(t, "other"))
	liar.Peer, liar.Boot = a.id(), 1
	a.mesh.sighted(context.Background(), liar)
	if hasAlarm(a, AlarmClone) {
		t.Error("an announcement alone raised the alarm")
	}
	a.mesh.sights.mu.Lock()
	clear(a.mesh.sights.tried) // as if time had passed
	a.mesh.sights.mu.Unlock()
	a.mesh.sighted(context.Background(), seenBy(copied))
	copied.mesh.sighted(context.Background(), seenBy(a))
	if !hasAlarm(a, AlarmClone) || !hasAlarm(copied, AlarmClone) {
		t.Errorf("a: %+v, copy: %+v", a.mesh.Alarms(), copied.mesh.Alarms())
	}
	if a.mesh.Serving() != nil || copied.mesh.Serving() == nil {
		t.Errorf("a: %v, copy: %v", a.mesh.Serving(), copied.mesh.Serving())
	}
}

func TestOneMemberAloneStopsNobody(t *testing.T) {
	t.Parallel()
	a, b, c := newBox(t, "a"), newBox(t, "b"), newBox(t, "c")
	b.join(a)
	c.join(a)
	allLive(t, a, b, c)
	a.mesh.clones.claimed(b.peer(), 1, "b lies")
	if a.mesh.Serving() != nil || !hasAlarm(a, AlarmClone) {
		t.Errorf("one claim: %v, %+v", a.mesh.Serving(), a.mesh.Alarms())
	}
	a.mesh.clones.claimed(c.peer(), 1, "c says so too")
	if a.mesh.Serving() == nil {
		t.Error("two claims did nothing")
	}
	served := make(chan struct{}, 1)
	a.mesh.Handle(ProtocolInfer, func(s Stream) { served <- struct{}{}; s.Reset() })
	s, err := b.mesh.Open(context.Background(), a.id(), ProtocolInfer)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	s.Write([]byte("x"))
	s.SetReadDeadline(time.Now().Add(patience))
	if _, err := s.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || len(served) > 0 {
		t.Errorf("a box that does not serve answered: %v", err)
	}
}

func TestIdentityRotates(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	old := b.peer()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.mesh.RotateIdentity(context.Background(), b.cfg.Key); err == nil {
		t.Error("rotated to the same key")
	}
	r, err := b.mesh.RotateIdentity(context.Background(), key)
	if err != nil || !r.Admitted || !r.Left {
		t.Fatalf("%+v %v", r, err)
	}
	b.kill()
	b.cfg.Key = key
	b.start()
	allLive(t, a, b)
	eventually(t, "the old one left", func() bool { return a.mesh.view.Load().roster.standing(old) == departed })
	c := newBox(t, "c")
	c.join(b)
	allLive(t, a, b, c)
}

func TestAlarmsOfClockAndOtherMesh(t *testing.T) {
	t.Parallel()
	clock := &testClock{offset: -10 * time.Minute}
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	b.kill()
	b.cfg.Now = clock.now
	b.start()
	allLive(t, a, b)
	eventually(t, "both name the clock", func() bool { return hasAlarm(a, AlarmClock) && hasAlarm(b, AlarmClock) })
	// A box of another mesh that has content, and one that only waits to be joined.
	c, d, fresh := newBox(t, "c"), newBox(t, "d"), newBox(t, "fresh")
	d.join(c)
	a.mesh.sights.mu.Lock()
	a.mesh.sights.sources["test"] = []discovery.Group{seenBy(fresh)}
	a.mesh.sights.mu.Unlock()
	if hasAlarm(a, AlarmTwoMeshes) {
		t.Error("a fresh box is an alarm")
	}
	a.mesh.sights.mu.Lock()
	a.mesh.sights.sources["test"] = []discovery.Group{seenBy(c), seenBy(b)}
	a.mesh.sights.mu.Unlock()
	if !hasAlarm(a, AlarmTwoMeshes) {
		t.Errorf("alarms %+v", a.mesh.Alarms())
	}
}
