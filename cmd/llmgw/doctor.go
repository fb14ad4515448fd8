package main

import (
	"fmt"
	"io"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newDoctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look at the way to every peer, in both directions", Args: exactly(0, ""),
		Long: "Look at the way to every peer, in both directions: seen by mDNS, TCP, handshake, mesh,\nversion, clock, path and round trip. It takes some 10 s when a peer does not answer.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).Doctor, func(w io.Writer, r ui.DoctorResult) { printDoctor(w, r.Peers) })
		},
	}
}

func printDoctor(w io.Writer, peers []ui.Diagnosis) {
	if len(peers) == 0 {
		fmt.Fprintln(w, "no peers: none is a member, given by --peer, or seen on the link")
	}
	for _, p := range peers {
		kind := "not a member"
		if p.Member {
			kind = "member"
		}
		fmt.Fprintf(w, "%s (%s), %s, at %s\n", orDash(p.Name), shortID(orDash(p.ID)), kind, orDash(joinComma(p.Addresses)))
		var rows [][]string
		for _, way := range []struct {
			name   string
			checks []ui.Check
		}{{"to it", p.Out}, {"from it", p.In}} {
			for _, c := range way.checks {
				rows = append(rows, []string{"  " + way.name, c.Name, c.Result, orDash(c.Text)})
			}
		}
		table(w, []string{"  WAY", "CHECK", "RESULT", "FOUND"}, rows, "  nothing could be checked")
		if p.InError != "" {
			fmt.Fprintf(w, "  from it: %s\n", p.InError)
		}
	}
}

func newIdentity() *cobra.Command {
	cmd := &cobra.Command{Use: "identity", Short: "Change this box's identity", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(&cobra.Command{
		Use: "rotate", Short: "Give this box a new identity, for instance after its disk was copied", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).RotateIdentity, func(w io.Writer, r ui.RotateResult) {
				fmt.Fprintf(w, "this box is %s from now on; its daemon starts again\n", r.ID)
				if !r.Admitted {
					fmt.Fprintln(w, "it is no member under that identity yet: llmgw token new on a member, then llmgw join here")
				}
				if !r.Left {
					fmt.Fprintln(w, "the old identity stays a member; if no copy of this box uses it: llmgw nodes remove")
				}
			})
		},
	})
	return cmd
}

func newRestart() *cobra.Command {
	return &cobra.Command{
		Use: "restart", Short: "Start the daemon again; engines keep running", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).Restart, func(w io.Writer, r ui.RestartResult) {
				fmt.Fprintln(w, "the daemon starts again; its engines keep running")
			})
		},
	}
}
