package lab

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// JSON runs a verb with --json and decodes what it prints.
func JSON[T any](b *Box, args ...string) T {
	b.tb.Helper()
	var v T
	out := b.CLI(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		b.tb.Fatalf("box %s: llmgw %s --json: %v\n%s", b.Name, strings.Join(args, " "), err, out)
	}
	return v
}

// Nodes maps the names of the members that b knows to their states.
func (b *Box) Nodes() map[string]string {
	b.tb.Helper()
	states := map[string]string{}
	for _, n := range JSON[ui.NodeList](b, "nodes").Nodes {
		states[n.Name] = n.State
	}
	return states
}

// Sees waits until b knows other in one of these states.
func (b *Box) Sees(other *Box, within time.Duration, states ...string) {
	b.tb.Helper()
	what := fmt.Sprintf("box %s sees %s as %s", b.Name, other.Name, strings.Join(states, " or "))
	Eventually(b.tb, within, what, func() (bool, string) {
		nodes := b.Nodes()
		return slices.Contains(states, nodes[other.Name]), fmt.Sprint(nodes)
	})
}

// Join makes b a member of the mesh of issuer and waits until both see it.
func (b *Box) Join(issuer *Box) {
	b.tb.Helper()
	b.CLI("join", issuer.CLI("token", "new"))
	b.Sees(issuer, 15*time.Second, ui.NodeLive)
	issuer.Sees(b, 15*time.Second, ui.NodeLive)
}

// Replica is the one replica of a model that b knows of; ok is false when there
// is none.
func (b *Box) Replica(model string) (r ui.Replica, ok bool) {
	b.tb.Helper()
	for _, r := range JSON[ui.ReplicaList](b, "ps").Replicas {
		if r.Model == model {
			return r, true
		}
	}
	return ui.Replica{}, false
}

// AwaitReplica waits until b knows a replica of the model in the state.
func (b *Box) AwaitReplica(model, state string, within time.Duration) ui.Replica {
	b.tb.Helper()
	var found ui.Replica
	what := fmt.Sprintf("box %s knows a replica of %s that is %s", b.Name, model, state)
	Eventually(b.tb, within, what, func() (bool, string) {
		r, ok := b.Replica(model)
		found = r
		return ok && r.State == state, fmt.Sprintf("%+v", r)
	})
	return found
}

// Replicas are all replicas of a model that b knows of, in any state.
func (b *Box) Replicas(model string) (out []ui.Replica) {
	b.tb.Helper()
	for _, r := range JSON[ui.ReplicaList](b, "ps").Replicas {
		if r.Model == model {
			out = append(out, r)
		}
	}
	return out
}

// AwaitReplicaOn waits until b knows a ready replica of the model on holder.
func (b *Box) AwaitReplicaOn(model string, holder *Box, within time.Duration) {
	b.tb.Helper()
	Eventually(b.tb, within, "box "+b.Name+" knows "+model+" as ready on "+holder.Name, func() (bool, string) {
		for _, r := range b.Replicas(model) {
			if r.NodeName == holder.Name && r.State == string(catalog.ReplicaReady) {
				return true, ""
			}
		}
		return false, b.CLI("ps") + "\n" + b.Try("why", model).String()
	})
}
