package router

import (
	"strconv"
	"sync"
	"time"

	"llmgw/router/affinity"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the router. A relay's kind is "local" (an engine of this node),
// "remote" (another node's, asked by this one), "served" (this node's, asked by
// another one) or "outside" (a provider's); its outcome is one of the constants below.
type metrics struct {
	requests  *prometheus.CounterVec   // route, code, model, key, node
	duration  *prometheus.HistogramVec // route, model
	firstByte *prometheus.HistogramVec // route, model
	perToken  *prometheus.HistogramVec // model
	relays    *prometheus.CounterVec   // kind, outcome
	refusals  *prometheus.CounterVec   // kind, of refusals that this node gave
	relayed   prometheus.Counter
	handed    *prometheus.CounterVec // outcome
	truncated *prometheus.CounterVec // model
	inFlight  prometheus.Gauge
	keys      names
}

// ended counts a request. What was asked for and not found is no label: clients
// could make as many as they like.
func (m *metrics) ended(t *request, code int, took time.Duration) {
	m.inFlight.Dec()
	m.requests.WithLabelValues(t.route.name, strconv.Itoa(code), t.model, m.keys.bounded(t.key.Name), t.server).Inc()
	m.duration.WithLabelValues(t.route.name, t.model).Observe(took.Seconds())
}

// maxKeyLabels bounds the keys that metrics name; the rest are "other".
const maxKeyLabels = 200

// names are the values that a label has had.
type names struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (n *names) bounded(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.seen[name]:
	case len(n.seen) >= maxKeyLabels:
		return "other"
	case n.seen == nil:
		n.seen = map[string]bool{name: true}
	default:
		n.seen[name] = true
	}
	return name
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

func newMetrics(cfg Config, r *Router) *metrics {
	reg := cfg.Metrics
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_requests_total", Help: "Client requests by route, status (499 is a client that left), model, name of the key, and node that answered.",
		}, []string{"route", "code", "model", "key", "node"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "llmgw_request_duration_seconds", Help: "Time from a client request to the end of its answer.",
			Buckets: seconds(),
		}, []string{"route", "model"}),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "llmgw_time_to_first_token_seconds", Help: "Time from a client request to the first byte of its answer's body.",
			Buckets: seconds(),
		}, []string{"route", "model"}),
		perToken: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "llmgw_time_per_output_token_seconds", Help: "Mean time between the tokens of a streamed answer, one observation an answer.",
			Buckets: []float64{.001, .0025, .005, .01, .02, .03, .05, .075, .1, .15, .25, .5, 1, 2.5},
		}, []string{"model"}),
		relays: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_relays_total", Help: "Attempts to have an engine answer, by where it is and what became of it.",
		}, []string{"kind", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_refusals_total", Help: "Relays that this node refused before the first byte, by reason.",
		}, []string{"reason"}),
		relayed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "llmgw_relayed_bytes_total", Help: "Bytes of engines' answers that this node relayed to clients.",
		}),
		truncated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_prompts_suspected_cut_total", Help: "Prompts of which the engine told far fewer tokens than their bytes let expect.",
		}, []string{"model"}),
		handed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llmgw_conversations_handed_over_total", Help: "Conversations whose prompts another replica computed before this node's drained, by outcome.",
		}, []string{"outcome"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "llmgw_requests_in_flight", Help: "Client requests in progress.",
		}),
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmgw_body_held_bytes", Help: "Memory taken by request bodies, of clients and of other nodes.",
	}, func() float64 { return float64(r.bodies.held.Load()) })
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmgw_breakers_open", Help: "Replicas that get no requests for a while, as they failed several times in a row.",
	}, func() float64 { return float64(r.breakers.count(r.now())) })
	queued := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "llmgw_requests_queued", Help: "Requests that wait at this node for a replica with room.",
	}, func() float64 { return float64(r.queue.length()) })
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "llmgw_info", Help: "One; the labels say which node and version this is.",
		ConstLabels: prometheus.Labels{"node": cfg.Node, "version": cfg.Version},
	})
	info.Set(1)
	registerPrefixes(reg, r.picker)
	reg.MustRegister(m.requests, m.duration, m.firstByte, m.perToken, m.relays, m.refusals, m.relayed, m.handed, m.truncated, m.inFlight, held, open, queued, info)
	return m
}

// registerPrefixes shows what is believed and what engines say of warm
// prefixes. Tokens are as this head estimates them, but for those that engines
// report.
func registerPrefixes(reg prometheus.Registerer, p *affinity.Picker) {
	counter := func(name, help string, read func(affinity.Stats) uint64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
			return float64(read(p.Stats()))
		}))
	}
	gauge := func(name, help string, read func(affinity.Stats) int) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			return float64(read(p.Stats()))
		}))
	}
	counter("llmgw_prefix_picks_total", "Replicas chosen for a request, each attempt counted.",
		func(s affinity.Stats) uint64 { return s.Picks })
	counter("llmgw_prefix_prompt_tokens_total", "Prompt tokens of chosen replicas' requests, estimated.",
		func(s affinity.Stats) uint64 { return s.Tokens })
	counter("llmgw_prefix_warm_tokens_total", "Of these, tokens believed warm at the replica.",
		func(s affinity.Stats) uint64 { return s.Warm })
	counter("llmgw_prefix_reported_tokens_total", "Prompt tokens of answers in which the engine told what it had cached.",
		func(s affinity.Stats) uint64 { return s.Prompt })
	counter("llmgw_prefix_cached_tokens_total", "Of these, tokens that the engine had cached.",
		func(s affinity.Stats) uint64 { return s.Cached })
	counter("llmgw_prefix_messages_sent_total", "Messages to the other heads.",
		func(s affinity.Stats) uint64 { return s.Shared })
	counter("llmgw_prefix_messages_taken_total", "Messages of other heads.",
		func(s affinity.Stats) uint64 { return s.Taken })
	gauge("llmgw_prefix_blocks", "Blocks of prompts that are believed warm, over all replicas.",
		func(s affinity.Stats) int { return s.Blocks })
	gauge("llmgw_prefix_index_bytes", "Memory of the index of warm prefixes.",
		func(s affinity.Stats) int { return s.Bytes })
}
