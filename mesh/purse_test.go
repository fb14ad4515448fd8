package mesh

import (
	"context"
	"runtime"
	"testing"

	"llmgw/crdt"
)

// TestRightsOnTheirWayToTheDiskAreNotMissed: what is put back lies neither in the purse nor
// on the disk for a moment; who asks then waits for it.
func TestRightsOnTheirWayToTheDiskAreNotMissed(t *testing.T) {
	t.Parallel()
	b := newBox(t, "b")
	e := b.mesh.Escrow()
	a := crdt.Account{Budget: "key:a:micros", Period: "2026-11"}
	ctx, stop := context.WithCancel(context.Background())
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		for ctx.Err() == nil {
			e.sweep(ctx, a)
		}
	}()
	defer func() { stop(); <-swept }()
	for i := range 200 {
		taken, err := e.Take(ctx, a, 100, 90)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := taken.Settle(0); err != nil {
			t.Fatal(err)
		}
		for e.looseOf(a) >= 90 {
			runtime.Gosched() // it is about to go back
		}
	}
}
