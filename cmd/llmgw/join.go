package main

import (
	"fmt"
	"io"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newJoin() *cobra.Command {
	var file string
	var replace bool
	cmd := &cobra.Command{
		Use: "join [TOKEN]", Short: "Join the mesh that made a token",
		Long: `Join the mesh that made a token. The box keeps its identity and its weights.

Examples:
  llmgw join llmgw1.…
  llmgw join --token-file token.txt
  ssh other llmgw token new | llmgw join --token-file -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (file != "") {
				return usagef("llmgw join needs either a token or --token-file")
			}
			return exactly(len(args), "")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text := ""
			if len(args) == 1 {
				text = args[0]
			} else {
				var err error
				if text, err = readSecretArgument(cmd, file); err != nil {
					return err
				}
			}
			return send(cmd, (*ui.Client).Join, ui.JoinRequest{Token: text, Replace: replace}, printJoin)
		},
	}
	cmd.Flags().StringVar(&file, "token-file", "", "file that holds the token; - reads it from stdin")
	cmd.Flags().BoolVar(&replace, "replace", false, "leave the present mesh for it; its state is archived first")
	return cmd
}

func printJoin(w io.Writer, r ui.JoinResult) {
	fmt.Fprintf(w, "joined mesh %s, admitted by %s\n", r.MeshID, r.Issuer)
	if r.Replaced {
		fmt.Fprintln(w, "this box's own mesh is gone, and with it its API keys, the first API key too; those of the joined mesh work here")
	}
	if r.Archive != "" {
		fmt.Fprintf(w, "the former state is archived in %s\n", r.Archive)
	}
}

func newLeave() *cobra.Command {
	return &cobra.Command{
		Use: "leave", Short: "End this box's membership", Args: exactly(0, ""),
		Long: "End this box's membership: it becomes a mesh of one. Its identity and its weights stay on it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).Leave, func(w io.Writer, r ui.LeaveResult) {
				fmt.Fprintf(w, "left mesh %s; this box is a mesh of one now, its weights stay\n", r.MeshID)
			})
		},
	}
}
