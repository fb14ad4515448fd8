package mesh

import (
	"context"
	"testing"
)

func TestPulledIsOfTheMeshOfNow(t *testing.T) {
	t.Parallel()
	a, b := newBox(t, "a"), newBox(t, "b")
	if a.mesh.Pulled() || b.mesh.Pulled() {
		t.Error("a box alone says that it has another's state")
	}
	b.join(a)
	allLive(t, a, b)
	eventually(t, "both have pulled", func() bool { return a.mesh.Pulled() && b.mesh.Pulled() })
	if err := b.mesh.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	if b.mesh.Pulled() {
		t.Error("after leaving, the state of the former mesh still counts")
	}
}
