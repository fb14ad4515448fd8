package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newKeys() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Make, list, change and revoke API keys", Args: exactly(0, ""), RunE: listKeys}
	cmd.AddCommand(newKeyNew(), newKeySet(),
		&cobra.Command{Use: "ls", Short: "List the API keys", Args: exactly(0, ""), RunE: listKeys},
		&cobra.Command{Use: "first", Short: "Show the key that the first start made, once", Args: exactly(0, ""),
			RunE: func(cmd *cobra.Command, _ []string) error {
				return ask(cmd, (*ui.Client).FirstKey, func(w io.Writer, r ui.KeyResult) { fmt.Fprintln(w, r.Key) })
			}},
		&cobra.Command{Use: "revoke ID|NAME", Short: "End an API key on every node", Args: exactly(1, "the ID or name of a key"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return revoke(cmd, (*ui.Client).RevokeKey, args[0])
			}})
	return cmd
}

// revoke ends what id names.
func revoke(cmd *cobra.Command, call func(*ui.Client, context.Context, string) error, id string) error {
	return withDaemon(cmd, func(c *ui.Client) error {
		if err := call(c, cmd.Context(), id); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is revoked\n", id)
		return nil
	})
}

func newKeyNew() *cobra.Command {
	var scopes []string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make an API key; it alone goes to stdout, and is shown only now", Args: exactly(1, "a name"),
		Long: `Make an API key. It works on every node and is shown only now.

` + rulesHelp + `

Examples:
  llmgw keys new laptop
  llmgw keys new prometheus --scope metrics
  llmgw keys new app --project web --models 'smollm2,qwen*' --rpm 600 --tpm 100k
  llmgw keys new guest --expires 30d --parallel 2 --budget-month 5 --hard`,
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := keyChange(cmd)
			if err != nil {
				return err
			}
			r := ui.KeyRequest{Name: args[0], Scopes: scopes, KeyChange: change}
			return send(cmd, (*ui.Client).NewKey, r, func(w io.Writer, r ui.KeyResult) { fmt.Fprintln(w, r.Key) })
		},
	}
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "what it may do: infer, metrics, admin (default infer)")
	addKeyFlags(cmd)
	return cmd
}

func newKeySet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set ID|NAME", Short: "Change what an API key may use, on every node", Args: exactly(1, "the ID or name of a key"),
		Long: `Change what an API key may use. What is not named stays as it is.

` + rulesHelp + `

Examples:
  llmgw keys set app --rpm 1200
  llmgw keys set app --tpm none --models ""         no token limit, any model
  llmgw keys set guest --expires never --project ""`,
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := keyChange(cmd)
			if err != nil {
				return err
			}
			if err := somethingGiven(cmd); err != nil {
				return err
			}
			return send(cmd, (*ui.Client).SetKey, ui.KeySettings{Key: args[0], KeyChange: change}, func(w io.Writer, r ui.KeyAnswer) {
				fmt.Fprintf(w, "%s: project %s; models %s; expires %s; limits %s; budgets %s\n", r.Key.Name, orDash(r.Key.Project),
					modelsText(r.Key.Models), expiryText(r.Key.Expires), limitsText(r.Key.Rules), budgetsText(r.Key.Rules))
			})
		},
	}
	addKeyFlags(cmd)
	return cmd
}

func addKeyFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.String("project", "", "project that it counts for")
	f.StringSlice("models", nil, "models that it may use, with commas; * stands for anything (default all)")
	f.StringSlice("require", nil, "labels, KEY=VALUE, that a node must have to answer it")
	f.StringSlice("forbid", nil, "labels that a node must not have")
	f.StringSlice("origins", nil, "origins of web pages that may use it, as https://app.example, or * for any (default none)")
	f.String("expires", "", "how long it works, as 12h or 30d; never")
	addRuleFlags(cmd)
}

// keyChange reads the flags that were given.
func keyChange(cmd *cobra.Command) (ui.KeyChange, error) {
	rules, err := ruleChange(cmd)
	c := ui.KeyChange{RulesChange: rules}
	if err != nil {
		return c, err
	}
	f := cmd.Flags()
	if f.Changed("project") {
		project, _ := f.GetString("project")
		c.Project = &project
	}
	for name, into := range map[string]**ui.List[string]{"models": &c.Models, "require": &c.Require, "forbid": &c.Forbid, "origins": &c.Origins} {
		if f.Changed(name) {
			given, _ := f.GetStringSlice(name)
			list := ui.List[string](withoutEmpty(given))
			*into = &list
		}
	}
	if f.Changed("expires") {
		text, _ := f.GetString("expires")
		span, err := parseSpan(text)
		if err != nil {
			return c, err
		}
		seconds := int64(span / time.Second)
		c.ExpiresSeconds = &seconds
	}
	return c, nil
}

func withoutEmpty(all []string) []string {
	out := []string{}
	for _, text := range all {
		if text = strings.TrimSpace(text); text != "" {
			out = append(out, text)
		}
	}
	return out
}

func listKeys(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).Keys, func(w io.Writer, list ui.KeyList) {
		var rows [][]string
		for _, k := range list.Keys {
			rows = append(rows, []string{k.ID, k.Name, strings.Join(k.Scopes, ","), orDash(k.Project), modelsText(k.Models), expiryText(k.Expires),
				limitsText(k.Rules), budgetsText(k.Rules), k.Created.Local().Format(time.DateTime), k.Creator})
		}
		table(w, []string{"ID", "NAME", "SCOPES", "PROJECT", "MODELS", "EXPIRES", "LIMITS", "BUDGETS", "MADE", "ON"}, rows,
			"no API keys; make one with: llmgw keys new NAME")
	})
}

func modelsText(models []string) string {
	if len(models) == 0 {
		return "all"
	}
	return joinComma(models)
}

func expiryText(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return at.Local().Format(time.DateTime)
}
