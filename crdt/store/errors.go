package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

var (
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrFailed: a sync to disk failed earlier; the store takes no writes until it is opened again.
	ErrFailed = errors.New("store failed to sync to disk and takes no more writes; restart llmgw once the disk is well")
	// ErrCorrupt: the database holds something that no llmgw wrote.
	ErrCorrupt = errors.New("store is damaged")
)

// NewerSchemaError says that dir was written by a newer llmgw. Nothing stored there was changed.
type NewerSchemaError struct {
	Have, Known uint64
	Dir         string
}

func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("store %s has schema %d and this llmgw knows up to %d: start the newer llmgw that wrote it, "+
		"or use another --state-dir", e.Dir, e.Have, e.Known)
}

// LockedError says that another process, or another Open of this one, has dir open.
type LockedError struct {
	Dir     string
	PID     int    // 0 when unknown
	Command string // "" when unknown
	Err     error
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	if e.Command != "" {
		holder += " (" + e.Command + ")"
	}
	return fmt.Sprintf("open store %s: it is in use by %s", e.Dir, holder)
}

func (e *LockedError) Unwrap() error { return e.Err }

// CorruptError says that the store in Dir is damaged. It is ErrCorrupt to errors.Is.
type CorruptError struct {
	Dir string
	Err error // what is damaged
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("store %s is damaged (%v): move it away, then either restore a backup to its place, or start with an "+
		"empty one and join again, which pulls everything from the peers", e.Dir, e.Err)
}

func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

var errTableLost = errors.New("the checksum of a table is wrong")

// causes are those of badger's errors that say nothing about the content of the directory.
var causes = []string{
	"permission denied", "operation not permitted", "no space left", "read-only file system", "too many open files",
	"input/output error", "cannot allocate memory", "not a directory",
}

// openError turns badger's error of opening dir into ours.
func openError(dir string, err error) error {
	// Badger formats the cause into its text, so that errors.Is finds nothing.
	if strings.Contains(err.Error(), "Cannot acquire directory lock") {
		pid := lockHolder(dir)
		return &LockedError{Dir: dir, PID: pid, Command: commandOf(pid), Err: err}
	}
	for _, cause := range causes {
		if strings.Contains(err.Error(), cause) {
			return fmt.Errorf("open store %s: %w", dir, err)
		}
	}
	return &CorruptError{Dir: dir, Err: err}
}

// lockHolder reads the advisory pid file that badger writes beside its lock.
func lockHolder(dir string) int {
	data, err := os.ReadFile(filepath.Join(dir, "LOCK"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// commandOf names a process where the system tells, for a message only.
func commandOf(pid int) string {
	if pid == 0 {
		return ""
	}
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// badgerError keeps badger's errors inside this package where a caller can act on them.
func badgerError(err error) error {
	switch {
	case errors.Is(err, badger.ErrTxnTooBig):
		return fmt.Errorf("one transaction holds about 2 MB: %w", crdt.ErrTooLarge)
	case errors.Is(err, badger.ErrDBClosed), errors.Is(err, badger.ErrBlockedWrites):
		return ErrClosed
	}
	return err
}
