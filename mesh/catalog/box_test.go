package catalog

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// tb is what the helpers need of a test, be it one of rapid's.
type tb interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// box is one node's catalog on a store of its own.
type box struct {
	*Catalog
	store *store.Store
}

func newBox(t testing.TB) box {
	t.Helper()
	return boxAt(t, t.TempDir(), nil)
}

// quickBox keeps its store in memory: for tests that write hundreds of rows.
func quickBox(t testing.TB) box {
	t.Helper()
	return boxAt(t, "", store.NewDisk())
}

func boxAt(t testing.TB, dir string, disk *store.Disk) box {
	t.Helper()
	s, err := store.Open(dir, store.Options{Now: time.Now, Entropy: rand.Reader, Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return box{New(s), s}
}

// closedBox is a catalog whose store takes and gives nothing any more.
func closedBox(t testing.TB) *Catalog {
	t.Helper()
	s, err := store.Open("", store.Options{Now: time.Now, Entropy: rand.Reader, Disk: store.NewDisk(), Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	must(t, s.Close())
	return New(s)
}

// exchange merges all rows both ways.
func exchange(t tb, a, b box) {
	t.Helper()
	for _, way := range [][2]box{{a, b}, {b, a}} {
		page, err := way[0].store.Since(0, 1<<20)
		must(t, err)
		_, err = way[1].store.Merge(page.Items)
		must(t, err)
	}
}

// send merges one row of a box into another and says whether that changed it.
func send(t tb, from, to box, key crdt.Key) bool {
	t.Helper()
	row, _, err := from.store.Get(key)
	must(t, err)
	changed, err := to.store.Merge([]crdt.Item{{Key: key, Row: row}})
	must(t, err)
	return len(changed) > 0
}

// row reads one row as it stands.
func (b box) row(t tb, key crdt.Key) crdt.Row {
	t.Helper()
	row, _, err := b.store.Get(key)
	must(t, err)
	return row
}

// put writes cells as they are, like a node of another version or a faulty one.
func (b box) put(t tb, key crdt.Key, cells map[string][]byte) {
	t.Helper()
	_, err := b.store.Update(func(tx *store.Tx) error {
		for _, cell := range slices.Sorted(maps.Keys(cells)) {
			if err := tx.Set(key, cell, cells[cell]); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, err)
}

// enc is the encoding of a cell's value.
func enc(t tb, v any) []byte {
	t.Helper()
	b, err := encode(v)
	must(t, err)
	return b
}

// rowOf is a present row with these values in its cells.
func rowOf(t tb, cells map[string]any) crdt.Row {
	t.Helper()
	row := crdt.Row{Length: 1, Cells: map[string]crdt.Cell{}}
	for cell, v := range cells {
		row.Cells[cell] = crdt.Cell{At: 1, By: 1, Value: enc(t, v)}
	}
	return row
}

func must(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal compares documents, in which an empty list or map is none.
func equal(t tb, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: -want +got\n%s", what, diff)
	}
}

// refused wants an error of type E with this text, however it is wrapped.
func refused[E error](t tb, err error, want string) {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Errorf("error is %v, want a %T that says %q", err, e, want)
		return
	}
	if got := e.Error(); got != want {
		t.Errorf("the error says\n%q, want\n%q", got, want)
	}
}

// notFound wants ErrNotFound.
func notFound(t tb, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("%s: error is %v, want %v", what, err, ErrNotFound)
	}
}

func asJSON(t tb, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}
