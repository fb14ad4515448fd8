package main

import (
	"fmt"
	"io"
	"strings"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newModels() *cobra.Command {
	return &cobra.Command{
		Use: "models", Short: "List the models of the mesh", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).Models, func(w io.Writer, list ui.ModelList) { printModels(w, list.Models) })
		},
	}
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
		case m.Wanted > 0:
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
