package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"
)

// ErrNoSpace: so little is free on the disk that the store takes no writes. Reads go on, and so do writes as soon as there is
// space again.
var ErrNoSpace error = noSpace{}

// noSpace is syscall.ENOSPC for those who do not know this package.
type noSpace struct{}

func (noSpace) Error() string        { return "too little free space on the disk of the store" }
func (noSpace) Is(target error) bool { return target == syscall.ENOSPC }

const (
	// DefaultReserve is what has to stay free for a write to be taken: enough for a flushed memtable. Where others take it
	// first, that waits, see mapped.go.
	DefaultReserve = 16 << 20

	// openLeast has to be free to open a store, for badger's value log and what goes with it; and for the log of a memtable,
	// unless the spare of a store that was killed is there.
	openLeast = vlogBytes + 1<<20

	// listAhead is by how much the list of tables is allocated beyond its end. Badger appends some 30 bytes for each table that
	// comes or goes; an append that is cut short by a full disk would cost all tables after it.
	listAhead = 1 << 20
)

// Writable says why the store takes no writes now: ErrNoSpace, ErrFailed or ErrClosed; nil when it does.
func (s *Store) Writable() error {
	s.writer.Lock()
	defer s.writer.Unlock()
	return s.writable()
}

// writable says whether a write may begin. The caller holds writer.
func (s *Store) writable() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.failed != nil:
		return s.failed
	}
	return s.room()
}

// room says whether there is space for a write, and for what badger makes of it in the background.
func (s *Store) room() error {
	if err := checkSpace(s.dir, s.free, s.reserve); err != nil || s.mapped == nil {
		return err
	}
	if s.mapped.waiting.Load() > 0 {
		return fmt.Errorf("%w: tables in %s wait for space", ErrNoSpace, s.dir)
	}
	err := errors.Join(s.mapped.keepSpare(), s.keepList())
	if fullDisk(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	if err != nil {
		return fmt.Errorf("reserve space: %w", err)
	}
	return nil
}

// roomToOpen says whether opening would have to wait for space.
func roomToOpen(dir string, free func(string) (int64, error)) error {
	least := int64(openLeast)
	spare, err := os.Open(filepath.Join(dir, spareName))
	if err == nil {
		defer spare.Close()
	}
	if err != nil || !allocated(spare) {
		least += logTouched
	}
	return checkSpace(dir, free, least)
}

// keepList allocates the list of tables ahead of its end. Badger makes a new one now and then.
func (s *Store) keepList() error {
	name := filepath.Join(s.dir, badger.ManifestFilename)
	var is unix.Stat_t
	if err := unix.Stat(name, &is); err != nil {
		return err
	}
	if is.Ino == s.list.Ino && is.Size < s.list.Size+listAhead/2 {
		return nil
	}
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, is.Size+listAhead)
	if err == nil || !fullDisk(err) && !errors.Is(err, unix.EINTR) {
		s.list = is
		return nil
	}
	return err
}

func checkSpace(dir string, free func(string) (int64, error), least int64) error {
	if free == nil {
		return nil
	}
	bytes, err := free(dir)
	if err != nil {
		return fmt.Errorf("ask for free space: %w", err)
	}
	if bytes < least {
		return fmt.Errorf("%w: %d MiB are free in %s, %d MiB are needed; free some, and writes go on by themselves",
			ErrNoSpace, bytes>>20, dir, least>>20)
	}
	return nil
}

// freeSpace is what a process without privileges may still write.
func freeSpace(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}
