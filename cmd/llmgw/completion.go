package main

import (
	"maps"
	"slices"
	"strings"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

// newCompletion takes the place of cobra's own verb, which ends an unknown shell
// with help and exit code 0.
func newCompletion() *cobra.Command {
	scripts := map[string]func(*cobra.Command) error{
		"bash": func(c *cobra.Command) error { return c.Root().GenBashCompletionV2(c.OutOrStdout(), true) },
		"fish": func(c *cobra.Command) error { return c.Root().GenFishCompletion(c.OutOrStdout(), true) },
		"zsh":  func(c *cobra.Command) error { return c.Root().GenZshCompletion(c.OutOrStdout()) },
	}
	shells := slices.Sorted(maps.Keys(scripts))
	return &cobra.Command{
		Use: "completion " + strings.Join(shells, "|"), Short: "Print a script that completes command lines in a shell",
		Long: `Print a script that completes command lines in a shell: verbs, flags, and the names
of models and nodes that the daemon knows.

Examples:
  source <(llmgw completion bash)
  llmgw completion fish > ~/.config/fish/completions/llmgw.fish`,
		Args: exactly(1, "a shell: "+strings.Join(shells, ", ")), ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			script, ok := scripts[args[0]]
			if !ok {
				return usagef("no completion for %q; there is one for %s", args[0], strings.Join(shells, ", "))
			}
			return script(cmd)
		},
	}
}

// completeModels offers the names of the catalog's models for the first argument.
func completeModels(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return completeNames(cmd, args, func(c *ui.Client) ([]string, error) {
		list, err := c.Models(cmd.Context())
		var names []string
		for _, m := range list.Models {
			names = append(names, m.Name)
		}
		return names, err
	})
}

// completeNodes offers the names of the members for the first argument.
func completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return completeNames(cmd, args, func(c *ui.Client) ([]string, error) {
		list, err := c.Nodes(cmd.Context())
		var names []string
		for _, n := range list.Nodes {
			names = append(names, n.Name)
		}
		return names, err
	})
}

// completeNames offers nothing when no daemon answers: a shell has no place for
// an error.
func completeNames(cmd *cobra.Command, args []string, names func(*ui.Client) ([]string, error)) (found []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		_ = withDaemon(cmd, func(c *ui.Client) (err error) { found, err = names(c); return err })
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completed sets what the first arguments of verbs are, after all are made.
func completed(root *cobra.Command) *cobra.Command {
	for verbs, complete := range map[string]cobra.CompletionFunc{
		"load unload stop start scale why models/rm":                                        completeModels,
		"cordon uncordon drain label nodes/remove nodes/readmit nodes/promote nodes/demote": completeNodes,
	} {
		for verb := range strings.FieldsSeq(verbs) {
			if cmd, _, err := root.Find(strings.Split(verb, "/")); err == nil {
				cmd.ValidArgsFunction = complete
			}
		}
	}
	return root
}
