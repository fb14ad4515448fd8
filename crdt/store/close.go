package store

import (
	"errors"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// closePatience is for how long closing may wait for space. What it waits for is in the logs already.
const closePatience = 2 * time.Second

// closeBadger closes the database. On a full disk badger cannot write its tables and never comes to an end; then it is
// left to it, and ErrNoSpace returned.
func closeBadger(db *badger.DB, disk *Disk, mapped *mappedDir) error {
	if mapped == nil {
		var kept error
		if disk != nil {
			kept = disk.release()
		}
		return errors.Join(kept, db.Close())
	}
	dropped := mapped.dropSpare()
	done := make(chan error, 1)
	go func() {
		defer mapped.leave()
		mapped.compactor.end()
		mapped.compactor = nil
		done <- db.Close()
	}()
	for waited := time.Duration(0); waited < closePatience; {
		select {
		case err := <-done:
			return errors.Join(dropped, err)
		case <-time.After(waitStep):
		}
		if waited += waitStep; mapped.waiting.Load() == 0 {
			waited = 0
		}
	}
	return errors.Join(dropped, ErrNoSpace)
}
