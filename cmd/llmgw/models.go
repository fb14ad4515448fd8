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
			}})
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
