package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"llmgw/crdt/store"
	"llmgw/ui"
)

// BackupState writes the store as it is to w.
func (a admin) BackupState(_ context.Context, w io.Writer) error { return a.store.Backup(w) }

// VerifyState reads the whole store again.
func (a admin) VerifyState(context.Context) (ui.StateReport, error) {
	r, err := a.store.Verify()
	if err != nil {
		return ui.StateReport{}, err
	}
	return ui.StateReport{Rows: r.Rows, Tombstones: r.Tombstones, LogEntries: r.LogEntries, Aside: r.Aside, Problems: r.Problems, MoreProblems: r.More}, nil
}

// CompactState gives the space of old rows back.
func (a admin) CompactState(context.Context) (ui.CompactResult, error) {
	before, after, err := a.store.Compact()
	return ui.CompactResult{Before: before, After: after}, err
}

// RestoreState puts a backup in the place of a state directory's store, whose
// daemon must not run. The former store is moved away, not deleted; its place
// is returned, empty if there was none. The restored store counts under a new
// identity, and on its next start pulls what happened since.
func RestoreState(stateDir string, backup io.Reader, now time.Time) (former string, err error) {
	lock, err := lockStateDir(stateDir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	dir := filepath.Join(stateDir, "state")
	fresh := dir + ".restored"
	if err := os.RemoveAll(fresh); err != nil { // what a crash left
		return "", fmt.Errorf("restore state: %w", err)
	}
	o := store.Options{Now: func() time.Time { return now }, Entropy: rand.Reader, Log: slog.New(slog.DiscardHandler)}
	if err := store.Restore(fresh, backup, o); err != nil {
		return "", fmt.Errorf("restore state: %w", err)
	}
	former = filepath.Join(stateDir, "archive", "state-"+now.UTC().Format("20060102T150405Z"))
	if err := os.MkdirAll(filepath.Dir(former), 0o700); err != nil {
		return "", fmt.Errorf("restore state: %w", err)
	}
	err = os.Rename(dir, former)
	if errors.Is(err, fs.ErrNotExist) {
		former, err = "", nil
	}
	if err != nil {
		return "", fmt.Errorf("restore state: move the former store away: %w", err)
	}
	if err := os.Rename(fresh, dir); err != nil {
		return former, fmt.Errorf("restore state: %w", err)
	}
	return former, nil
}
