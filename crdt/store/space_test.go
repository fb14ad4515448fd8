package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
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
	free := int64(1 << 40)
	s := openWith(t, t.TempDir(), store.Options{
		Now: func() time.Time { return start }, Free: func(string) (int64, error) { return free, nil },
	})
	key := row("m")
	set(t, s, key, "a", "before")
	free = store.DefaultReserve - 1
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
		if !errors.Is(err, store.ErrNoSpace) || !errors.Is(err, unix.ENOSPC) {
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

// smallDisk mounts a small file system of its own.
func smallDisk(t *testing.T, megabytes int) string {
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
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill writes a file until the disk is full to the last byte, and returns its name.
func fill(t *testing.T, disk string) string {
	t.Helper()
	must(t, fillUp(disk))
	return ballastOf(disk)
}

func ballastOf(disk string) string { return filepath.Join(disk, "ballast") }

func fillUp(disk string) error {
	file, err := os.Create(ballastOf(disk))
	if err != nil {
		return err
	}
	size := int64(0)
	for step := int64(8 << 20); step > 0; {
		if unix.Fallocate(int(file.Fd()), 0, size, step) != nil {
			step /= 2
			continue
		}
		size += step
	}
	return file.Close()
}

// fillOften fills the disk and gives it free again, at moments that differ each time, until done.
func fillOften(disk string, done <-chan struct{}) (times int, err error) {
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for ; err == nil; times++ {
		select {
		case <-done:
			return times, nil
		case <-time.After(time.Duration(random.IntN(80)) * time.Millisecond):
		}
		err = fillUp(disk)
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		err = errors.Join(err, os.Remove(ballastOf(disk)))
	}
	return times, err
}

// noise is 100 KiB that badger cannot compress, and begins with n.
func noise(n int) []byte {
	data := make([]byte, 100<<10)
	if _, err := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(data); err != nil {
		panic(err)
	}
	data[0] = byte(n)
	return data
}

// diskMegabytes holds a store and not much more: its logs take some 50 MiB.
const diskMegabytes = 100

// The store itself fills the disk: nothing that was acknowledged may be lost.
func TestRealDiskFillsUp(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, diskMegabytes)
	dir := filepath.Join(disk, "state")
	o := store.Options{Reserve: 8 << 20}
	s := openWith(t, dir, o)
	written := 0
	var err error
	for ; err == nil && written < 2000; written++ {
		_, err = s.Update(func(tx *store.Tx) error {
			return tx.Set(row(fmt.Sprint("m", written)), "a", noise(written))
		})
	}
	written--
	if !errors.Is(err, store.ErrNoSpace) || written < 20 {
		t.Fatalf("%d rows of 100 KiB fit, then: %v", written, err)
	}
	ballast := fill(t, disk)
	if got := len(all(t, s)); got != written {
		t.Errorf("%d rows of %d are served", got, written)
	}
	must(t, os.Remove(ballast))
	closeStore(t, s)
	s = openWith(t, dir, o)
	if got := len(all(t, s)); got != written {
		t.Errorf("%d rows of %d are there after reopening", got, written)
	}
	verified(t, s)
}

func verified(t *testing.T, s *store.Store) {
	t.Helper()
	if r, err := s.Verify(); err != nil || len(r.Problems) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// settled waits until writes are taken again.
func settled(t *testing.T, s *store.Store) {
	t.Helper()
	eventually(t, "the store takes writes again", func() bool { return s.Writable() == nil })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute still not: %s", what)
		}
	}
}

func TestRealDiskRecovers(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, diskMegabytes)
	s := openWith(t, filepath.Join(disk, "state"), store.Options{Reserve: 8 << 20})
	set(t, s, row("m"), "a", "before")
	ballast := fill(t, disk)
	if _, err := s.Update(func(tx *store.Tx) error { return tx.Set(row("m"), "a", []byte("after")) }); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(ballast))
	set(t, s, row("m"), "a", "again")
}

// Others fill the disk to its last byte at any moment, while the store writes, flushes and compacts. It holds back nothing for
// itself here, so that they do meet.
func TestOthersFillTheDiskToTheLastByte(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 150)
	dir := filepath.Join(disk, "state")
	o := store.Options{Reserve: 1}
	s := openWith(t, dir, o)
	done, filled := make(chan struct{}), make(chan int)
	go func() {
		times, err := fillOften(disk, done)
		if err != nil {
			t.Errorf("fill the disk: %v", err)
		}
		filled <- times
	}()
	acknowledged := map[string]byte{}
	refused := 0
	for i := 0; i < 160; {
		name := fmt.Sprint("m", i%60)
		_, err := s.Update(func(tx *store.Tx) error {
			return tx.Set(row(name), "a", noise(i))
		})
		switch {
		case err == nil:
			acknowledged[name] = byte(i)
			i++
			if i%80 == 0 {
				_, _, err = s.Compact()
			}
			if err != nil && !errors.Is(err, store.ErrNoSpace) {
				t.Fatalf("compact: %v", err)
			}
		case errors.Is(err, store.ErrNoSpace):
			refused++
			time.Sleep(time.Millisecond)
		default:
			t.Fatalf("write %d: %v", i, err)
		}
	}
	close(done)
	t.Logf("the disk was filled %d times, a write refused %d times", <-filled, refused)
	settled(t, s)
	closeStore(t, s)
	s = openWith(t, dir, o)
	for name, want := range acknowledged {
		if got := value(t, s, row(name), "a"); len(got) != 100<<10 || got[0] != want {
			t.Errorf("%s: the acknowledged value is gone", name)
		}
	}
	verified(t, s)
}

// The memtable fills up on a disk that has nothing left: the spare log takes over, reads go on, and so do writes later.
func TestLogFillsUpOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, diskMegabytes)
	dir := filepath.Join(disk, "state")
	s := openWith(t, dir, store.Options{Free: func(string) (int64, error) { return 1 << 40, nil }})
	set(t, s, row("first"), "a", "here")
	ballast := fill(t, disk)
	var err error
	written := 0
	for ; err == nil && written < 1000; written++ {
		_, err = s.Update(func(tx *store.Tx) error {
			return tx.Set(row(fmt.Sprint("m", written)), "a", noise(written))
		})
	}
	written--
	if !errors.Is(err, store.ErrNoSpace) || written < 40 {
		t.Fatalf("after %d writes: %v", written, err)
	}
	if got := len(all(t, s)); got != written+1 {
		t.Errorf("%d rows of %d are served", got, written+1)
	}
	left := crashCopy(t, dir)
	must(t, os.Remove(ballast))
	settled(t, s)
	set(t, s, row("last"), "a", "here")
	if got := len(all(t, s)); got != written+2 {
		t.Errorf("%d rows of %d are served", got, written+2)
	}
	killed := openWith(t, left, store.Options{})
	if got := len(all(t, killed)); got != written+1 {
		t.Errorf("killed on the full disk, %d rows of %d are left", got, written+1)
	}
	verified(t, killed)
}

// Badger never comes to an end on a full disk; the daemon has to.
func TestFullDiskIsClosed(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, diskMegabytes)
	dir := filepath.Join(disk, "state")
	s, err := store.Open(dir, store.Options{Free: func(string) (int64, error) { return 1 << 40, nil }})
	must(t, err)
	set(t, s, row("m"), "a", "before")
	must(t, os.Truncate(filepath.Join(dir, "SPARE"), 0)) // what closing would use
	ballast := fill(t, disk)
	if err := s.Close(); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("closed on a full disk: %v", err)
	}
	must(t, os.Remove(ballast))
	eventually(t, "badger is through", func() bool {
		s, err = store.Open(dir, store.Options{})
		var locked *store.LockedError
		if !errors.As(err, &locked) {
			must(t, err)
		}
		return err == nil
	})
	defer closeStore(t, s)
	if got := value(t, s, row("m"), "a"); got != "before" {
		t.Errorf("got %q", got)
	}
}

func TestMappedFilesAreAllocated(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	for name, touched := range map[string]int64{
		"00001.mem": store.LogTouched, "SPARE": store.LogTouched, "000001.vlog": 6 << 20, "DISCARD": 1 << 20,
	} {
		var is unix.Stat_t
		must(t, unix.Stat(filepath.Join(dir, name), &is))
		if is.Blocks*512 < touched {
			t.Errorf("%s: %d bytes of %d are on the disk", name, is.Blocks*512, touched)
		}
	}
}

// A process that is killed while it makes a table leaves a part of one, of which the list does not know.
func TestUnlistedTableGoes(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	set(t, s, row("m"), "a", "v")
	closeStore(t, s)
	stray := filepath.Join(dir, "000099.sst")
	must(t, os.WriteFile(stray, make([]byte, 5000), 0o600))
	s = open(t, dir)
	if got := value(t, s, row("m"), "a"); got != "v" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the part of a table is still there: %v", err)
	}
}
