package mesh

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are the mesh's own metrics.
type counters struct {
	refusals *prometheus.CounterVec // by what was refused
	dropped  prometheus.Counter     // gossip messages lost on this box
	rejected prometheus.Counter     // remote rows and cells refused by the screen
	pulls    *prometheus.CounterVec // by result
	offences *prometheus.CounterVec // by what a peer did
	compares *prometheus.CounterVec // of digests, by result
}

func newCounters(reg prometheus.Registerer) (counters, error) {
	c := counters{
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_mesh_refused_total", Help: "Connections, streams and joins refused, by kind.",
		}, []string{"kind"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "llmgw_mesh_gossip_dropped_total", Help: "Gossip messages dropped on this node for full queues.",
		}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "llmgw_mesh_rows_rejected_total", Help: "Remote rows and cells refused because their signer may not write them.",
		}),
		pulls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_mesh_pulls_total", Help: "Pulls of shared state from peers, by result.",
		}, []string{"result"}),
		offences: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_mesh_offences_total", Help: "What peers sent that no well-behaved node sends, by kind.",
		}, []string{"kind"}),
	}
	c.compares = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "llmgw_mesh_digests_compared_total", Help: "Comparisons of whole stores with a peer; differ is a fault of llmgw.",
	}, []string{"result"})
	if reg == nil {
		return c, nil
	}
	for _, collector := range []prometheus.Collector{c.refusals, c.dropped, c.rejected, c.pulls, c.offences, c.compares} {
		if err := reg.Register(collector); err != nil {
			return c, fmt.Errorf("register metrics: %w", err)
		}
	}
	return c, nil
}

func (c counters) refused(kind string) { c.refusals.WithLabelValues(kind).Inc() }

func (c counters) compared(err error, differ bool) {
	result := "same"
	switch {
	case err != nil:
		result = "failed"
	case differ:
		result = "differ"
	}
	c.compares.WithLabelValues(result).Inc()
}
