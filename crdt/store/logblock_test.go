package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// logIsBounded fails when more of the log is stale than not, or when something in it is wrong.
func logIsBounded(t interface{ Fatalf(string, ...any) }, s *store.Store, when string) {
	r, err := s.Verify()
	if err != nil || len(r.Problems) > 0 {
		t.Fatalf("%s: %v, %v", when, r.Problems, err)
	}
	if n := s.LogEntries(); n != r.LogEntries+r.StaleLog || r.LogEntries != r.Rows || n > 2*r.Rows {
		t.Fatalf("%s: %d log entries for %d rows, %d said to be stale and %d not", when, n, r.Rows, r.StaleLog, r.LogEntries)
	}
}

func TestACommitIsOneLogBlock(t *testing.T) {
	s := newClocked(t)
	for stamp := range crdt.HLC(3) {
		merge(t, s.Store, rowsOf(1000, 1<<40+stamp)...)
		if n := s.Count("g/"); n != 1 {
			t.Errorf("a page of 1000 rows, merged %d times, has %d log blocks", stamp+1, n)
		}
	}
	logIsBounded(t, s.Store, "in the end")
}

func TestLogBlocksAreOfLimitedSize(t *testing.T) {
	s := newClocked(t)
	var in []crdt.Item
	for i := range 300 {
		in = append(in, item(row(fmt.Sprint(strings.Repeat("k", 900), i)), "a", remote(1, 2, "v")))
	}
	merge(t, s.Store, in...)
	if n := s.Count("g/"); n < 4 || n > 6 {
		t.Errorf("270 KB of keys are in %d blocks", n)
	}
	for seq := range uint64(300) {
		page, err := s.Since(seq, 1)
		if err != nil || page.Next != seq+1 || len(page.Items) != 1 || page.Items[0].Key != in[seq].Key {
			t.Fatalf("after %d: next %d, %v", seq, page.Next, err)
		}
	}
}

// Rows that change over and over, alone or many at once, leave no more entries than there are rows.
func TestStaleLogEntriesAreBounded(t *testing.T) {
	s := newClocked(t)
	merge(t, s.Store, rowsOf(300, 1<<40)...)
	for i := range 3000 {
		update(t, s.Store, func(tx *store.Tx) error {
			return tx.Set(crdt.NewKey("models", fmt.Sprint(i%7)), "a", []byte(fmt.Sprint(i)))
		})
		if n := s.LogEntries(); n > 600 {
			t.Fatalf("300 rows have %d log entries after %d writes", n, i+1)
		}
	}
	for i := range 300 {
		one := item(crdt.NewKey("models", fmt.Sprint(i*i%300)), "b", remote(crdt.HLC(1<<40+i), 1<<60, "v"))
		merge(t, s.Store, one)
		logIsBounded(t, s.Store, fmt.Sprint("after merge ", i))
	}
	// Each of these makes half of what is left in every block stale.
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		in := rowsOf(300, crdt.HLC(2<<40+i))
		random.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		merge(t, s.Store, in[:150]...)
		logIsBounded(t, s.Store, fmt.Sprint("after page ", i))
	}
	if known, gone := s.LogBlocks(); known > 300 || gone > known/2 {
		t.Errorf("%d blocks are kept in mind, %d of which are gone", known, gone)
	}
}

// Without space nothing is tidied, and what is left is right all the same, as after a power cut that took the tidying; the next
// write that is taken tidies it, after a restart too.
func TestLogIsTidiedWhenThereIsSpaceAgain(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) { tidiedLater(t, restart) })
	}
}

func tidiedLater(t *testing.T, restart bool) {
	free := int64(1 << 40)
	dir, o := t.TempDir(), store.Options{Free: func(string) (int64, error) { return free, nil }}
	s := openWith(t, dir, o)
	merge(t, s, rowsOf(100, 1<<40)...)
	s.OnSync(func() { free = 0 })
	merge(t, s, rowsOf(90, 1<<41)...)
	r, err := s.Verify()
	if err != nil || len(r.Problems) != 0 || r.StaleLog != 90 {
		t.Errorf("on a full disk: %+v, %v", r, err)
	}
	if got := all(t, s); len(got) != 100 {
		t.Errorf("%d rows are told", len(got))
	}
	s.OnSync(func() { free = 1 << 40 })
	free = 1 << 40
	if restart {
		closeStore(t, s)
		s = openWith(t, dir, o)
	}
	set(t, s, row("other"), "a", "v")
	if r, err := s.Verify(); err != nil || r.StaleLog != 0 {
		t.Errorf("with space again: %+v, %v", r, err)
	}
}

// The numbers begin anew, in a log of which nothing is known yet.
func TestLogAfterAReset(t *testing.T) {
	s := newClocked(t)
	merge(t, s.Store, rowsOf(100, 1<<40)...)
	merge(t, s.Store, rowsOf(30, 1<<41)...)
	must(t, s.Reset())
	for i := range crdt.HLC(5) {
		merge(t, s.Store, rowsOf(int(120-20*i), 1<<40+i)...)
		logIsBounded(t, s.Store, "after a reset")
	}
}

// A row that was collected may leave stale entries; one that is missing for another reason is damage.
func TestLogTellsACollectedRowFromALostOne(t *testing.T) {
	s := newClocked(t)
	merge(t, s.Store, rowsOf(3, 1<<40)...)
	update(t, s.Store, func(tx *store.Tx) error { return tx.Delete(crdt.NewKey("models", "1")) })
	if got := collect(t, s.Store, nil); got.Stable != 1 {
		t.Fatalf("collected %+v", got)
	}
	logIsBounded(t, s.Store, "after collecting")
	if r, err := s.Verify(); err != nil || r.StaleLog != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := all(t, s.Store); len(got) != 2 {
		t.Errorf("%d rows are told", len(got))
	}
	set(t, s.Store, row("lost"), "a", "v")
	s.Poke("r/"+string(row("lost")), nil)
	if _, err := s.Since(0, 1000); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// A write that is too large is found out when its log is written, and changes nothing in it.
func TestLogOfAWriteThatFailed(t *testing.T) {
	s := newClocked(t)
	merge(t, s.Store, rowsOf(100, 1<<40)...)
	refused := errors.New("refused")
	_, err := s.Update(func(tx *store.Tx) error {
		return errors.Join(tx.Set(crdt.NewKey("models", "1"), "a", []byte("w")), refused)
	})
	if !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	_, err = s.Update(func(tx *store.Tx) error {
		for i := range 3000 {
			if err := tx.Set(crdt.NewKey("models", strings.Repeat("k", 500), fmt.Sprint(i)), "a", []byte("v")); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	logIsBounded(t, s.Store, "after failed writes")
	merge(t, s.Store, rowsOf(100, 1<<41)...)
	logIsBounded(t, s.Store, "after a write")
}

// Whatever happens to the rows, the log tells each once, it stays bounded, and a store that crashed finds what it had. A peer that
// pulls in small pages meanwhile has all in the end.
func TestLogUnderAnyHistory(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, peer := newClocked(t), newClocked(t)
		defer func() { closeStore(t, s.Store) }()
		defer closeStore(t, peer.Store)
		cursor, stamp := uint64(0), crdt.HLC(1<<40)
		pullSome := func(most int) {
			for more := true; more && most > 0; most-- {
				page, err := s.Since(cursor, 200)
				must(t, err)
				merge(t, peer.Store, page.Items...)
				cursor, more = page.Next, page.More
			}
		}
		for range rapid.IntRange(1, 15).Draw(r, "steps") {
			stamp++
			switch rapid.IntRange(0, 5).Draw(r, "step") {
			case 0:
				merge(t, s.Store, rowsOf(rapid.IntRange(1, 90).Draw(r, "rows"), stamp)...)
			case 1, 2:
				n := rapid.SliceOfN(rapid.IntRange(0, 99), 1, 40).Draw(r, "which")
				var in []crdt.Item
				for _, n := range n {
					in = append(in, item(crdt.NewKey("models", fmt.Sprint(n)), fmt.Sprint("c", len(in)%3), remote(stamp, 1<<60, "v")))
				}
				merge(t, s.Store, in...)
			case 3:
				update(t, s.Store, func(tx *store.Tx) error {
					return tx.Delete(crdt.NewKey("models", fmt.Sprint(rapid.IntRange(0, 99).Draw(r, "gone"))))
				})
			case 4:
				pullSome(100)
				must(t, s.AddUptime(time.Hour))
				collect(t, s.Store, map[string]store.Cursor{"peer": {IndexID: s.IndexID(), Seq: cursor}})
			case 5:
				pullSome(2)
				disk, err := s.disk.Copy()
				must(t, err)
				closeStore(t, s.Store)
				seq := s.Sequence()
				if s = openClocked(t, disk, s.wall); s.Sequence() != seq {
					r.Fatalf("sequence %d was %d", s.Sequence(), seq)
				}
			}
			logIsBounded(r, s.Store, "after a step")
		}
		pullSome(1000)
		if cursor != s.Sequence() {
			r.Fatalf("the cursor came to %d of %d", cursor, s.Sequence())
		}
		all(t, s.Store) // tells of a row that is there twice
		items, _ := pull(t, s.Store, 0, 1<<20)
		if missed := merge(t, peer.Store, items...); len(missed) > 0 {
			r.Fatalf("the peer missed %v", missed)
		}
	})
}
