package sim

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// stats count what happened. Streams are counted apart, so that a test can
// prove from the engine's side that a client's leaving reached it.
type stats struct {
	processing, deferred, running          atomic.Int64
	completed, aborted                     atomic.Int64
	promptTokens, predicted, longest       atomic.Int64
	promptMicroseconds, decodeMicroseconds atomic.Int64
	computing                              atomic.Int64 // tokens of the generations that have a slot
}

// finish counts a generation that held a slot.
func (t *stats) finish(g *generation, err error) {
	if err != nil {
		t.aborted.Add(1)
	} else {
		t.completed.Add(1)
	}
	t.predicted.Add(int64(g.made))
	if g.first.IsZero() {
		return
	}
	t.promptTokens.Add(int64(g.plan.prompt))
	t.promptMicroseconds.Add(g.first.Sub(g.begun).Microseconds())
	t.decodeMicroseconds.Add(g.s.cfg.Now().Sub(g.first).Microseconds())
	for n := int64(g.plan.prompt + g.made); ; {
		old := t.longest.Load()
		if n <= old || t.longest.CompareAndSwap(old, n) {
			return
		}
	}
}

// Stats are the server's counters, for tests that run it inside themselves.
type Stats struct {
	Running   int64 // streams now
	Deferred  int64 // generations that wait for a slot
	Completed int64 // generations that reached their end
	Aborted   int64 // generations whose client left, or that a fault cut off
	Predicted int64 // tokens
}

// Stats reads the counters.
func (s *Server) Stats() Stats {
	t := &s.stats
	return Stats{
		Running: t.running.Load(), Deferred: t.deferred.Load(),
		Completed: t.completed.Load(), Aborted: t.aborted.Load(), Predicted: t.predicted.Load(),
	}
}

// kvUse is the part of the cache that running generations need.
func (s *Server) kvUse() float64 {
	if s.cfg.Params.CacheTokens == 0 {
		return 0
	}
	return min(float64(s.stats.computing.Load())/float64(s.cfg.Params.CacheTokens), 1)
}

// metrics prints llama-server's names, vLLM's and our own.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	t := &s.stats
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, m := range []struct {
		name, kind, help string
		value            float64
	}{
		{"llamacpp:prompt_tokens_total", "counter", "Prompt tokens processed.", float64(t.promptTokens.Load())},
		{"llamacpp:prompt_seconds_total", "counter", "Prompt process time.", float64(t.promptMicroseconds.Load()) / 1e6},
		{"llamacpp:tokens_predicted_total", "counter", "Generation tokens processed.", float64(t.predicted.Load())},
		{"llamacpp:tokens_predicted_seconds_total", "counter", "Predict process time.", float64(t.decodeMicroseconds.Load()) / 1e6},
		{"llamacpp:n_tokens_max", "counter", "Largest observed number of tokens of a request.", float64(t.longest.Load())},
		{"llamacpp:requests_processing", "gauge", "Requests processing.", float64(t.processing.Load())},
		{"llamacpp:requests_deferred", "gauge", "Requests deferred.", float64(t.deferred.Load())},
		{"vllm:num_requests_running", "gauge", "Requests in model execution batches.", float64(t.processing.Load())},
		{"vllm:num_requests_waiting", "gauge", "Requests waiting to be processed.", float64(t.deferred.Load())},
		{"vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", s.kvUse()},
		{"llmgw_sim_streams_running", "gauge", "Streams being written.", float64(t.running.Load())},
		{"llmgw_sim_streams_completed_total", "counter", "Generations that reached their end.", float64(t.completed.Load())},
		{"llmgw_sim_streams_aborted_total", "counter", "Generations whose client left or that a fault cut off.", float64(t.aborted.Load())},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %g\n", m.name, m.help, m.name, m.kind, m.name, m.value)
	}
	if blocks := s.cfg.Params.CacheTokens / blockTokens; blocks > 0 {
		const name = "vllm:cache_config_info"
		fmt.Fprintf(w, "# HELP %s Information of the LLMEngine CacheConfig\n# TYPE %s gauge\n%s{block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n",
			name, name, name, blockTokens, blocks)
	}
}
