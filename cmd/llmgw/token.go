package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make and list join tokens", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newTokenNew(), newTokenList(), &cobra.Command{
		Use: "revoke ID", Short: "Make a join token worth nothing", Args: exactly(1, "the ID of a token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return revoke(cmd, (*ui.Client).RevokeToken, args[0])
		},
	})
	return cmd
}

func newTokenNew() *cobra.Command {
	var ttl time.Duration
	var uses int
	var role string
	cmd := &cobra.Command{
		Use: "new", Short: "Make a token that lets another box join", Args: exactly(0, ""),
		Long: "Make a token that lets another box join. It is shown only now.\n\nExamples:\n  llmgw token new\n  llmgw token new --ttl 24h --uses 5\n  llmgw token new --role member",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return send(cmd, (*ui.Client).NewToken, ui.TokenRequest{TTLSeconds: int64(ttl / time.Second), Uses: uses, Role: role}, func(w io.Writer, r ui.TokenResult) {
				fmt.Fprintln(w, r.Token)
				fmt.Fprintf(cmd.ErrOrStderr(), "on the other box, before %s:\n  llmgw join %s\n", r.Expires.Local().Format(time.DateTime), r.Token)
			})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long it may be used, at most 168h")
	cmd.Flags().IntVar(&uses, "uses", 1, "how many boxes may join by it")
	cmd.Flags().StringVar(&role, "role", "admin", "role of who joins: admin or member")
	return cmd
}

func newTokenList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the join tokens", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).Tokens, func(w io.Writer, list ui.TokenList) {
				var rows [][]string
				for _, t := range list.Tokens {
					rows = append(rows, []string{t.ID, t.Role, fmt.Sprintf("%d of %d", t.Used, t.Uses), t.Expires.Local().Format(time.DateTime), t.Issuer})
				}
				table(w, []string{"ID", "ROLE", "USED", "EXPIRES", "MADE ON"}, rows, "no tokens; make one with: llmgw token new")
			})
		},
	}
}

// readSecretArgument takes a secret from a file or, for "-", from stdin, so
// that it need not stand on a command line.
func readSecretArgument(cmd *cobra.Command, file string) (string, error) {
	raw, err := readArgument(cmd, file)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(raw))
	if text == "" {
		return "", usagef("%s is empty", file)
	}
	return text, nil
}
