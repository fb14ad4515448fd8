package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"llmgw/node"
	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newConfig() *cobra.Command {
	return &cobra.Command{
		Use: "config", Short: "Print each setting with where it came from", Args: exactly(0, ""),
		Long: "Print each setting with where it came from: of the daemon that runs on the state\ndirectory, else what a daemon started now would take.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list ui.SettingList
			err := withDaemon(cmd, func(c *ui.Client) (err error) {
				list, err = c.Config(cmd.Context())
				return err
			})
			if errors.Is(err, ui.ErrUnreachable) {
				fmt.Fprintln(cmd.ErrOrStderr(), "no daemon runs on this state directory; this is what one started now would take")
				list, err = settingsFromHere(cmd)
			}
			if err != nil {
				return err
			}
			return show(cmd, list, func(w io.Writer) {
				var rows [][]string
				for _, s := range list.Settings {
					from := s.Origin
					if s.Pending != "" {
						from += "; the mesh says " + s.Pending + ", which a restart brings"
					}
					rows = append(rows, []string{s.Name, orDash(s.Value), from})
				}
				table(w, []string{"SETTING", "VALUE", "FROM"}, rows, "no settings")
			})
		},
	}
}

func settingsFromHere(cmd *cobra.Command) (ui.SettingList, error) {
	src := node.Sources{Flags: map[string]string{}, Env: os.LookupEnv}
	if f := cmd.Flags().Lookup("state-dir"); f.Changed {
		src.Flags["state_dir"] = f.Value.String()
	}
	_, settings, warnings, err := node.LoadConfig(src)
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
	}
	return ui.SettingList{Schema: ui.Schema{SchemaVersion: ui.SchemaVersion}, Settings: settings}, err
}
