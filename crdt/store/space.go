package store

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrNoSpace: so little is free on the disk that the store takes no writes. Reads go on, and so do writes as soon as there is
// space again.
var ErrNoSpace = errors.New("too little free space on the disk of the store")

const (
	// DefaultReserve is what has to stay free. Badger writes to memory maps, where a full disk kills the process instead
	// of giving an error; it must never come to that. The reserve covers a flushed memtable and the compaction that
	// follows, and what others write meanwhile.
	DefaultReserve = 64 << 20

	// openShare of the reserve has to be free to open the store at all: badger then replays what was not flushed.
	openShare = 4
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
	return s.space(s.reserve)
}

// space says whether that much is free.
func (s *Store) space(least int64) error { return checkSpace(s.dir, s.free, least) }

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
