package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newKeys() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Make, list and revoke API keys", Args: exactly(0, ""), RunE: listKeys}
	cmd.AddCommand(newKeyNew(),
		&cobra.Command{Use: "ls", Short: "List the API keys", Args: exactly(0, ""), RunE: listKeys},
		&cobra.Command{Use: "first", Short: "Show the key that the first start made, once", Args: exactly(0, ""),
			RunE: func(cmd *cobra.Command, _ []string) error {
				return ask(cmd, (*ui.Client).FirstKey, func(w io.Writer, r ui.KeyResult) { fmt.Fprintln(w, r.Key) })
			}},
		&cobra.Command{Use: "revoke ID|NAME", Short: "End an API key on every node", Args: exactly(1, "the ID or name of a key"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return revoke(cmd, (*ui.Client).RevokeKey, args[0])
			}})
	return cmd
}

// revoke ends what id names.
func revoke(cmd *cobra.Command, call func(*ui.Client, context.Context, string) error, id string) error {
	return withDaemon(cmd, func(c *ui.Client) error {
		if err := call(c, cmd.Context(), id); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is revoked\n", id)
		return nil
	})
}

func newKeyNew() *cobra.Command {
	var scopes []string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make an API key; it alone goes to stdout, and is shown only now", Args: exactly(1, "a name"),
		Long: "Make an API key. It works on every node and is shown only now.\n\nExamples:\n  llmgw keys new laptop\n  llmgw keys new prometheus --scope metrics",
		RunE: func(cmd *cobra.Command, args []string) error {
			return send(cmd, (*ui.Client).NewKey, ui.KeyRequest{Name: args[0], Scopes: scopes}, func(w io.Writer, r ui.KeyResult) { fmt.Fprintln(w, r.Key) })
		},
	}
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "what it may do: infer, metrics, admin (default infer)")
	return cmd
}

func listKeys(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).Keys, func(w io.Writer, list ui.KeyList) {
		var rows [][]string
		for _, k := range list.Keys {
			rows = append(rows, []string{k.ID, k.Name, strings.Join(k.Scopes, ","), k.Created.Local().Format(time.DateTime), k.Creator})
		}
		table(w, []string{"ID", "NAME", "SCOPES", "MADE", "ON"}, rows, "no API keys; make one with: llmgw keys new NAME")
	})
}
