package main

import (
	"fmt"
	"io"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newSettings() *cobra.Command {
	cmd := &cobra.Command{
		Use: "settings", Short: "List, set and unset the settings of the whole mesh", Args: exactly(0, ""), RunE: listSettings,
		Long: `List, set and unset the settings of the whole mesh. A setting is in force on every
live node within seconds, unless it says that a restart brings it. What a box's
own flag, environment or config file says has precedence there; llmgw config
shows which.

Examples:
  llmgw settings
  llmgw settings set discovery.auto_join false
  llmgw settings unset discovery.auto_join`,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the settings of the mesh", Args: exactly(0, ""), RunE: listSettings},
		&cobra.Command{Use: "set KEY VALUE", Short: "Set a setting for the whole mesh", Args: exactly(2, "a setting and a value"),
			RunE: func(cmd *cobra.Command, args []string) error { return changeSetting(cmd, args[0], &args[1]) }},
		&cobra.Command{Use: "unset KEY", Short: "Leave a setting to each box again", Args: exactly(1, "a setting"),
			RunE: func(cmd *cobra.Command, args []string) error { return changeSetting(cmd, args[0], nil) }})
	return cmd
}

func listSettings(cmd *cobra.Command, _ []string) error {
	return ask(cmd, (*ui.Client).MeshSettings, func(w io.Writer, list ui.MeshSettingList) {
		var rows [][]string
		for _, s := range list.Settings {
			help := s.Help
			if s.Restart {
				help += " (a restart brings it)"
			}
			rows = append(rows, []string{s.Name, meshValue(s), orDash(s.Here), s.Origin, help})
		}
		table(w, []string{"SETTING", "MESH", "HERE", "FROM", "WHAT"}, rows, "no settings")
	})
}

func meshValue(s ui.MeshSetting) string {
	if !s.Set {
		return "not set"
	}
	return orDash(s.Value)
}

func changeSetting(cmd *cobra.Command, name string, value *string) error {
	return send(cmd, (*ui.Client).SetSetting, ui.SettingRequest{Name: name, Value: value}, func(w io.Writer, r ui.SettingResult) {
		fmt.Fprintf(w, "%s: the mesh says %s; here it is %s (%s)\n", r.Setting.Name, meshValue(r.Setting), orDash(r.Setting.Here), r.Setting.Origin)
		for _, note := range r.Notes {
			fmt.Fprintln(w, note)
		}
	})
}
