package main

import (
	"os"

	"llmgw/engines/sim"

	"github.com/spf13/cobra"
)

// newEngineSim runs the simulated engine as a process of its own, started by
// the daemon as any other engine is.
func newEngineSim() *cobra.Command {
	return &cobra.Command{
		Use: "engine-sim", Short: "Run the simulated engine", Hidden: true, DisableFlagParsing: true,
		Run: func(cmd *cobra.Command, args []string) {
			os.Exit(sim.Main(cmd.Context(), args, os.Environ(), os.Stdout, os.Stderr))
		},
	}
}
