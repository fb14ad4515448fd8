package main

import (
	"fmt"
	"io"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

func newPs() *cobra.Command {
	return &cobra.Command{
		Use: "ps", Short: "List the replicas that run, on all nodes", Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, (*ui.Client).Replicas, func(w io.Writer, list ui.ReplicaList) { printReplicas(w, list.Replicas) })
		},
	}
}

func printReplicas(w io.Writer, replicas []ui.Replica) {
	var rows [][]string
	for _, r := range replicas {
		since := "-"
		if r.StateSeconds != nil {
			since = (time.Duration(*r.StateSeconds) * time.Second).String()
		}
		rows = append(rows, []string{r.Model, r.NodeName, r.State, since, r.Engine, orDash(r.Device),
			number(r.Context), number(r.InFlight) + "/" + number(r.Slots), queue(r), kvUse(r), fmt.Sprint(r.Restarts), orDash(r.Reason)})
	}
	table(w, []string{"MODEL", "NODE", "STATE", "FOR", "ENGINE", "DEVICE", "CONTEXT", "BUSY", "QUEUE", "KV", "RESTARTS", "REASON"}, rows,
		"nothing runs; serve a model with: llmgw load MODEL")
	for _, r := range replicas {
		for _, line := range r.LastLines {
			fmt.Fprintf(w, "%s on %s | %s\n", r.Model, r.NodeName, line)
		}
	}
}

// queue is what waits inside the engine; what waits at heads has no replica yet.
func queue(r ui.Replica) string {
	if r.Waiting == nil {
		return "-"
	}
	return fmt.Sprint(*r.Waiting)
}

func kvUse(r ui.Replica) string {
	if r.KVUse == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100**r.KVUse)
}

func number(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}
