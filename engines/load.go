package engines

import (
	"bytes"
	"math"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Load is what a running engine tells of its work.
type Load struct {
	Known            bool    // Running and Waiting are told
	Running, Waiting int     // requests that it computes, and that it queues
	KVUse            float64 // of its KV cache by what it computes, 0 to 1; 0: not told
	KVTokens         int64   // that its KV cache holds; 0: not told
}

// LlamaLoad reads llama-server's metrics. It tells nothing of its KV cache, of
// which each slot has its own part.
func LlamaLoad(metrics []byte) Load {
	m := readSamples(metrics)
	return m.load("llamacpp:requests_processing", "llamacpp:requests_deferred")
}

// VLLMLoad reads vLLM's metrics. Metrics that cannot be read tell nothing.
func VLLMLoad(metrics []byte) Load {
	m := readSamples(metrics)
	l := m.load("vllm:num_requests_running", "vllm:num_requests_waiting")
	for _, name := range []string{"vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"} { // the former is older
		if use, ok := m.sum(name); ok {
			l.KVUse = min(use/float64(len(m[name].GetMetric())), 1)
		}
	}
	for _, cache := range m["vllm:cache_config_info"].GetMetric() {
		size, blocks := labelNumber(cache, "block_size"), labelNumber(cache, "num_gpu_blocks")
		l.KVTokens += size * blocks
	}
	return l
}

// samples are metrics by their names.
type samples map[string]*dto.MetricFamily

func readSamples(metrics []byte) samples {
	p := expfmt.NewTextParser(model.LegacyValidation)
	// What comes before a line that cannot be read is there all the same.
	families, _ := p.TextToMetricFamilies(bytes.NewReader(metrics))
	return families
}

func (m samples) load(running, waiting string) Load {
	r, okRunning := m.sum(running)
	w, okWaiting := m.sum(waiting)
	if !okRunning || !okWaiting {
		return Load{}
	}
	return Load{Known: true, Running: int(min(r, math.MaxInt32)), Waiting: int(min(w, math.MaxInt32))}
}

// sum adds the samples of a metric, of which an engine has one for each of its
// cores; false: there is none, or one is no number that can be.
func (m samples) sum(name string) (sum float64, ok bool) {
	for _, s := range m[name].GetMetric() {
		v := s.GetGauge().GetValue() + s.GetCounter().GetValue() + s.GetUntyped().GetValue()
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return 0, false
		}
		sum, ok = sum+v, true
	}
	return sum, ok
}

// labelNumber reads a label that is a number; 0: it is not there, or is none.
func labelNumber(s *dto.Metric, name string) int64 {
	for _, l := range s.GetLabel() {
		if l.GetName() == name {
			n, err := strconv.ParseUint(l.GetValue(), 10, 31)
			if err != nil {
				return 0
			}
			return int64(n)
		}
	}
	return 0
}
