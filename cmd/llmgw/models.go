package main

import (
	"fmt"
	"io"
	"strings"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newModels() *cobra.Command {
	cmd := &cobra.Command{Use: "models", Short: "List the models of the mesh, or remove one", Args: exactly(0, ""), RunE: listModels}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the models of the mesh", Args: exactly(0, ""), RunE: listModels},
		&cobra.Command{Use: "rm MODEL", Short: "Remove a model from the catalog; its files stay on disk", Args: exactly(1, "a model"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return send(cmd, (*ui.Client).RemoveModel, ui.RemoveModelRequest{Model: args[0]}, func(w io.Writer, r ui.RemoveModelResult) {
					fmt.Fprintf(w, "%s is removed from the catalog\n", r.Model)
				})
			}},
		newModelLimit())
	return cmd
}

func newModelLimit() *cobra.Command {
	var context, most int
	var repetition bool
	cmd := &cobra.Command{
		Use: "limit MODEL", Short: "Bound the requests to a model and their answers", Args: exactly(1, "a model"),
		Long: `Bound the requests to a model and their answers, in tokens; 0 leaves it to the engine.
A request for a longer answer than the most is refused with both figures.

Examples:
  llmgw models limit smollm2 --context 4096 --max-output 512
  llmgw models limit smollm2 --end-repetition`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r := ui.ModelRequest{Model: args[0]}
			for flag, set := range map[string]func(){
				"context": func() { r.Context = &context }, "max-output": func() { r.MaxOutput = &most },
				"end-repetition": func() { r.EndRepetition = &repetition },
			} {
				if cmd.Flags().Changed(flag) {
					set()
				}
			}
			if r.Context == nil && r.MaxOutput == nil && r.EndRepetition == nil {
				return usagef("llmgw models limit needs --context, --max-output or --end-repetition; see llmgw models limit --help")
			}
			return setModel(cmd, r, func(m ui.Model) string {
				return fmt.Sprintf("%s: context %d, longest answer %d, repetition is ended: %t", m.Name, m.Limits.Context, m.Limits.MaxOutput, m.Limits.EndRepetition)
			})
		},
	}
	cmd.Flags().IntVar(&context, "context", 0, "tokens of one request")
	cmd.Flags().IntVar(&most, "max-output", 0, "tokens of one answer")
	cmd.Flags().BoolVar(&repetition, "end-repetition", false, "end an answer that does nothing but repeat itself")
	return cmd
}

func listModels(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).Models, func(w io.Writer, list ui.ModelList) { printModels(w, list.Models) })
}

func printModels(w io.Writer, models []ui.Model) {
	var rows [][]string
	for _, m := range models {
		loaded := "no"
		switch {
		case m.State == "stopped":
			loaded = "stopped"
		case m.Loaded:
			loaded = "on " + strings.Join(m.LoadedOn, ", ")
		case m.Wanted > 0 || m.Problem != "":
			loaded = "not yet"
		}
		rows = append(rows, []string{m.Name, m.Format, bytesText(m.SizeBytes), bytesText(m.MemoryNeed), loaded, orDash(strings.Join(m.OnDisk, ", ")), orDash(m.Pin)})
	}
	table(w, []string{"NAME", "FORMAT", "SIZE", "MEMORY", "LOADED", "ON DISK OF", "PIN"}, rows,
		"no models yet; get one with: llmgw pull SOURCE --as NAME")
	for _, m := range models {
		if m.DeclaredOn != "" {
			fmt.Fprintf(w, "%s is declared in %s on %s and changed only there\n", m.Name, m.DeclaredIn, m.DeclaredOn)
		}
		if m.Problem != "" {
			fmt.Fprintf(w, "%s: %s\n", m.Name, m.Problem)
		}
		if m.Problem != "" && m.Fix != "" {
			fmt.Fprintf(w, "  -> %s\n", m.Fix)
		}
	}
}
