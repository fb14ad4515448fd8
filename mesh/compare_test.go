package mesh

import (
	"context"
	"fmt"
	"testing"

	"llmgw/crdt/store"
)

func TestDigestFindsAndRepairsWhatPullsMissed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b := newBox(t, "a"), newBox(t, "b")
	b.join(a)
	allLive(t, a, b)
	a.put("shared", "1")
	if n, err := b.mesh.compare(ctx, a.peer()); err != nil || n != 0 || hasAlarm(b, AlarmDigest) {
		t.Fatalf("equal stores: %d repaired, %v, %+v", n, err, b.mesh.Alarms())
	}
	// b forgets that it ever missed these: its cursor says that it has them.
	b.kill()
	const lost = 30
	for i := range lost {
		a.put(fmt.Sprint("lost ", i), "1")
	}
	s, err := store.Open(b.dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetCursor(a.id(), store.Cursor{IndexID: a.store.IndexID(), Seq: a.store.Sequence()}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b.start()
	allLive(t, a, b)
	n, err := b.mesh.compare(ctx, a.peer())
	if err != nil || n < lost {
		t.Fatalf("%d rows repaired, %v", n, err)
	}
	for i := range lost {
		if b.get(fmt.Sprint("lost ", i)) != "1" {
			t.Fatalf("row %d is still missing", i)
		}
	}
	if !hasAlarm(b, AlarmDigest) {
		t.Errorf("alarms %+v", b.mesh.Alarms())
	}
	if n, err := b.mesh.compare(ctx, a.peer()); err != nil || n != 0 {
		t.Errorf("after the repair: %d, %v", n, err)
	}
}

func TestDigestKeysDifferByMesh(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	if a.mesh.view.Load().mesh.digestKey() == b.mesh.view.Load().mesh.digestKey() {
		t.Error("two meshes have one key")
	}
	b.join(a)
	a.put("x", "1")
	eventually(t, "one mesh, one digest", func() bool { return a.store.Digest() == b.store.Digest() })
}
