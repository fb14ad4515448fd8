package router

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

func TestMetricsTellWhatHappened(t *testing.T) {
	entry, holder := pair(t, true, func(w http.ResponseWriter, _ *http.Request) { event(w, done) })
	text(t, send(t, entry, "POST", chatPath, chatBody))
	text(t, send(t, entry, "POST", chatPath, "{"))
	entry.checkReleased(t)
	eventually(t, "the request is counted", func() bool {
		return counted(entry.metrics.requests.WithLabelValues("chat", "200", "m", "laptop", "box-b")) == 1
	})
	got := text(t, send(t, entry, "GET", "/metrics", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer good-metrics") }))
	for _, line := range []string{
		`llmgw_requests_total{code="200",key="laptop",model="m",node="box-b",route="chat"} 1`,
		`llmgw_requests_total{code="400",key="laptop",model="",node="",route="chat"} 1`,
		`llmgw_relayed_bytes_total 14`,
		`llmgw_breakers_open 0`,
		`llmgw_info{node="box-a",version="1.2.3"} 1`,
		`llmgw_relays_total{kind="remote",outcome="ok"} 1`,
		`llmgw_time_to_first_token_seconds_count{model="m",route="chat"} 1`,
		`llmgw_requests_in_flight 1`,
		`llmgw_body_held_bytes 0`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	served := holder.metrics.relays.WithLabelValues(kindServed, outcomeOK)
	eventually(t, "the holder counts it", func() bool { return counted(served) == 1 })
}

func TestMetricNamesAreClean(t *testing.T) {
	n := newNode(t)
	text(t, send(t, n, "POST", chatPath, chatBody))
	n.metrics.relays.WithLabelValues(kindLocal, outcomeOK).Inc()
	n.metrics.refusals.WithLabelValues("busy").Inc()
	n.metrics.firstByte.WithLabelValues("chat", "m").Observe(1)
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestKeysAsLabelsAreBounded(t *testing.T) {
	var n names
	for i := range 3 * maxKeyLabels {
		name := strconv.Itoa(i)
		if got := n.bounded(name); (got == name) != (i < maxKeyLabels) {
			t.Fatalf("key %d has the label %q", i, got)
		}
	}
	if n.bounded("0") != "0" {
		t.Error("a label was lost")
	}
}

// counted reads a counter.
func counted(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		return -1
	}
	return m.GetCounter().GetValue()
}

func TestMetricsMayBeMadePublic(t *testing.T) {
	n := newNode(t, func(c *Config) { c.PublicMetrics = true })
	if resp := send(t, n, "GET", "/metrics", "", func(r *http.Request) { r.Header.Del("Authorization") }); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// requestsCounted sums up the requests of a route and status over all other
// labels.
func (n *node) requestsCounted(t testing.TB, route, code string) float64 {
	t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != "llmgw_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["route"] == route && labels["code"] == code {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
