package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newStop() *cobra.Command {
	return stateVerb("stop", "Refuse requests for a model and free its memory; entry and files stay", "stopped")
}

func newStart() *cobra.Command {
	return stateVerb("start", "Serve a stopped model again, as it was asked for before", "served")
}

func stateVerb(verb, short, state string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " MODEL", Short: short, Args: exactly(1, "a model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return setModel(cmd, ui.ModelRequest{Model: args[0], State: &state}, func(m ui.Model) string {
				return fmt.Sprintf("%s is %s", m.Name, m.State)
			})
		},
	}
}

func newScale() *cobra.Command {
	var require, forbid []string
	var replicas, most int
	var idle time.Duration
	cmd := &cobra.Command{
		Use: "scale MODEL", Short: "Say how many replicas a model has, and on which nodes they may be", Args: exactly(1, "a model"),
		Long: `Say how many replicas a model has, and which labels their nodes must or must not have.
Those above --replicas are started while requests ask for them, up to --max, and go
after --idle without a request, or when their memory is needed.

Examples:
  llmgw scale smollm2 --replicas 2
  llmgw scale smollm2 --replicas 0 --max 1 --idle 10m   on demand
  llmgw scale smollm2 --require zone=eu --forbid owner=guest
  llmgw scale smollm2 --require ""                  any node again`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r := ui.ModelRequest{Model: args[0]}
			if cmd.Flags().Changed("replicas") {
				r.Replicas = &replicas
			}
			if cmd.Flags().Changed("max") {
				r.Max = &most
			}
			if cmd.Flags().Changed("idle") {
				seconds := int64(idle / time.Second)
				r.IdleSeconds = &seconds
			}
			for flag, into := range map[string]struct {
				given []string
				field **map[string]string
			}{"require": {require, &r.Require}, "forbid": {forbid, &r.Forbid}} {
				if !cmd.Flags().Changed(flag) {
					continue
				}
				labels, err := parseLabels(into.given)
				if err != nil {
					return err
				}
				*into.field = &labels
			}
			if r.Replicas == nil && r.Max == nil && r.IdleSeconds == nil && r.Require == nil && r.Forbid == nil {
				return usagef("llmgw scale needs --replicas, --max, --idle, --require or --forbid; see llmgw scale --help")
			}
			return setModel(cmd, r, func(m ui.Model) string {
				return fmt.Sprintf("%s: %d wanted, up to %d on demand, which go %s; requires %s; forbids %s", m.Name, m.Wanted, m.Max, idleText(m.IdleSeconds), orDash(joinComma(m.Require)), orDash(joinComma(m.Forbid)))
			})
		},
	}
	cmd.Flags().IntVar(&replicas, "replicas", 1, "how many replicas are wanted")
	cmd.Flags().IntVar(&most, "max", 1, "how many replicas requests may ask for")
	cmd.Flags().DurationVar(&idle, "idle", 0, "how long a replica above --replicas stays without a request; 0: until its memory is needed")
	cmd.Flags().StringArrayVar(&require, "require", nil, "KEY=VALUE that a node must have; replaces all; may be given several times")
	cmd.Flags().StringArrayVar(&forbid, "forbid", nil, "KEY=VALUE that a node must not have; replaces all")
	return cmd
}

func idleText(seconds int64) string {
	if seconds == 0 {
		return "when their memory is needed"
	}
	return "after " + (time.Duration(seconds) * time.Second).String() + " without a request"
}

func setModel(cmd *cobra.Command, r ui.ModelRequest, text func(ui.Model) string) error {
	return send(cmd, (*ui.Client).SetModel, r, func(w io.Writer, res ui.ModelResult) { fmt.Fprintln(w, text(res.Model)) })
}

func newCordon() *cobra.Command {
	return cordonVerb("cordon", "Give a node no new replicas; what it serves goes on", true)
}

func newUncordon() *cobra.Command {
	return cordonVerb("uncordon", "Let a node that was cordoned or drained have new replicas again", false)
}

func cordonVerb(verb, short string, cordoned bool) *cobra.Command {
	var devices []string
	cmd := &cobra.Command{
		Use: verb + " NODE", Short: short, Args: exactly(1, "the name or peer ID of a node"),
		Long: short + ".\n\nExamples:\n  llmgw " + verb + " box-b\n  llmgw " + verb + " box-b --device GPU-1234     one device; llmgw nodes --json lists them",
		RunE: func(cmd *cobra.Command, args []string) error {
			r := ui.NodeRequest{Node: args[0], Cordoned: &cordoned, Devices: devices}
			if !cordoned && len(devices) == 0 {
				r.Draining = &cordoned
			}
			return setNode(cmd, r)
		},
	}
	cmd.Flags().StringArrayVar(&devices, "device", nil, "ID of a device that is meant alone; may be given several times")
	return cmd
}

func newLabel() *cobra.Command {
	var location string
	cmd := &cobra.Command{
		Use: "label NODE [KEY=VALUE...] [KEY=]", Short: "Label a node; KEY= removes a label",
		Long: "Label a node, for models that require or forbid labels; KEY= removes a label.\n\nExamples:\n  llmgw label box-b zone=eu owner=lab\n  llmgw label box-b zone=\n  llmgw label box-b --location 'rack 3'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) == 1 && !cmd.Flags().Changed("location") {
				return usagef("llmgw label needs a node and labels or --location; see llmgw label --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			labels, err := parseLabels(args[1:])
			if err != nil {
				return err
			}
			r := ui.NodeRequest{Node: args[0], Labels: labels}
			if cmd.Flags().Changed("location") {
				r.Location = &location
			}
			return setNode(cmd, r)
		},
	}
	cmd.Flags().StringVar(&location, "location", "", "where the box stands, for people")
	return cmd
}

func setNode(cmd *cobra.Command, r ui.NodeRequest) error {
	return send(cmd, (*ui.Client).SetNode, r, printNode)
}

func printNode(w io.Writer, res ui.NodeResult) {
	n := res.Node
	fmt.Fprintf(w, "%s: labels %s; location %s; cordoned: %t; drained: %t; cordoned devices: %s\n", n.Name, orDash(joinComma(n.Labels)), orDash(n.Location),
		n.Cordoned, n.Draining, orDash(joinComma(n.CordonedDevices)))
}

// parseLabels reads KEY=VALUE pairs; an empty text is none.
func parseLabels(given []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range given {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef("%q is no label; write it as KEY=VALUE", pair)
		}
		labels[key] = value
	}
	return labels, nil
}
