package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newDrain() *cobra.Command {
	var noWait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Move what a node serves to others, and give it no more", Args: exactly(1, "the name or peer ID of a node"),
		Long: `Move what a node serves to others, and give it no new replicas. Each of its replicas
goes on until another node serves in its place; what no other node can have, and
what is pinned to it, stays. It is so until llmgw uncordon NODE.

Exit code 7: something stays.

Examples:
  llmgw drain box-b               before box-b is switched off
  llmgw drain box-b --no-wait     return at once; watch it with llmgw ps
  llmgw uncordon box-b            let it have replicas again`,
		RunE: func(cmd *cobra.Command, args []string) error {
			on := true
			return withDaemon(cmd, func(c *ui.Client) error {
				res, err := c.SetNode(cmd.Context(), ui.NodeRequest{Node: args[0], Draining: &on})
				if err != nil || noWait {
					return errors.Join(err, show(cmd, res, func(w io.Writer) { printNode(w, res) }))
				}
				return awaitDrained(cmd, c, res.Node, timeout)
			})
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is done")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "give up waiting after this long; what is begun goes on")
	return cmd
}

// drained is what a drain came to.
type drained struct {
	ui.Schema
	Node  string           `json:"node"`
	Stays ui.List[staying] `json:"stays"`
}

type staying struct {
	Model  string `json:"model"`
	Slot   int    `json:"slot"`
	Reason string `json:"reason"`
}

// awaitDrained tells what moves until nothing more does.
func awaitDrained(cmd *cobra.Command, c *ui.Client, n ui.Node, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	told := map[string]bool{}
	for tick := time.Tick(300 * time.Millisecond); ; {
		moving, stays, err := leftOn(ctx, c, n)
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("drain %s: not done after %s; it goes on, watch it with: llmgw ps", n.Name, timeout)
		case err != nil:
			return err
		case len(moving) == 0:
			return endDrain(cmd, n, stays)
		}
		for _, line := range moving {
			if !told[line] && !wantsJSON(cmd) {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			told[line] = true
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
}

func endDrain(cmd *cobra.Command, n ui.Node, stays []staying) error {
	err := show(cmd, drained{ui.Schema{SchemaVersion: ui.SchemaVersion}, n.Name, stays}, func(w io.Writer) {
		for _, s := range stays {
			fmt.Fprintf(w, "keeps %s, slot %d: %s\n", s.Model, s.Slot, s.Reason)
		}
		if len(stays) == 0 {
			fmt.Fprintf(w, "%s serves nothing now and is given nothing, until: llmgw uncordon %s\n", n.Name, n.Name)
		}
	})
	if err == nil && len(stays) > 0 {
		return errDegraded
	}
	return err
}

// leftOn says what a node still serves: what is on its way to others, in words, and
// what stays. Until the daemon that is asked has taken the drain in, all is on its
// way.
func leftOn(ctx context.Context, c *ui.Client, n ui.Node) (moving []string, stays []staying, err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(nodes.Nodes, func(o ui.Node) bool { return o.ID == n.ID })
	if i < 0 || !nodes.Nodes[i].Draining {
		return []string{n.Name + " is being drained"}, nil, nil
	}
	list, err := c.Replicas(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range list.Replicas {
		if r.Node != n.ID || r.PID == nil { // those without a process are of a host beside it
			continue
		}
		moves, keeps, err := fateOf(ctx, c, r)
		switch {
		case err != nil:
			return nil, nil, err
		case keeps != "":
			stays = append(stays, staying{r.Model, r.Slot, keeps})
		default:
			moving = append(moving, fmt.Sprintf("%s, slot %d, %s", r.Model, r.Slot, moves))
		}
	}
	return moving, stays, nil
}

// fateOf says of a replica of a node that is drained where it moves, or why it stays.
func fateOf(ctx context.Context, c *ui.Client, r ui.Replica) (moves, stays string, err error) {
	why, err := c.Why(ctx, ui.WhyRequest{Model: r.Model})
	refused := (*ui.APIError)(nil)
	switch {
	case errors.As(err, &refused) && refused.Code == "unreadable_row":
		return "", "its entry cannot be read here (llmgw status)", nil
	case errors.As(err, &refused) && refused.Code == "not_found":
		return "ends: the model was removed", "", nil
	case err != nil:
		return "", "", err
	}
	for _, s := range why.Slots {
		switch {
		case s.Slot != r.Slot:
		case s.OwnerID == r.Node || s.Unread:
			return "", s.Reason, nil
		case s.OwnerID != "":
			return "moves to " + s.Owner, "", nil
		}
	}
	return "ends", "", nil
}
