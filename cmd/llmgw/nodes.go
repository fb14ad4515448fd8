package main

import (
	"fmt"
	"io"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newNodes() *cobra.Command {
	return &cobra.Command{
		Use: "nodes", Short: "List the members of the mesh and the boxes seen beside it", Args: exactly(0, ""),
		Long: "List the members of the mesh, and boxes on the link that are not joined.\n\nExamples:\n  llmgw nodes\n  llmgw nodes --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd, func(c *ui.Client) error {
				list, err := c.Nodes(cmd.Context())
				if err != nil {
					return err
				}
				return show(cmd, list, func(w io.Writer) { printNodes(w, list) })
			})
		},
	}
}

func printNodes(w io.Writer, list ui.NodeList) {
	var rows [][]string
	for _, n := range list.Nodes {
		gpus := 0
		for _, d := range n.Hardware.Devices {
			if d.Kind != "cpu" {
				gpus++
			}
		}
		rows = append(rows, []string{n.Name, shortID(n.ID), n.State, n.Role, orDash(n.Version), fmt.Sprint(gpus),
			bytesText(n.Hardware.RAMFree) + " of " + bytesText(n.Hardware.RAMTotal), agoText(n.LastContactSeconds), orDash(n.Path)})
	}
	table(w, []string{"NAME", "ID", "STATE", "ROLE", "VERSION", "GPUS", "MEMORY FREE", "HEARD AGO", "PATH"}, rows, "no members")
	if len(list.Nodes) == 1 {
		fmt.Fprintln(w, "\nno peers yet; on this box: llmgw token new, on the other: llmgw join TOKEN")
	}
	for _, s := range list.Seen {
		fmt.Fprintf(w, "seen, not joined: %s (%s): %s\n", s.Name, shortID(s.ID), s.Reason)
	}
}
