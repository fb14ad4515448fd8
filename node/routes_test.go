package node

import (
	"testing"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router"

	"github.com/google/go-cmp/cmp"
)

// TestRoutesGoByWhatEnginesTell: slots, queue, and cache of a replica as the
// router sees them.
func TestRoutesGoByWhatEnginesTell(t *testing.T) {
	ready := catalog.ReplicaStatus{Model: "m", State: catalog.ReplicaReady, PID: 77, Slots: 8, Context: 1000, InFlight: 5}
	told := router.Replica{Peer: "a", Node: "box", Model: "m", Local: true, Boot: 77, Slots: 8, Context: 1000, InFlight: 5, KVTokens: 8000}
	for name, c := range map[string]struct {
		status func(*catalog.ReplicaStatus)
		want   func(*router.Replica)
	}{
		"it tells nothing":           {func(*catalog.ReplicaStatus) {}, func(*router.Replica) {}},
		"its cache":                  {func(s *catalog.ReplicaStatus) { s.KVTokens, s.KVUse = 5000, 0.5 }, func(r *router.Replica) { r.KVTokens, r.KVUse = 5000, 0.5 }},
		"its cache was emptied":      {func(s *catalog.ReplicaStatus) { s.Cleared = 2 }, func(r *router.Replica) { r.Boot = 77 + 2<<32 }},
		"it does fewer than it says": {func(s *catalog.ReplicaStatus) { s.AtOnce = 3 }, func(r *router.Replica) { r.Slots = 3 }},
		"it does as many":            {func(s *catalog.ReplicaStatus) { s.AtOnce = 9 }, func(*router.Replica) {}},
		"its slots are not told":     {func(s *catalog.ReplicaStatus) { s.Slots, s.AtOnce = 0, 3 }, func(r *router.Replica) { r.Slots, r.KVTokens = 3, 0 }},
	} {
		status, want := ready, told
		c.status(&status)
		c.want(&want)
		v := &view{
			nodes: []mesh.Node{{ID: "a", State: mesh.StateSelf, Presence: catalog.Presence{Replicas: []catalog.ReplicaStatus{status}}}},
			names: map[string]string{"a": "box"},
		}
		got := v.route(catalog.Model{ID: "m"})
		if diff := cmp.Diff([]router.Replica{want}, got.Replicas); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
