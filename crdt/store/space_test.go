package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

func TestFullDiskRefusesWritesAndRecovers(t *testing.T) {
	free := int64(store.DefaultReserve)
	s := openWith(t, t.TempDir(), store.Options{
		Now: func() time.Time { return start }, Free: func(string) (int64, error) { return free, nil },
	})
	key := row("m")
	set(t, s, key, "a", "before")
	free--
	write := func(tx *store.Tx) error { return tx.Set(key, "a", []byte("after")) }
	_, errUpdate := s.Update(write)
	_, errMerge := s.Merge([]crdt.Item{item(key, "b", remote(1, 2, "v"))})
	_, errReseed := s.BeginReseed()
	_, errCollect := s.CollectTombstones(map[string]store.Cursor{"a": {}})
	_, _, errCompact := s.Compact()
	for name, err := range map[string]error{
		"update": errUpdate, "merge": errMerge, "meta": s.SetMeta("m", nil), "cursor": s.SetCursor("p", store.Cursor{}),
		"reset": s.Reset(), "uptime": s.AddUptime(time.Hour), "re-seed": errReseed, "rotate": s.Rotate(), "compact": errCompact,
		"asked": s.Writable(),
	} {
		if !errors.Is(err, store.ErrNoSpace) {
			t.Errorf("%s on a full disk: %v", name, err)
		}
	}
	if errCollect != nil {
		t.Errorf("nothing to collect, and still: %v", errCollect)
	}
	if got := value(t, s, key, "a"); got != "before" {
		t.Errorf("reading on a full disk gave %q", got)
	}
	if items, _ := pull(t, s, 0, 1000); len(items) != 1 {
		t.Errorf("peers are served %d rows", len(items))
	}
	free++
	if _, err := s.Update(write); err != nil || s.Writable() != nil {
		t.Errorf("with space again: %v", err)
	}
}

func TestSpaceThatCannotBeToldIsAnError(t *testing.T) {
	lost := errors.New("no such device")
	var err error
	s := openWith(t, t.TempDir(), store.Options{Free: func(string) (int64, error) { return 1 << 40, err }})
	err = lost
	if got := s.Writable(); !errors.Is(got, lost) {
		t.Errorf("got %v", got)
	}
}

func TestFullDiskIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	_, err := store.Open(dir, store.Options{Free: func(string) (int64, error) { return 1 << 20, nil }})
	if !errors.Is(err, store.ErrNoSpace) || !strings.Contains(err.Error(), "free some") {
		t.Errorf("got %v", err)
	}
}

// tinyDisk mounts a small file system of its own.
func tinyDisk(t *testing.T, megabytes int) string {
	if os.Getenv("LLMGW_FULL_DISK") == "" {
		t.Skip("a disk that is full to the last byte can still end the process in badger's compaction; LLMGW_FULL_DISK=1 runs it")
	}
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("llmgw-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes))
	if err != nil {
		if os.Getenv("LLMGW_CI") == "1" {
			t.Fatalf("mount a tmpfs: %v", err)
		}
		t.Skipf("needs root to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// On a real disk that fills up, by the store itself and by others, nothing may crash and nothing acknowledged may be lost.
func TestRealDiskFillsUp(t *testing.T) {
	t.Parallel()
	disk := tinyDisk(t, 48)
	dir := filepath.Join(disk, "state")
	o := store.Options{Reserve: 16 << 20}
	s := openWith(t, dir, o)
	written := map[crdt.Key]bool{}
	fill := func() error {
		for i := range 2000 {
			key := row(fmt.Sprint("m", len(written), i))
			_, err := s.Update(func(tx *store.Tx) error { return tx.Set(key, "a", bytes.Repeat([]byte{byte(i)}, 100<<10)) })
			if err != nil {
				return err
			}
			written[key] = true
		}
		return nil
	}
	if err := fill(); !errors.Is(err, store.ErrNoSpace) || len(written) < 20 {
		t.Fatalf("%d rows of 100 KiB fit, then: %v", len(written), err)
	}
	ballast := filepath.Join(disk, "ballast")
	must(t, os.WriteFile(ballast, make([]byte, 14<<20), 0o600))
	if got := len(all(t, s)); got != len(written) {
		t.Errorf("%d rows of %d are served", got, len(written))
	}
	must(t, os.Remove(ballast))
	closeStore(t, s)
	s = openWith(t, dir, o)
	if got := len(all(t, s)); got != len(written) {
		t.Errorf("%d rows of %d are there after reopening", got, len(written))
	}
	if r, err := s.Verify(); err != nil || len(r.Problems) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRealDiskRecovers(t *testing.T) {
	t.Parallel()
	disk := tinyDisk(t, 48)
	s := openWith(t, filepath.Join(disk, "state"), store.Options{Reserve: 16 << 20})
	set(t, s, row("m"), "a", "before")
	ballast := filepath.Join(disk, "ballast")
	must(t, os.WriteFile(ballast, make([]byte, 40<<20), 0o600))
	if _, err := s.Update(func(tx *store.Tx) error { return tx.Set(row("m"), "a", []byte("after")) }); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(ballast))
	set(t, s, row("m"), "a", "again")
}
