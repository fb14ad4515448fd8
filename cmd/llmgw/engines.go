package main

import (
	"fmt"
	"io"
	"os"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newEngines() *cobra.Command {
	cmd := &cobra.Command{Use: "engines", Short: "List engines, or get one onto this box", Args: exactly(0, ""), RunE: listEngines}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the engines of all nodes", Args: exactly(0, ""), RunE: listEngines},
		&cobra.Command{
			Use: "install ENGINE", Short: "Get an engine onto this box", Args: exactly(1, "an engine"),
			Long: `Get an engine onto this box, by the first way that works: the path in the
config, one on PATH, the pinned Python wheel. It says which way it took.

Example:
  llmgw engines install llamacpp`,
			RunE: installEngine,
		})
	return cmd
}

func listEngines(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).Engines, func(w io.Writer, list ui.EngineList) {
		var rows [][]string
		for _, e := range list.Engines {
			rows = append(rows, []string{e.NodeName, e.Name, orDash(e.Version), e.From, orDash(e.Path)})
		}
		table(w, []string{"NODE", "ENGINE", "VERSION", "FROM", "PATH"}, rows, "no engines; get one with: llmgw engines install llamacpp")
	})
}

func installEngine(cmd *cobra.Command, args []string) error {
	return withDaemon(cmd, func(c *ui.Client) error {
		step, done := reporter(os.Stderr, "install "+args[0])
		r, err := c.InstallEngine(cmd.Context(), ui.InstallRequest{Engine: args[0]}, step)
		done()
		if err != nil {
			return err
		}
		return show(cmd, r, func(w io.Writer) {
			fmt.Fprintf(w, "%s %s: %s (%s)\n", r.Engine.Name, r.Engine.Version, r.Engine.From, r.Engine.Path)
		})
	})
}
