package store_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

var start = time.UnixMilli(1_800_000_000_000)

// open opens a store whose clock stands still.
func open(t *testing.T, dir string) *store.Store {
	t.Helper()
	return openWith(t, dir, store.Options{Now: func() time.Time { return start }})
}

func openWith(t *testing.T, dir string, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(dir, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// update makes a local write that must succeed.
func update(t *testing.T, s *store.Store, fn func(*store.Tx) error) []crdt.Key {
	t.Helper()
	keys, err := s.Update(fn)
	if err != nil {
		t.Fatalf("update: %v", err)
	}
	return keys
}

// set writes one cell.
func set(t *testing.T, s *store.Store, key crdt.Key, cell, value string) []crdt.Key {
	t.Helper()
	return update(t, s, func(tx *store.Tx) error { return tx.Set(key, cell, []byte(value)) })
}

// value reads one cell, "" when it is not there.
func value(t *testing.T, s *store.Store, key crdt.Key, cell string) string {
	t.Helper()
	row, _, err := s.Get(key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return string(row.Cells[cell].Value)
}

func TestRowsSurviveReopen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	key := crdt.NewKey("models", "a/b")
	set(t, s, key, "state", "served")
	id, index, seq := s.ID(), s.IndexID(), s.Sequence()
	closeStore(t, s)
	s = open(t, dir)
	if got := value(t, s, key, "state"); got != "served" {
		t.Errorf("after reopening: %q", got)
	}
	if s.ID() != id || s.IndexID() != index || s.Sequence() != seq {
		t.Errorf("identity changed: %d %d %d, want %d %d %d", s.ID(), s.IndexID(), s.Sequence(), id, index, seq)
	}
	if seq != 1 {
		t.Errorf("one write brought the log to %d", seq)
	}
}

func TestStoresDifferInIdentity(t *testing.T) {
	a, b := open(t, t.TempDir()), open(t, t.TempDir())
	if a.ID() == b.ID() || a.IndexID() == b.IndexID() || a.ID() == 0 || a.IndexID() == 0 {
		t.Errorf("IDs %d %d, index IDs %d %d", a.ID(), b.ID(), a.IndexID(), b.IndexID())
	}
}

func TestIdentityComesFromTheEntropyGiven(t *testing.T) {
	seed := append(make([]byte, 8), 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2)
	s := openWith(t, t.TempDir(), store.Options{Entropy: bytes.NewReader(seed)})
	if s.ID() != 7 || s.IndexID() != 9 {
		t.Errorf("ID %d, index ID %d: want 7 and 9, 0 is skipped", s.ID(), s.IndexID())
	}
	_, err := store.Open(t.TempDir(), store.Options{Entropy: bytes.NewReader(nil)})
	if err == nil {
		t.Error("a store was made without an identity")
	}
}

func TestOpenAfterFailedCreationStartsClean(t *testing.T) {
	dir := t.TempDir()
	if _, err := store.Open(dir, store.Options{Entropy: bytes.NewReader(make([]byte, 4))}); err == nil {
		t.Fatal("creation without enough entropy succeeded")
	}
	set(t, open(t, dir), crdt.NewKey("x"), "a", "v")
}

func TestLockedDirectoryNamesItsHolder(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	_, err := store.Open(dir, store.Options{})
	var locked *store.LockedError
	if !errors.As(err, &locked) {
		t.Fatalf("second open: %v", err)
	}
	if locked.PID != os.Getpid() || locked.Dir != dir || !strings.Contains(err.Error(), dir) {
		t.Errorf("holder %d of %s: %v", locked.PID, locked.Dir, err)
	}
	if _, err := os.Stat("/proc/self/comm"); err == nil && locked.Command == "" {
		t.Errorf("the command of the holder is missing: %v", err)
	}
}

func TestLockOfAnUnreadableHolder(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "LOCK"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(dir, store.Options{})
	var locked *store.LockedError
	if !errors.As(err, &locked) || locked.PID != 0 || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
	}
}

func TestOpenFailsPlainly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(file, store.Options{}); err == nil {
		t.Error("a file was opened as a store")
	}
}

// Acknowledged writes must be there after the process that made them was killed.
func TestKilledProcessLosesNoAcknowledgedWrite(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("LLMGW_STORE_TEST_DIR"); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledProcessLosesNoAcknowledgedWrite$", "-test.v")
	child.Env = append(os.Environ(), "LLMGW_STORE_TEST_DIR="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	acked := readAcks(out, 50)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Error("the child was not killed")
	}
	if len(acked) < 50 {
		t.Fatalf("the child acknowledged %d writes", len(acked))
	}
	s := open(t, dir)
	for _, name := range acked {
		if got := value(t, s, crdt.NewKey("models", name), "state"); got != name {
			t.Errorf("write %s reads %q after the kill", name, got)
		}
	}
}

func TestWritesAfterCloseAreRefused(t *testing.T) {
	s := open(t, t.TempDir())
	closeStore(t, s)
	closeStore(t, s)
	key := crdt.NewKey("x")
	_, errUpdate := s.Update(func(tx *store.Tx) error { return tx.Set(key, "a", nil) })
	_, errMerge := s.Merge([]crdt.Item{{Key: key, Row: crdt.Row{Length: 1}}})
	_, _, errGet := s.Get(key)
	_, errList := s.List("x")
	_, errSince := s.Since(0, 1)
	_, errCursor := s.Cursor("p")
	_, _, errMeta := s.Meta("m")
	for name, err := range map[string]error{
		"update": errUpdate, "merge": errMerge, "get": errGet, "list": errList, "since": errSince, "cursor": errCursor,
		"set cursor": s.SetCursor("p", store.Cursor{}), "meta": errMeta, "set meta": s.SetMeta("m", nil),
		"reset": s.Reset(), "backup": s.Backup(&bytes.Buffer{}),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
}

func TestMetaIsKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, known, err := s.Meta("boot"); known || err != nil {
		t.Errorf("unknown meta: known %v, %v", known, err)
	}
	for name, v := range map[string]string{"boot": "1", "empty": ""} {
		if err := s.SetMeta(name, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	s = open(t, dir)
	for name, want := range map[string]string{"boot": "1", "empty": ""} {
		if got, known, err := s.Meta(name); !known || err != nil || string(got) != want {
			t.Errorf("%s: %q, known %v, %v", name, got, known, err)
		}
	}
	if s.Sequence() != 0 {
		t.Error("a meta value went into the log that peers pull")
	}
	if err := s.SetMeta("", nil); !errors.Is(err, crdt.ErrMalformed) {
		t.Errorf("meta without a name: %v", err)
	}
	if err := s.SetMeta("big", make([]byte, 2<<20)); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("meta too large: %v", err)
	}
}

func TestBadgerReportsGoToTheLog(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := openWith(t, t.TempDir(), store.Options{Log: log})
	closeStore(t, s)
	if !strings.Contains(buf.String(), "msg=badger") || strings.Contains(buf.String(), "level=INFO") {
		t.Errorf("badger's chatter belongs to the debug level: %s", buf.String())
	}
}
