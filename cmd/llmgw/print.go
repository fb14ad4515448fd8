package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func wantsJSON(cmd *cobra.Command) bool {
	v, _ := cmd.Flags().GetBool("json")
	return v
}

// show prints an answer: as JSON when asked, else by text.
func show(cmd *cobra.Command, answer any, text func(io.Writer)) error {
	out := cmd.OutOrStdout()
	if !wantsJSON(cmd) {
		text(out)
		return nil
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(answer)
}

// table prints aligned columns; an empty table prints nothing but what none says.
func table(w io.Writer, header []string, rows [][]string, none string) {
	if len(rows) == 0 {
		fmt.Fprintln(w, none)
		return
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush()
}

func joinComma(parts []string) string { return strings.Join(parts, ",") }

// bytesText is a size for a person; nil is unknown, not zero.
func bytesText(n *int64) string {
	if n == nil {
		return "unknown"
	}
	switch {
	case *n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(*n)/(1<<30))
	case *n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(*n)/(1<<20))
	}
	return fmt.Sprintf("%d B", *n)
}

func agoText(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return time.Duration(*seconds * float64(time.Second)).Round(100 * time.Millisecond).String()
}

func tripText(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", *ms)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// shortID is enough of a peer ID to tell boxes apart; its start is the same for all.
func shortID(id string) string {
	if len(id) <= 8 {
		return id
	}
	return id[len(id)-8:]
}
