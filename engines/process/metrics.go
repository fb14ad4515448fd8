package process

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	stateDesc = prometheus.NewDesc("llmgw_replica_state",
		"1 for the state that a replica of this node is in.", []string{"model", "slot", "engine", "state"}, nil)
	inFlightDesc = prometheus.NewDesc("llmgw_replica_requests_in_flight",
		"Requests that are at the replica's engine now.", []string{"model", "slot"}, nil)
	waitingDesc = prometheus.NewDesc("llmgw_replica_requests_waiting",
		"Requests in the queue of the replica's engine, where it tells.", []string{"model", "slot"}, nil)
	kvUseDesc = prometheus.NewDesc("llmgw_replica_kv_use_ratio",
		"Part of the KV cache that running requests need, where the engine tells.", []string{"model", "slot"}, nil)
	kvTokensDesc = prometheus.NewDesc("llmgw_replica_kv_tokens",
		"Tokens that the KV cache holds, where the engine tells.", []string{"model", "slot"}, nil)
	kvClearsDesc = prometheus.NewDesc("llmgw_replica_kv_clears_total",
		"Times that the engine emptied its KV cache.", []string{"model", "slot"}, nil)
	restartsDesc = prometheus.NewDesc("llmgw_replica_crashes_total",
		"Times that the replica's engine ended by itself or was given up.", []string{"model", "slot"}, nil)
)

// collector reads the replicas when it is asked, so that a replica that is gone
// leaves no series behind.
type collector struct{ s *Supervisor }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- stateDesc
	ch <- inFlightDesc
	ch <- waitingDesc
	ch <- kvUseDesc
	ch <- kvTokensDesc
	ch <- kvClearsDesc
	ch <- restartsDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range c.s.Status() {
		slot := strconv.Itoa(r.Slot)
		ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, 1, r.Model, slot, r.Engine, string(r.State))
		ch <- prometheus.MustNewConstMetric(inFlightDesc, prometheus.GaugeValue, float64(r.InFlight), r.Model, slot)
		if r.LoadKnown {
			ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(r.Waiting), r.Model, slot)
		}
		if r.KVTokens > 0 {
			ch <- prometheus.MustNewConstMetric(kvUseDesc, prometheus.GaugeValue, r.KVUse, r.Model, slot)
			ch <- prometheus.MustNewConstMetric(kvTokensDesc, prometheus.GaugeValue, float64(r.KVTokens), r.Model, slot)
			ch <- prometheus.MustNewConstMetric(kvClearsDesc, prometheus.CounterValue, float64(r.Cleared), r.Model, slot)
		}
		ch <- prometheus.MustNewConstMetric(restartsDesc, prometheus.CounterValue, float64(r.Restarts), r.Model, slot)
	}
}
