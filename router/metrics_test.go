package router

import (
	"net/http"
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
		return counted(entry.metrics.requests.WithLabelValues("chat", "200")) == 1
	})
	got := text(t, send(t, entry, "GET", "/metrics", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer good-metrics") }))
	for _, line := range []string{
		`llmgw_requests_total{code="200",route="chat"} 1`,
		`llmgw_requests_total{code="400",route="chat"} 1`,
		`llmgw_relays_total{kind="remote",outcome="ok"} 1`,
		`llmgw_time_to_first_token_seconds_count{route="chat"} 1`,
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
	n.metrics.firstByte.WithLabelValues("chat").Observe(1)
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
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
