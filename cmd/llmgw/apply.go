package main

import (
	"fmt"
	"io"
	"os"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newExport() *cobra.Command {
	return &cobra.Command{
		Use: "export", Short: "Write models, node labels and mesh settings as YAML, without secrets", Args: exactly(0, ""),
		Long: `Write models, what is said of nodes, and the settings of the mesh as YAML, without
secrets. llmgw apply makes a mesh so again.

Examples:
  llmgw export > mesh.yaml
  llmgw export | ssh other llmgw apply -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).Export, func(w io.Writer, d ui.Document) { fmt.Fprint(w, d.Document) })
		},
	}
}

func newApply() *cobra.Command {
	var file string
	var r ui.ApplyRequest
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Make the mesh as a file says", Args: exactly(0, ""),
		Long: `Make the mesh as a file says: YAML as llmgw export writes it. Only what the file names
is written; the whole file is checked first. A second apply changes nothing.

Examples:
  llmgw apply -f mesh.yaml --dry-run    show the difference, write nothing
  llmgw apply -f mesh.yaml
  llmgw apply -f mesh.yaml --prune      also remove what the file's sections do not name`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("llmgw apply needs -f FILE; - reads stdin")
			}
			raw, err := readArgument(cmd, file)
			if err != nil {
				return err
			}
			r.Document = string(raw)
			return send(cmd, (*ui.Client).Apply, r, printApply)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file; - reads it from stdin")
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "show what would change and write nothing")
	cmd.Flags().BoolVar(&r.Prune, "prune", false, "remove models, settings, labels, aliases and profiles that the file's sections do not name")
	return cmd
}

// maxArgument bounds a file given on the command line.
const maxArgument = 8 << 20

// readArgument reads a file, or stdin for "-".
func readArgument(cmd *cobra.Command, file string) (raw []byte, err error) {
	in := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	if raw, err = io.ReadAll(io.LimitReader(in, maxArgument+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(raw) > maxArgument {
		return nil, usagef("%s is larger than %d bytes", file, maxArgument)
	}
	return raw, nil
}

func printApply(w io.Writer, r ui.ApplyResult) {
	marks := map[string]string{ui.ActionCreate: "+", ui.ActionDelete: "-", ui.ActionChange: "~"}
	for _, c := range r.Changes {
		fmt.Fprintf(w, "%s %s %s", marks[c.Action], c.Kind, c.Name)
		if c.Field != "" {
			fmt.Fprintf(w, ": %s", c.Field)
		}
		switch {
		case c.Action == ui.ActionChange:
			fmt.Fprintf(w, ": %s -> %s", orDash(c.Before), orDash(c.After))
		case c.After != "":
			fmt.Fprintf(w, ": %s", c.After)
		}
		fmt.Fprintln(w)
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", warning)
	}
	switch {
	case len(r.Changes) == 0:
		fmt.Fprintln(w, "nothing to change: the mesh is as the file says")
	case r.DryRun:
		fmt.Fprintf(w, "%d changes; nothing was written\n", len(r.Changes))
	default:
		fmt.Fprintf(w, "%d changes written\n", len(r.Changes))
	}
}
