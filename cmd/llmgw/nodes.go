package main

import (
	"context"
	"fmt"
	"io"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newNodes() *cobra.Command {
	cmd := &cobra.Command{
		Use: "nodes", Short: "List the members of the mesh and the boxes seen beside it", Args: exactly(0, ""),
		Long: "List the members of the mesh, and boxes on the link that are not joined.\n\nExamples:\n  llmgw nodes\n  llmgw nodes --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).Nodes, printNodes)
		},
	}
	cmd.AddCommand(newNodesRemove(), newNodesReadmit(), newNodesRole("promote", "Make a member an admin", "admin"),
		newNodesRole("demote", "Take the admin role from a member", "member"), newNodesRename())
	return cmd
}

func newNodesRemove() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "remove NODE", Short: "Remove a member from the mesh, on every box; its identity is banned", Args: exactly(1, "the name or peer ID of a node"),
		Long: "Remove a member from the mesh, on every box. Its identity is banned: it may come back\nonly after llmgw nodes readmit and by a new token. It is told the reason.\n\nExample:\n  llmgw nodes remove box-c --reason 'sold'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMember(cmd, "removed", func(c *ui.Client) (ui.MemberResult, error) {
				return c.RemoveNode(cmd.Context(), ui.MemberRequest{Node: args[0], Reason: reason})
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; told to the box")
	return cmd
}

func newNodesReadmit() *cobra.Command {
	return &cobra.Command{
		Use: "readmit NODE", Short: "Let a removed box join again, by a new token", Args: exactly(1, "the name or peer ID of a removed node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMember(cmd, "may join again by a new token", func(c *ui.Client) (ui.MemberResult, error) {
				return c.ReadmitNode(cmd.Context(), ui.MemberRequest{Node: args[0]})
			})
		},
	}
}

func newNodesRole(verb, short, role string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NODE", Short: short, Args: exactly(1, "the name or peer ID of a node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMember(cmd, "has role "+role, func(c *ui.Client) (ui.MemberResult, error) {
				return c.SetRole(cmd.Context(), ui.RoleRequest{Node: args[0], Role: role})
			})
		},
	}
}

func newNodesRename() *cobra.Command {
	return &cobra.Command{
		Use: "rename NAME", Short: "Give this box another name", Args: exactly(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMember(cmd, "is what this box is called now", func(c *ui.Client) (ui.MemberResult, error) {
				return c.Rename(cmd.Context(), ui.RenameRequest{Name: args[0]})
			})
		},
	}
}

func changeMember(cmd *cobra.Command, what string, change func(*ui.Client) (ui.MemberResult, error)) error {
	return ask(cmd, func(c *ui.Client, _ context.Context) (ui.MemberResult, error) { return change(c) }, func(w io.Writer, r ui.MemberResult) {
		fmt.Fprintf(w, "%s (%s) %s\n", orDash(r.Name), shortID(r.ID), what)
	})
}

// stateText is how a member is, and what an admin has said of it.
func stateText(n ui.Node) string {
	switch {
	case n.Draining:
		return n.State + ", drained"
	case n.Cordoned:
		return n.State + ", cordoned"
	}
	return n.State
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
		rows = append(rows, []string{n.Name, shortID(n.ID), stateText(n), n.Role, orDash(n.Version), fmt.Sprint(gpus),
			bytesText(n.Hardware.RAMFree) + " of " + bytesText(n.Hardware.RAMTotal), agoText(n.LastContactSeconds), tripText(n.RoundTripMS), orDash(n.Path)})
	}
	table(w, []string{"NAME", "ID", "STATE", "ROLE", "VERSION", "GPUS", "MEMORY FREE", "HEARD AGO", "ROUND TRIP", "PATH"}, rows, "no members")
	if len(list.Nodes) == 1 {
		fmt.Fprintln(w, "\nno peers yet; on this box: llmgw token new, on the other: llmgw join TOKEN")
	}
	for _, n := range list.Nodes {
		if n.Mismatch != "" {
			fmt.Fprintln(w, n.Mismatch)
		}
	}
	for _, s := range list.Seen {
		fmt.Fprintf(w, "seen, not joined: %s (%s): %s\n", s.Name, shortID(s.ID), s.Reason)
	}
}
