package router

import "github.com/prometheus/client_golang/prometheus"

// metrics of the router. A relay's kind is "local" (an engine of this node),
// "remote" (another node's, asked by this one) or "served" (this node's, asked
// by another one); its outcome is one of the constants below.
type metrics struct {
	requests  *prometheus.CounterVec // route, code
	duration  *prometheus.HistogramVec
	firstByte *prometheus.HistogramVec // route
	relays    *prometheus.CounterVec   // kind, outcome
	refusals  *prometheus.CounterVec   // kind, of refusals that this node gave
	inFlight  prometheus.Gauge
}

const (
	kindLocal  = "local"
	kindRemote = "remote"
	kindServed = "served"

	outcomeOK      = "ok"
	outcomeRefused = "refused"
	outcomeBroken  = "broken"
	outcomeAborted = "aborted"
)

// seconds spans a cached short answer to a long prompt on a slow box.
func seconds() []float64 {
	return []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
}

func newMetrics(reg prometheus.Registerer, bodies *budget) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_requests_total", Help: "Client requests by route and status; 499 is a client that left.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "llmgw_request_duration_seconds", Help: "Time from a client request to the end of its answer.",
			Buckets: seconds(),
		}, []string{"route"}),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "llmgw_time_to_first_token_seconds", Help: "Time from a client request to the first byte of its answer's body.",
			Buckets: seconds(),
		}, []string{"route"}),
		relays: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_relays_total", Help: "Attempts to have an engine answer, by where it is and what became of it.",
		}, []string{"kind", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_refusals_total", Help: "Relays that this node refused before the first byte, by reason.",
		}, []string{"reason"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "llmgw_requests_in_flight", Help: "Client requests in progress.",
		}),
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmgw_body_held_bytes", Help: "Memory taken by request bodies, of clients and of other nodes.",
	}, func() float64 { return float64(bodies.held.Load()) })
	reg.MustRegister(m.requests, m.duration, m.firstByte, m.relays, m.refusals, m.inFlight, held)
	return m
}
