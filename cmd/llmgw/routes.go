package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newRoutes() *cobra.Command {
	cmd := &cobra.Command{
		Use: "routes", Short: "Names that stand for models: selectors and presets", Args: exactly(0, ""), RunE: listRoutes,
		Long: `List, set and remove names that stand for models. Clients use such a name as a model's.
With several targets a name is a selector; with parameters it is a preset, which
shares the replicas and the cache of its target.

Examples:
  llmgw routes
  llmgw routes set chat --to big,small                    big while it can be had, else small
  llmgw routes set any --to big,small --rule balance      whichever answers first
  llmgw routes set strict --to small --force temperature=0 --strip logit_bias
  llmgw routes rm chat`,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the routes", Args: exactly(0, ""), RunE: listRoutes},
		newRouteSet(),
		&cobra.Command{Use: "rm NAME", Short: "Remove a route", Args: exactly(1, "a route"), RunE: removeRoute})
	return cmd
}

func listRoutes(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).Routes, func(w io.Writer, list ui.RouteList) {
		var rows [][]string
		for _, r := range list.Routes {
			rows = append(rows, []string{r.Name, strings.Join(r.Targets, ","), r.Rule, orDash(paramsText(r))})
		}
		table(w, []string{"ROUTE", "TO", "RULE", "PARAMETERS"}, rows, "no routes; make one with: llmgw routes set NAME --to MODEL")
	})
}

// paramsText shows defaults as name=value, forced ones as name:=value, and what
// is taken out as -name.
func paramsText(r ui.Route) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.Default)) {
		out = append(out, name+"="+string(r.Default[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Force)) {
		out = append(out, name+":="+string(r.Force[name]))
	}
	for _, name := range r.Strip {
		out = append(out, "-"+name)
	}
	return strings.Join(out, " ")
}

func newRouteSet() *cobra.Command {
	var r ui.Route
	var to, strip, defaults, forced []string
	cmd := &cobra.Command{
		Use: "set NAME --to MODEL[@NODE],...", Short: "Make a route, or replace it whole", Args: exactly(1, "a name"),
		Long: `Make a route, or replace it whole.

Rules: first takes the first target that is loaded or can be loaded; loaded-only the
first that is loaded; balance whichever loaded one answers first. A target that cannot
do what a request asks for is passed over. Values are JSON; what is none is a string.

Examples:
  llmgw routes set chat --to big,small
  llmgw routes set lab --to small@box-b --default temperature=0.2`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.Name, r.Targets, r.Strip = args[0], to, strip
			if r.Default, err = parseParams("default", defaults); err != nil {
				return err
			}
			if r.Force, err = parseParams("force", forced); err != nil {
				return err
			}
			return send(cmd, (*ui.Client).SetRoute, r, func(w io.Writer, out ui.RouteResult) {
				fmt.Fprintf(w, "%s goes to %s (%s)\n", out.Route.Name, strings.Join(out.Route.Targets, ", "), out.Route.Rule)
				for _, warning := range out.Warnings {
					fmt.Fprintln(w, warning)
				}
			})
		},
	}
	cmd.Flags().StringSliceVar(&to, "to", nil, "models in order, each MODEL or MODEL@NODE")
	cmd.Flags().StringVar(&r.Rule, "rule", "first", "first, loaded-only or balance")
	cmd.Flags().StringArrayVar(&defaults, "default", nil, "NAME=VALUE that is set where a request has none")
	cmd.Flags().StringArrayVar(&forced, "force", nil, "NAME=VALUE that is set whatever a request has")
	cmd.Flags().StringSliceVar(&strip, "strip", nil, "parameters that are taken out of requests")
	return cmd
}

// parseParams reads NAME=VALUE with a value of JSON, or else a string.
func parseParams(flag string, given []string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for _, g := range given {
		name, value, ok := strings.Cut(g, "=")
		if !ok || name == "" {
			return nil, usagef("--%s %q is not NAME=VALUE", flag, g)
		}
		raw := json.RawMessage(value)
		if !json.Valid(raw) {
			text, err := json.Marshal(value)
			if err != nil {
				return nil, usagef("--%s %s: %v", flag, name, err)
			}
			raw = text
		}
		out[name] = raw
	}
	return out, nil
}

func removeRoute(cmd *cobra.Command, args []string) error {
	return withDaemon(cmd, func(c *ui.Client) error {
		if err := c.RemoveRoute(cmd.Context(), args[0]); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is removed\n", args[0])
		return nil
	})
}
