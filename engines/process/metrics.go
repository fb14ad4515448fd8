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
	ch <- restartsDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range c.s.Status() {
		slot := strconv.Itoa(r.Slot)
		ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, 1, r.Model, slot, r.Engine, string(r.State))
		ch <- prometheus.MustNewConstMetric(inFlightDesc, prometheus.GaugeValue, float64(r.InFlight), r.Model, slot)
		ch <- prometheus.MustNewConstMetric(restartsDesc, prometheus.CounterValue, float64(r.Restarts), r.Model, slot)
	}
}
