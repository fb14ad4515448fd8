package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newLoad() *cobra.Command {
	var at string
	var wait, onDemand bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "load MODEL", Short: "Serve a model", Args: exactly(1, "a model"),
		Long: "Serve a model: one replica, where it fits or on the given node.\n\nExamples:\n  llmgw load smollm2\n  llmgw load smollm2 --node box-b\n  llmgw load smollm2 --wait\n  llmgw load smollm2 --on-demand     as a request would: until it is idle",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd, func(c *ui.Client) error {
				r, err := c.Load(cmd.Context(), ui.LoadRequest{Model: args[0], Node: at, OnDemand: onDemand})
				if err != nil {
					return err
				}
				if wait {
					if err := awaitLoaded(cmd.Context(), c, r.Model, timeout); err != nil {
						return err
					}
				}
				return show(cmd, r, func(w io.Writer) { printLoad(w, r, wait) })
			})
		},
	}
	cmd.Flags().StringVar(&at, "node", "", "name or peer ID of the node that shall hold it (a pin)")
	cmd.Flags().BoolVar(&onDemand, "on-demand", false, "load it as a request would, within scale --max: it stays until it is idle")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it serves")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "with --wait: give up after this long")
	return cmd
}

func printLoad(w io.Writer, r ui.LoadResult, waited bool) {
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", warning)
	}
	switch {
	case waited:
		fmt.Fprintf(w, "%s is ready\n", r.Model)
	case r.NodeName == "":
		fmt.Fprintf(w, "%s is wanted and waits: %s\n", r.Model, r.Reason)
	default:
		fmt.Fprintf(w, "%s loads on %s: %s\nwatch it with: llmgw ps\n", r.Model, r.NodeName, r.Reason)
	}
}

// awaitLoaded polls until the model has a ready replica. A replica that failed
// for good ends the wait with the engine's last lines.
func awaitLoaded(ctx context.Context, c *ui.Client, model string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		done, why, err := loadedOrWhyNot(ctx, c, model)
		if done || err != nil {
			tick.Stop()
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("load %s: not ready after %s: %s", model, timeout, why)
			}
			return ctx.Err()
		}
	}
}

func loadedOrWhyNot(ctx context.Context, c *ui.Client, model string) (done bool, why string, err error) {
	list, err := c.Models(ctx)
	if err != nil {
		return false, "", err
	}
	i := slices.IndexFunc(list.Models, func(m ui.Model) bool { return m.Name == model })
	if i < 0 {
		return false, "", fmt.Errorf("load %s: it is no longer in the catalog", model)
	}
	if list.Models[i].Loaded {
		return true, "", nil
	}
	replicas, err := c.Replicas(ctx)
	if err != nil {
		return false, "", err
	}
	for _, r := range replicas.Replicas {
		if r.Model == model && (r.State == "failed" || r.State == "quarantined") {
			return false, "", fmt.Errorf("load %s on %s: %s: %s\n%s", model, r.NodeName, r.State, r.Reason, strings.Join(r.LastLines, "\n"))
		}
		if r.Model == model {
			why = fmt.Sprintf("%s on %s %s", r.State, r.NodeName, r.Reason)
		}
	}
	if why == "" {
		why = list.Models[i].Problem
	}
	return false, why, nil
}

func newUnload() *cobra.Command {
	return &cobra.Command{
		Use: "unload MODEL", Short: "Stop serving a model; its entry and files stay", Args: exactly(1, "a model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return send(cmd, (*ui.Client).Unload, ui.UnloadRequest{Model: args[0]}, func(w io.Writer, r ui.UnloadResult) {
				fmt.Fprintf(w, "%s is unloaded once its requests are done\n", r.Model)
			})
		},
	}
}
