package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"llmgw/node"
	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newState() *cobra.Command {
	cmd := &cobra.Command{
		Use: "state", Short: "Back up, restore and check this box's copy of the shared state", Args: exactly(0, ""),
		Long: `Back up, restore and check this box's copy of the shared state. Weights, engines and the
identity key are not part of it.

Examples:
  llmgw state backup /backup/llmgw.state
  llmgw state restore /backup/llmgw.state       the daemon must be stopped
  llmgw state verify`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		&cobra.Command{Use: "backup FILE", Short: "Write a backup while the daemon runs", Args: exactly(1, "a file"), RunE: backupState},
		&cobra.Command{Use: "restore FILE", Short: "Put a backup in place; the daemon must be stopped", Args: exactly(1, "a file"), RunE: restoreState},
		&cobra.Command{Use: "verify", Short: "Read everything again and say what is wrong", Args: exactly(0, ""), RunE: verifyState},
		&cobra.Command{Use: "compact", Short: "Give the space of old rows back", Args: exactly(0, ""), RunE: compactState})
	return cmd
}

// backupState writes beside the file and renames: a backup that broke off is
// not there.
func backupState(cmd *cobra.Command, args []string) error {
	return withDaemon(cmd, func(c *ui.Client) error {
		tmp, err := os.CreateTemp(filepath.Dir(args[0]), ".llmgw-backup-*") // 0600
		if err != nil {
			return fmt.Errorf("write backup: %w", err)
		}
		defer func() { _ = os.Remove(tmp.Name()) }()
		n, err := c.BackupState(cmd.Context(), tmp)
		err = errors.Join(err, tmp.Sync(), tmp.Close())
		if err != nil {
			return err
		}
		if err := os.Rename(tmp.Name(), args[0]); err != nil {
			return fmt.Errorf("write backup: %w", err)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s to %s\n", bytesText(&n), args[0])
		return nil
	})
}

func restoreState(cmd *cobra.Command, args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return fmt.Errorf("read backup: %w", err)
	}
	defer f.Close()
	former, err := node.RestoreState(stateDir(cmd), f, time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "restored; start the daemon with: llmgw up --state-dir %s\n", stateDir(cmd))
	if former != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "the former state is in %s\n", former)
	}
	return nil
}

func verifyState(cmd *cobra.Command, _ []string) error {
	return withDaemon(cmd, func(c *ui.Client) error {
		r, err := c.VerifyState(cmd.Context())
		if err != nil {
			return err
		}
		if err := show(cmd, r, func(w io.Writer) { printStateReport(w, r) }); err != nil {
			return err
		}
		if len(r.Problems) > 0 {
			return errDegraded
		}
		return nil
	})
}

func printStateReport(w io.Writer, r ui.StateReport) {
	fmt.Fprintf(w, "%d rows, %d of them deleted, %d log entries, %d rows aside\n", r.Rows, r.Tombstones, r.LogEntries, r.Aside)
	for _, p := range r.Problems {
		fmt.Fprintf(w, "  ! %s\n", p)
	}
	switch {
	case r.MoreProblems > 0:
		fmt.Fprintf(w, "  and %d more\n", r.MoreProblems)
	case len(r.Problems) == 0:
		fmt.Fprintln(w, "the store is well")
	}
	if len(r.Problems) > 0 {
		fmt.Fprintln(w, "stop the daemon and restore a backup, or wipe the store and join again: the peers have everything")
	}
}

func compactState(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).CompactState, func(w io.Writer, r ui.CompactResult) {
		fmt.Fprintf(w, "%s before, %s now\n", bytesText(&r.Before), bytesText(&r.After))
	})
}
