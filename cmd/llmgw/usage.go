package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newUsage() *cobra.Command {
	var by, since string
	cmd := &cobra.Command{
		Use: "usage", Short: "Tell what was used, over all nodes, and what it cost", Args: exactly(0, ""),
		Long: `Tell what was used, over all nodes that answer, and what it cost by the price table of its
time. Each node keeps the records of the requests that came to it.

Examples:
  llmgw usage
  llmgw usage --by model --since 24h
  llmgw usage --by tenant --since 30d --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := ui.UsageRequest{By: by}
			if since != "" {
				span, err := parseSpan(since)
				if err != nil {
					return err
				}
				r.SinceSeconds = int64(span / time.Second)
			}
			return send(cmd, (*ui.Client).Usage, r, showUsage)
		},
	}
	cmd.Flags().StringVar(&by, "by", "key", "key, model, node, project, tenant or provider")
	cmd.Flags().StringVar(&since, "since", "", "how far back, as 24h or 30d (default all that is kept)")
	return cmd
}

func showUsage(w io.Writer, r ui.UsageReport) {
	var rows [][]string
	for _, u := range r.Rows {
		rows = append(rows, []string{orDash(u.Name), count(u.Requests), count(u.Failed), count(u.InputTokens), count(u.CachedTokens),
			count(u.OutputTokens), count(u.Images), moneyText(u.Micros)})
	}
	table(w, []string{strings.ToUpper(r.By), "REQUESTS", "FAILED", "INPUT", "CACHED", "OUTPUT", "IMAGES", "COST"}, rows, "nothing was used")
	if len(r.Missing) > 0 {
		fmt.Fprintf(w, "without the records of %s, which did not answer\n", joinComma(r.Missing))
	}
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }
