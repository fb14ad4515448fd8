package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// The model: three stores write, gossip over a network that drops, doubles and reorders, pull from each other in small
// pages, crash in between, have their clocks stepped and their disks replaced. Once the network is quiet
// and everybody has pulled from everybody, all must hold the same bytes, and nothing acknowledged may be missing.
func TestReplicasConverge(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, seed)
			for range 80 {
				m.step()
			}
			m.settle()
			m.check()
		})
	}
}

// box is one node: its store, its clock and the messages that are under way to it.
type box struct {
	name   string
	dir    string
	store  *store.Store
	offset time.Duration
	inbox  [][]byte
}

type model struct {
	t     *testing.T
	rand  *rand.Rand
	wall  time.Time
	boxes []*box
	// acked is the join of all that Update acknowledged; lost says that a wiped disk may have taken part of it.
	acked  map[crdt.Key]crdt.Row
	lost   bool
	stamps map[string]string
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), wall: start,
		acked: map[crdt.Key]crdt.Row{}, stamps: map[string]string{},
	}
	for i := range 3 {
		b := &box{name: fmt.Sprint("box", i), dir: t.TempDir()}
		m.boxes = append(m.boxes, b)
		m.boot(b)
	}
	t.Cleanup(func() {
		for _, b := range m.boxes {
			closeStore(t, b.store)
		}
	})
	return m
}

func (m *model) boot(b *box) {
	s, err := store.Open(b.dir, store.Options{Now: func() time.Time { return m.wall.Add(b.offset) }})
	if err != nil {
		m.t.Fatalf("open %s: %v", b.name, err)
	}
	b.store = s
	s.OnLocalWrite(func(items []crdt.Item) { m.gossip(b, items) })
}

func (m *model) box() *box { return m.boxes[m.rand.IntN(len(m.boxes))] }

func (m *model) step() {
	m.wall = m.wall.Add(time.Duration(m.rand.IntN(2000)) * time.Millisecond)
	b := m.box()
	switch n := m.rand.IntN(100); {
	case n < 45:
		m.write(b)
	case n < 70:
		m.deliver(b)
	case n < 88:
		m.pullPage(b, m.box(), m.rand.IntN(4) == 0)
	case n < 92:
		m.crash(b)
	case n < 98:
		b.offset = time.Duration(m.rand.IntN(600)-300) * time.Second
	case m.rand.IntN(3) == 0:
		m.wipe(b)
	}
}

// write makes one update of up to three changes.
func (m *model) write(b *box) {
	_, err := b.store.Update(func(tx *store.Tx) error {
		var errs []error
		for range 1 + m.rand.IntN(3) {
			key := crdt.NewKey("models", fmt.Sprint("m", m.rand.IntN(4)))
			cell := fmt.Sprint("c", m.rand.IntN(3))
			switch n := m.rand.IntN(10); {
			case n < 6:
				errs = append(errs, tx.Set(key, cell, fmt.Append(nil, m.rand.IntN(1000))))
			case n < 7:
				errs = append(errs, tx.SetAt(key, "epoch", fmt.Append(nil, m.rand.IntN(3)), crdt.HLC(m.rand.IntN(5))))
			case n < 8:
				errs = append(errs, tx.Remove(key, cell))
			default:
				errs = append(errs, tx.Delete(key))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		m.t.Fatalf("write on %s: %v", b.name, err)
	}
}

// gossip notes what was acknowledged and sends it to some of the others, to some of them twice.
func (m *model) gossip(from *box, items []crdt.Item) {
	for _, i := range items {
		m.acked[i.Key] = crdt.Merge(m.acked[i.Key], i.Row)
		m.checkStamps(i)
	}
	data, err := crdt.EncodeItems(items)
	if err != nil {
		m.t.Fatalf("encode: %v", err)
	}
	for _, to := range m.boxes {
		for range m.rand.IntN(3) {
			if to != from {
				to.inbox = append(to.inbox, data)
			}
		}
	}
}

// checkStamps: a writer never gives the same stamp to two values of one cell, crash or not.
func (m *model) checkStamps(i crdt.Item) {
	for name, c := range i.Row.Cells {
		if name == "epoch" {
			continue
		}
		at := fmt.Sprint(i.Key, i.Row.Length, name, c.By, c.At)
		if had, ok := m.stamps[at]; ok && had != string(c.Value) {
			m.t.Fatalf("stamp %s was given to %q and %q", at, had, c.Value)
		}
		m.stamps[at] = string(c.Value)
	}
}

// deliver hands one message over, whichever; it stays in the network now and then.
func (m *model) deliver(b *box) {
	if len(b.inbox) == 0 {
		return
	}
	n := m.rand.IntN(len(b.inbox))
	items, err := crdt.DecodeItems(b.inbox[n])
	if err != nil {
		m.t.Fatalf("decode: %v", err)
	}
	merge(m.t, b.store, items...)
	if m.rand.IntN(4) > 0 {
		b.inbox = append(b.inbox[:n], b.inbox[n+1:]...)
	}
}

// pullPage is one step of the pull as mesh does it, and may crash between taking the rows and noting the cursor.
func (m *model) pullPage(b, from *box, crash bool) (more bool) {
	if b == from {
		return false
	}
	cursor, err := b.store.Cursor(from.name)
	must(m.t, err)
	if cursor.IndexID != from.store.IndexID() {
		cursor = store.Cursor{IndexID: from.store.IndexID()}
	}
	page, err := from.store.Since(cursor.Seq, 100)
	must(m.t, err)
	merge(m.t, b.store, page.Items...)
	if crash {
		m.crash(b)
		return true
	}
	must(m.t, b.store.SetCursor(from.name, store.Cursor{IndexID: page.IndexID, Seq: page.Next}))
	return page.More
}

// crash replaces the store by what a killed process would have left on disk.
func (m *model) crash(b *box) {
	dir := crashCopy(m.t, b.dir)
	closeStore(m.t, b.store)
	b.dir = dir
	m.boot(b)
}

// wipe replaces the disk.
func (m *model) wipe(b *box) {
	closeStore(m.t, b.store)
	b.dir = m.t.TempDir()
	m.lost = true
	m.boot(b)
}

// settle lets everybody pull from everybody until nobody learns anything. The inboxes are dropped: gossip is
// only a hint.
func (m *model) settle() {
	for range 2 {
		for _, b := range m.boxes {
			for _, from := range m.boxes {
				for m.pullPage(b, from, false) {
				}
			}
		}
	}
}

func (m *model) check() {
	want := all(m.t, m.boxes[0].store)
	for _, b := range m.boxes[1:] {
		if diff := cmp.Diff(want, all(m.t, b.store)); diff != "" {
			m.t.Errorf("%s differs from %s: %s", b.name, m.boxes[0].name, diff)
		}
	}
	if m.lost {
		return
	}
	acked := map[crdt.Key]string{}
	for key, row := range m.acked {
		data, err := crdt.EncodeRow(row)
		must(m.t, err)
		acked[key] = string(data)
	}
	if diff := cmp.Diff(acked, want); diff != "" {
		m.t.Errorf("not what was acknowledged: %s", diff)
	}
}
