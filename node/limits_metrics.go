package node

import (
	"llmgw/router/limits"

	"github.com/prometheus/client_golang/prometheus"
)

// limitMetrics shows what limits and budgets let through.
type limitMetrics struct{ l *limits.Limiter }

type limitMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(limits.Stats) float64
}

func limitDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("llmgw_limit_"+name, help, labels, nil)
}

func limitRefused() *prometheus.Desc {
	return limitDesc("refused_total", "Requests that passed no limit or budget, by level and metric.", "level", "metric")
}

func plainLimitMetrics() []limitMetric {
	count := func(name, help string, read func(limits.Stats) uint64) limitMetric {
		return limitMetric{limitDesc(name, help), prometheus.CounterValue, func(s limits.Stats) float64 { return float64(read(s)) }}
	}
	gauge := func(name, help string, read func(limits.Stats) int) limitMetric {
		return limitMetric{limitDesc(name, help), prometheus.GaugeValue, func(s limits.Stats) float64 { return float64(read(s)) }}
	}
	return []limitMetric{
		count("admitted_total", "Requests that passed all limits and budgets.", func(s limits.Stats) uint64 { return s.Admitted }),
		count("settled_total", "Of these, requests whose usage was counted.", func(s limits.Stats) uint64 { return s.Settled }),
		count("released_total", "Of these, requests that no engine got.", func(s limits.Stats) uint64 { return s.Released }),
		count("messages_sent_total", "Messages with rate counts to the other heads.", func(s limits.Stats) uint64 { return s.Sent }),
		count("messages_taken_total", "Messages with rate counts of other heads.", func(s limits.Stats) uint64 { return s.Taken }),
		count("messages_bad_total", "Messages with rate counts that could not be used.", func(s limits.Stats) uint64 { return s.Bad }),
		count("owner_asked_total", "Requests that the owner of their limit was asked about.", func(s limits.Stats) uint64 { return s.Asked }),
		count("owner_unanswered_total", "Of these, questions without an answer in time.", func(s limits.Stats) uint64 { return s.Unanswered }),
		count("usage_lost_total", "Usage records that could not be written.", func(s limits.Stats) uint64 { return s.Lost }),
		gauge("in_flight", "Requests that hold a part of a limit or budget, or none is set for.", func(s limits.Stats) int { return s.InFlight }),
		gauge("meters", "Limits with counts in the last minutes.", func(s limits.Stats) int { return s.Meters }),
	}
}

// Describe implements prometheus.Collector.
func (m limitMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- limitRefused()
	for _, metric := range plainLimitMetrics() {
		out <- metric.desc
	}
}

// Collect implements prometheus.Collector.
func (m limitMetrics) Collect(out chan<- prometheus.Metric) {
	s := m.l.Stats()
	for _, metric := range plainLimitMetrics() {
		out <- prometheus.MustNewConstMetric(metric.desc, metric.kind, metric.read(s))
	}
	for by, n := range s.Refused {
		out <- prometheus.MustNewConstMetric(limitRefused(), prometheus.CounterValue, float64(n), by[0], by[1])
	}
}
