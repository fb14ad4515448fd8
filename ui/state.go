package ui

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// StateAdmin looks after the store of shared state on this box.
type StateAdmin interface {
	// BackupState writes the store as it is; it may fail after the first byte.
	BackupState(ctx context.Context, w io.Writer) error
	VerifyState(ctx context.Context) (StateReport, error)
	CompactState(ctx context.Context) (CompactResult, error)
}

// StateReport is what a check of the store found.
type StateReport struct {
	Schema
	Rows         int          `json:"rows"` // tombstones included
	Tombstones   int          `json:"tombstones"`
	LogEntries   int          `json:"log_entries"`
	Aside        int          `json:"aside"`    // rows of which parts wait for their time
	Problems     List[string] `json:"problems"` // none: the store is well
	MoreProblems int          `json:"more_problems"`
}

// CompactResult tells the bytes on disk before and after.
type CompactResult struct {
	Schema
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

func (u *UI) stateRoutes() []route {
	b := u.cfg.Backend
	return []route{
		{"GET", "state/backup", socketOnly, u.getBackup},
		{"POST", "state/verify", socketOnly, accept(bare(b.VerifyState))},
		{"POST", "state/compact", socketOnly, accept(bare(b.CompactState))},
	}
}

// getBackup streams the backup. A failure after the first byte cuts the
// connection, so that half a backup is never taken for a whole one.
func (u *UI) getBackup(w http.ResponseWriter, r *http.Request) error {
	out := &startedWriter{w: w}
	w.Header().Set("Content-Type", "application/octet-stream")
	err := u.cfg.Backend.BackupState(r.Context(), out)
	if err != nil && out.started {
		u.cfg.Log.Error("backup broke off", "error", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

type startedWriter struct {
	w       io.Writer
	started bool
}

func (s *startedWriter) Write(p []byte) (int, error) {
	s.started = true
	return s.w.Write(p)
}

// BackupState copies a backup of the store to w.
func (c *Client) BackupState(ctx context.Context, w io.Writer) (int64, error) {
	resp, err := c.do(ctx, http.MethodGet, "state/backup", nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(w, resp.Body)
	if err != nil {
		return n, fmt.Errorf("read the backup: %w", err)
	}
	return n, nil
}

// VerifyState reads the whole store again and says what is wrong with it.
func (c *Client) VerifyState(ctx context.Context) (StateReport, error) {
	return post[StateReport](ctx, c, "state/verify", struct{}{})
}

// CompactState gives the space of old rows back.
func (c *Client) CompactState(ctx context.Context) (CompactResult, error) {
	return post[CompactResult](ctx, c, "state/compact", struct{}{})
}
