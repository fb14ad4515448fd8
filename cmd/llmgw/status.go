package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newStatus() *cobra.Command {
	var byExit bool
	cmd := &cobra.Command{
		Use: "status", Short: "Say how this node and its mesh are, and what to do", Args: exactly(0, ""),
		Long: "Say how this node and its mesh are: problems first, each with its fix.\n\nExamples:\n  llmgw status\n  llmgw status --json\n  llmgw status --exit-code      exit 7 when there are problems",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd, func(c *ui.Client) error {
				s, err := c.Status(cmd.Context())
				if err != nil {
					return err
				}
				if err := show(cmd, s, func(w io.Writer) { printStatus(w, s) }); err != nil {
					return err
				}
				if byExit && s.Verdict != ui.VerdictOK {
					return errDegraded
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&byExit, "exit-code", false, "exit 7 when there are problems")
	return cmd
}

func printStatus(w io.Writer, s ui.Status) {
	fmt.Fprint(w, s.Verdict)
	if n := len(s.Problems); n > 0 {
		fmt.Fprintf(w, ": %d to look at", n)
	}
	fmt.Fprintln(w)
	for _, p := range s.Problems {
		fmt.Fprintf(w, "  ! %s\n", p.Text)
		if p.Fix != "" {
			fmt.Fprintf(w, "    -> %s\n", p.Fix)
		}
	}
	fmt.Fprintf(w, "\nnode     %s (%s), llmgw %s, pid %d, up %s\n", s.Node.Name, s.Node.ID, s.Node.Version, s.Node.PID,
		time.Duration(s.Node.UptimeSeconds)*time.Second)
	mesh := fmt.Sprintf("%s, %d of %d members live", s.Mesh.ID, s.Mesh.Live, s.Mesh.Members)
	if s.Mesh.Provisional {
		mesh = "not joined yet: a mesh of one, which `llmgw join TOKEN` replaces"
	}
	fmt.Fprintf(w, "mesh     %s\n", mesh)
	fmt.Fprintf(w, "API      %s\n", strings.Join(s.Node.API, ", "))
	fmt.Fprintf(w, "peers at %s\n", strings.Join(s.Node.Mesh, ", "))
	fmt.Fprintf(w, "state    %s\n", s.Node.StateDir)
	fmt.Fprintf(w, "page     %s\n", s.Node.UIHint)
}
