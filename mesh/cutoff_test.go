package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// cutStream is a real stream that breaks once so many bytes went out.
type cutStream struct {
	network.Stream
	left *atomic.Int64
}

var errCut = errors.New("the cable was pulled")

func (c *cutStream) Write(b []byte) (int, error) {
	if c.left.Add(-int64(len(b))) < 0 {
		c.Stream.Reset()
		return 0, errCut
	}
	return c.Stream.Write(b)
}

// breaksOff has b break its answers off after so many bytes; below zero it never does.
func (b *box) breaksOff() (after *atomic.Int64) {
	after = &atomic.Int64{}
	after.Store(1 << 62)
	b.mesh.handle(protocolSync, members, func(s *stream) {
		s.Stream = &cutStream{Stream: s.Stream, left: after}
		b.mesh.serveSync(s)
	})
	return after
}

// missed lists the rows of b that a has not, although its cursor says so.
func missed(t *testing.T, a, b *box) (keys []string) {
	t.Helper()
	cursor, err := a.store.Cursor(b.id())
	if err != nil {
		t.Fatal(err)
	}
	if cursor.IndexID != b.store.IndexID() {
		return nil
	}
	ahead := map[crdt.Key]bool{}
	for seq, more := cursor.Seq, true; more; {
		page, err := b.store.Since(seq, pageBytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			ahead[item.Key] = true
		}
		seq, more = page.Next, page.More
	}
	rows, err := b.store.List("things")
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range rows {
		if _, ok, err := a.store.Get(item.Key); err != nil {
			t.Fatal(err)
		} else if !ok && !ahead[item.Key] {
			keys = append(keys, item.Key.String())
		}
	}
	return keys
}

// TestCursorsSkipNoRow: pulls that break off anywhere go on where they ended, and no row
// is counted as there that is not.
func TestCursorsSkipNoRow(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	a.kill() // so that no gossip brings the rows
	const rows, atOnce = 1500, 500
	for from := 0; from < rows; from += atOnce {
		_, err := b.store.Update(func(tx *store.Tx) error {
			var errs []error
			for i := range atOnce {
				errs = append(errs, tx.Set(crdt.NewKey("things", fmt.Sprint(from+i)), "v", bytes.Repeat([]byte{byte(i + 1)}, 1000)))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	left := b.breaksOff()
	left.Store(0)
	a.start()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	broken := 0
	for range 12 {
		left.Store(rand.Int64N(400 << 10))
		if err := a.mesh.pull(ctx, b.peer()); err != nil {
			broken++
		}
		if keys := missed(t, a, b); len(keys) > 0 {
			t.Fatalf("%d rows are skipped, the first %s", len(keys), keys[0])
		}
	}
	if broken < 3 {
		t.Fatalf("only %d pulls broke off", broken)
	}
	left.Store(1 << 62)
	eventually(t, "a pull ends", func() bool { return a.mesh.pull(ctx, b.peer()) == nil })
	for i := range rows {
		if a.get(fmt.Sprint(i)) == "" {
			t.Fatalf("row %d is missing", i)
		}
	}
	if a.blames(b) || b.blames(a) {
		t.Errorf("somebody is blamed for the cable: %+v, %+v", a.mesh.Alarms(), b.mesh.Alarms())
	}
}

// TestCountsSurviveACut: those about spending, which come in pages of their own.
func TestCountsSurviveACut(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	a.kill()
	const accounts = 3000
	var part crdt.Money
	for i := range accounts {
		part.Spend = append(part.Spend, crdt.SpendEntry{
			Account: crdt.Account{Budget: fmt.Sprintf("key:%050d", i), Period: "2026-11"}, By: crdt.SpendID{Store: 77, Generation: 1}, Micros: uint64(i + 1),
		})
	}
	if _, err := b.store.MergeMoney(part); err != nil {
		t.Fatal(err)
	}
	left := b.breaksOff()
	left.Store(0)
	a.start()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 8 {
		left.Store(int64(i) * 60 << 10)
		a.mesh.pull(ctx, b.peer())
	}
	left.Store(1 << 62)
	eventually(t, "all counts are there", func() bool {
		if a.mesh.pull(ctx, b.peer()) != nil {
			return false
		}
		for _, e := range part.Spend {
			if a.store.Spent(e.Account) != e.Micros {
				return false
			}
		}
		return true
	})
}

// TestLargeRowsAreRepairedWhole: one that does not fit into a frame, of which a comparison
// fetches only the beginning.
func TestLargeRowsAreRepairedWhole(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	b.kill()
	const cells = 8
	key := crdt.NewKey("things", "large")
	for i := range cells {
		_, err := a.store.Update(func(tx *store.Tx) error {
			return tx.Set(key, fmt.Sprint("cell ", i), bytes.Repeat([]byte{byte(i)}, 100<<10))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := store.Open(b.dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SetCursor(a.id(), store.Cursor{IndexID: a.store.IndexID(), Seq: a.store.Sequence()}), s.Close()); err != nil {
		t.Fatal(err)
	}
	b.start()
	allLive(t, a, b)
	buckets, err := b.mesh.differing(t.Context(), a.peer())
	if err != nil || len(buckets) == 0 {
		t.Fatalf("differing buckets %v, %v", buckets, err)
	}
	if n, err := b.mesh.repair(t.Context(), a.peer(), buckets); err != nil || n == 0 {
		t.Fatalf("%d rows, %v", n, err)
	}
	row, _, err := b.store.Get(key)
	if err != nil || len(row.Cells) != cells {
		t.Errorf("%d of %d cells are there, %v", len(row.Cells), cells, err)
	}
	if left, err := b.mesh.differing(t.Context(), a.peer()); err != nil || len(left) > 0 {
		t.Errorf("still differing: %v, %v", left, err)
	}
}

// TestCursorsOfAReplacedMesh are not kept, nor those of rows that were replaced.
func TestCursorsOfAReplacedMesh(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	s, err := b.mesh.open(t.Context(), a.peer(), protocolSync)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	far := store.Cursor{IndexID: a.store.IndexID(), Seq: 1 << 40}
	v, epoch := b.mesh.view.Load(), b.mesh.absence.epoch.Load()
	later := *v
	later.generation++
	for name, p := range map[string]*pulling{
		"of the mesh before": {m: b.mesh, s: s, view: &later, epoch: epoch},
		"of the rows before": {m: b.mesh, s: s, view: v, epoch: epoch + 1},
	} {
		if err := b.mesh.keepCursor(p, far); !errors.Is(err, errMeshReplaced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c, err := b.store.Cursor(a.id()); err != nil || c == far {
		t.Errorf("cursor %+v, %v", c, err)
	}
}
