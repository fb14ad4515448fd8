package engines

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoadIsReadFromMetrics(t *testing.T) {
	vllm, err := os.ReadFile("testdata/vllm-0.32-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		read func([]byte) Load
		body string
		want Load
	}{
		"vLLM 0.32, recorded": {VLLMLoad, string(vllm), Load{Known: true, Running: 4, Waiting: 3, KVUse: 0.6349206349206349, KVTokens: 64 * 32}},
		"vLLM of two cores": {VLLMLoad, "vllm:num_requests_running{engine=\"0\",model_name=\"a } 7\"} 3.0\nvllm:num_requests_running{engine=\"1\"} 1\n" +
			"vllm:num_requests_waiting{engine=\"0\"} 2\nvllm:gpu_cache_usage_perc{engine=\"0\"} 0.25\nvllm:gpu_cache_usage_perc{engine=\"1\"} 0.75\n", Load{Known: true, Running: 4, Waiting: 2, KVUse: 0.5}},
		"numbers that cannot be": {VLLMLoad, "vllm:num_requests_running NaN\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 7\n" +
			"vllm:cache_config_info{block_size=\"-1\",num_gpu_blocks=\"99999999999999999999\"} 1\n", Load{KVUse: 1}},
		"llama-server": {LlamaLoad, "# HELP llamacpp:requests_processing Number of requests processing.\n# TYPE llamacpp:requests_processing gauge\n" +
			"llamacpp:requests_processing 4\n# TYPE llamacpp:requests_deferred gauge\nllamacpp:requests_deferred 9\n", Load{Known: true, Running: 4, Waiting: 9}},
		"half of it":  {LlamaLoad, "llamacpp:requests_processing 4\n", Load{}},
		"cut short":   {LlamaLoad, "llamacpp:requests_processing 4\nllamacpp:requests_deferred 1\nllamacpp:{", Load{Known: true, Running: 4, Waiting: 1}},
		"no metrics":  {VLLMLoad, "<html>", Load{}},
		"nothing":     {VLLMLoad, "", Load{}},
		"huge number": {LlamaLoad, "llamacpp:requests_processing 1e300\nllamacpp:requests_deferred 0\n", Load{Known: true, Running: 1<<31 - 1}},
	} {
		if diff := cmp.Diff(c.want, c.read([]byte(c.body))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
