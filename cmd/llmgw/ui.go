package main

import (
	"fmt"
	"io"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newUI() *cobra.Command {
	return &cobra.Command{
		Use: "ui", Short: "Print a link that opens the web page once, within 15 minutes", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).UILink, func(w io.Writer, r ui.LinkResult) {
				fmt.Fprintln(w, r.URL)
				fmt.Fprintf(cmd.ErrOrStderr(), "opens the page once, until %s\n", r.Expires.Local().Format(time.TimeOnly))
			})
		},
	}
}
