package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newWhy() *cobra.Command {
	return &cobra.Command{
		Use: "why MODEL", Short: "Explain where a model is, and why not elsewhere", Args: exactly(1, "a model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return send(cmd, (*ui.Client).Why, ui.WhyRequest{Model: args[0]}, printWhy)
		},
	}
}

func printWhy(w io.Writer, r ui.WhyResult) {
	if len(r.Slots) == 0 {
		fmt.Fprintf(w, "%s is not loaded and nobody asked for it; llmgw load %s\n", r.Model, r.Model)
	}
	for _, s := range r.Slots {
		where := "on no node"
		if s.Owner != "" {
			where = "on " + s.Owner
		}
		fmt.Fprintf(w, "%s, slot %d: %s: %s (epoch %d, decided by %s)\n", r.Model, s.Slot, where, orDash(s.Reason), s.Epoch, orDash(s.Steward))
		var rows [][]string
		for _, n := range s.Nodes {
			verdict := n.Why
			switch {
			case n.Serves && n.Owns:
				verdict = "serves it"
			case n.Serves:
				verdict = "serves it and does not own it"
			case verdict == "" && n.Owns:
				verdict = "owns it and is about to serve"
			case verdict == "":
				verdict = "could have it"
			}
			rows = append(rows, []string{n.Node, strconv.Itoa(n.Slots), verdict})
		}
		table(w, []string{"NODE", "SLOTS", "VERDICT"}, rows, "no nodes")
	}
	if r.Problem != "" {
		fmt.Fprintln(w, r.Problem)
	}
	if r.Fix != "" {
		fmt.Fprintf(w, "  -> %s\n", r.Fix)
	}
}

func newWhatIf() *cobra.Command {
	var without []string
	var add, model string
	cmd := &cobra.Command{
		Use: "whatif", Short: "Say what a change would keep, move and lose", Args: exactly(0, ""),
		Long: `Say what a change would do to what is served: the placement as it would decide on
the live inventory, with nothing done.

Examples:
  llmgw whatif --without box-b
  llmgw whatif --model file:/models/big.gguf
  llmgw whatif --model file:/models/big.gguf --add 24GB`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bytes, err := parseBytes(add)
			if err != nil {
				return err
			}
			if len(without) == 0 && bytes == 0 && model == "" {
				return usagef("llmgw whatif needs --without, --add or --model; see llmgw whatif --help")
			}
			if model, err = absoluteFile(model); err != nil {
				return err
			}
			return send(cmd, (*ui.Client).WhatIf, ui.WhatIfRequest{Without: without, AddBytes: bytes, Model: model}, func(w io.Writer, r ui.WhatIfResult) {
				var rows [][]string
				for _, o := range r.Outcomes {
					rows = append(rows, []string{o.Effect, o.Model, strconv.Itoa(o.Slot), orDash(o.Before), orDash(o.After), loadText(o.Load), o.Reason})
				}
				table(w, []string{"EFFECT", "MODEL", "SLOT", "NOW ON", "THEN ON", "LOADS IN", "REASON"}, rows, "nothing is wanted, so nothing would change")
			})
		},
	}
	cmd.Flags().StringArrayVar(&without, "without", nil, "a node that would be gone; may be given several times")
	cmd.Flags().StringVar(&add, "add", "", "memory of a box that would be there, such as 24GB")
	cmd.Flags().StringVar(&model, "model", "", "a model of the catalog, or file:PATH, that would be wanted")
	return cmd
}

func loadText(l *ui.LoadTime) string {
	if l == nil {
		return "-"
	}
	text := fmt.Sprintf("%.1f s, %s", l.Seconds, l.From)
	if l.Fetch {
		text += ", after its download"
	}
	return text
}

// parseBytes reads a size as people write them; empty is 0.
func parseBytes(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number, factor := strings.ToUpper(text), int64(1)
	for _, unit := range []struct {
		suffix string
		factor int64
	}{{"GIB", 1 << 30}, {"MIB", 1 << 20}, {"GB", 1e9}, {"MB", 1e6}, {"G", 1 << 30}, {"M", 1 << 20}} {
		if rest, ok := strings.CutSuffix(number, unit.suffix); ok {
			number, factor = rest, unit.factor
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > (1<<62)/factor {
		return 0, usagef("%q is no size; write it as 24GB or 800MiB", text)
	}
	return n * factor, nil
}
