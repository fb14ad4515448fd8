package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
)

var (
	// ErrBadBackup: what should be restored is not a complete backup.
	ErrBadBackup = errors.New("bad backup")
	// ErrNotEmpty: the directory to restore into holds something.
	ErrNotEmpty = errors.New("directory is not empty")
)

// loadPending bounds the writes that badger has under way while it loads a backup.
const loadPending = 16

// Restore makes a store in dir, which MUST be empty or not exist, from a backup. The store gets a new ID and IndexID, because
// the life in which the backup was made went on without it, and is overdue until it was re-seeded, see Overdue. dir is
// there whole when Restore returns nil, and not at all otherwise.
func Restore(dir string, backup io.Reader, o Options) error {
	o = o.withDefaults()
	if o.Disk != nil {
		return wrapRestore(restoreInto("", backup, o))
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("restore store to %s: %w", dir, ErrNotEmpty)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return wrapRestore(err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".restore-")
	if err != nil {
		return wrapRestore(err)
	}
	if err := restoreInto(temp, backup, o); err != nil {
		return wrapRestore(errors.Join(err, os.RemoveAll(temp)))
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return wrapRestore(errors.Join(err, os.RemoveAll(temp)))
	}
	return wrapRestore(os.Rename(temp, dir))
}

func wrapRestore(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("restore store: %w", err)
}

// restoreInto loads the backup, then opens it as any store, which checks it, and changes its identity.
func restoreInto(dir string, backup io.Reader, o Options) error {
	in, err := newBackupReader(backup)
	if err != nil {
		return err
	}
	db, mapped, err := openBadger(dir, o)
	if err != nil {
		return err
	}
	if err := loadBackup(db, in); err != nil {
		// Nothing is kept of it. Reading it would wait for the rest of the backup, in badger.
		if o.Disk != nil {
			o.Disk.empty()
			return errors.Join(err, db.Close())
		}
		return errors.Join(err, closeBadger(db, nil, mapped))
	}
	if err := closeBadger(db, o.Disk, mapped); err != nil {
		return err
	}
	s, err := Open(dir, o)
	if err != nil {
		return err
	}
	s.writer.Lock()
	err = s.rotate(true)
	s.writer.Unlock()
	return errors.Join(err, s.Close())
}

func loadBackup(db *badger.DB, in *backupReader) (err error) {
	defer func() {
		// Badger trusts what it loads.
		if r := recover(); r != nil {
			err = fmt.Errorf("%v: %w", r, ErrBadBackup)
		}
	}()
	if err := db.Load(&frames{r: in}, loadPending); err != nil {
		return fmt.Errorf("%w: %w", ErrBadBackup, err)
	}
	return in.check()
}
