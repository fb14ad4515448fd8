package store_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func backup(t *testing.T, s *store.Store) []byte {
	t.Helper()
	var archive bytes.Buffer
	must(t, s.Backup(&archive))
	return archive.Bytes()
}

func TestRestoreBringsEverythingBackUnderANewIdentity(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	set(t, s, crdt.NewKey("models", "m"), "a", "v")
	update(t, s, func(tx *store.Tx) error { return tx.Delete(crdt.NewKey("models", "gone")) })
	must(t, s.SetMeta("boot", []byte("7")))
	archive := backup(t, s)
	dir := filepath.Join(t.TempDir(), "deep", "state")
	must(t, store.Restore(dir, bytes.NewReader(archive), store.Options{Now: func() time.Time { return start }}))
	copied := open(t, dir)
	meta, _, err := copied.Meta("boot")
	if err != nil || string(meta) != "7" || value(t, copied, crdt.NewKey("models", "m"), "a") != "v" || copied.Sequence() != 1 {
		t.Errorf("the backup lacks something: meta %q, %v", meta, err)
	}
	if copied.ID() == s.ID() || copied.IndexID() == s.IndexID() {
		t.Error("the restored store goes on under the identity of the other")
	}
	if !copied.Overdue(0) {
		t.Error("a restored store would merge what is deleted meanwhile")
	}
	set(t, copied, crdt.NewKey("models", "m"), "a", "new")
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".restore-*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := store.Restore(dir, bytes.NewReader(archive), store.Options{}); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("restored over a store: %v", err)
	}
}

func TestRestoreTakesAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, store.Restore(dir, bytes.NewReader(backup(t, newClocked(t).Store)), store.Options{}))
	open(t, dir)
}

func TestRestoreRefusesADamagedBackup(t *testing.T) {
	t.Parallel()
	s := newClocked(t)
	set(t, s.Store, row("m"), "a", "v")
	archive := backup(t, s.Store)
	flipped := bytes.Clone(archive)
	flipped[len(flipped)/2] ^= 1
	for name, data := range map[string][]byte{
		"nothing":          nil,
		"something else":   []byte("PK\x03\x04 this is no backup at all"),
		"only the heading": archive[:21],
		"cut short":        archive[:len(archive)-40],
		"without its sum":  archive[:len(archive)-32],
		"one bit changed":  flipped,
		"more at the end":  append(bytes.Clone(archive), 0),
	} {
		dir := filepath.Join(t.TempDir(), "state")
		if err := store.Restore(dir, bytes.NewReader(data), store.Options{}); !errors.Is(err, store.ErrBadBackup) {
			t.Errorf("%s: %v", name, err)
		}
		if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 0 {
			t.Errorf("%s: left behind %v, %v", name, entries, err)
		}
	}
}

func TestBackupReportsWhyItFailed(t *testing.T) {
	s := newClocked(t)
	set(t, s.Store, row("m"), "a", "v")
	full := errors.New("disk full")
	if err := s.Backup(failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("backup to a full disk: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
