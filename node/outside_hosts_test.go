package node

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
)

// papers is a host of documents by path; what is not there is 404.
func papers(docs map[string]string) hostAPI {
	return func(path string) (int, []byte, error) {
		doc, ok := docs[path]
		switch {
		case !ok:
			return 404, []byte(`{"error":"not found"}`), nil
		case doc == "503":
			return 503, []byte(`{"error":{"message":"Loading model"}}`), nil
		case doc == "dies":
			return 0, nil, errors.New("connection refused")
		}
		return 200, []byte(doc), nil
	}
}

func TestWhatHostsTell(t *testing.T) {
	const metrics = "# HELP x\nvllm:num_requests_running{engine=\"0\",model_name=\"a } 7\"} 3.0\nvllm:num_requests_running{engine=\"1\"} 1\n" +
		"vllm:num_requests_waiting{engine=\"0\"} 2\nvllm:num_requests_waiting_by_reason{x=\"y\"} 90\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.37\n" +
		"vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\"} 1.0\nvllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"None\"} 1.0\n"
	for name, c := range map[string]struct {
		docs map[string]string
		want catalog.HostStatus
	}{
		"Ollama": {map[string]string{
			"/api/version": `{"version":"0.12.1"}`, "/v1/models": `{"data":[{"id":"qwen3:8b"}]}`,
			"/api/tags": `{"models":[{"name":"qwen3:8b","size":1},{"name":"llama3:latest"},{"name":""}]}`,
			"/api/ps":   `{"models":[{"name":"qwen3:8b","size_vram":1,"context_length":8192}]}`,
		}, catalog.HostStatus{Kind: catalog.HostOllama, Models: []catalog.HostModel{{Name: "qwen3:8b", Context: 8192}, {Name: "llama3:latest", Cold: true}}}},
		"LM Studio": {map[string]string{
			"/api/v0/models": `{"data":[{"id":"a","state":"loaded","loaded_context_length":4096},{"id":"b","state":"not-loaded","max_context_length":9}]}`,
			"/props":         `{"error":"Unexpected endpoint or method. (GET /props)"}`,
			"/api/version":   `{"error":"Unexpected endpoint or method. (GET /api/version)"}`,
		}, catalog.HostStatus{Kind: catalog.HostLMStudio, Models: []catalog.HostModel{{Name: "a", Context: 4096}, {Name: "b", Cold: true}}}},
		"llama-server": {map[string]string{
			"/props": `{"total_slots":4,"default_generation_settings":{"n_ctx":2048}}`, "/v1/models": `{"data":[{"id":"m.gguf","meta":{"n_ctx_train":1}}]}`,
			"/slots": `[{"id":0,"is_processing":true},{"id":1,"is_processing":false},{"id":2,"is_processing":true}]`,
		}, catalog.HostStatus{Kind: catalog.HostLlamaCpp, Models: []catalog.HostModel{{Name: "m.gguf", Context: 2048}}, Slots: 4, LoadKnown: true, InFlight: 2}},
		"llama-server that hides its slots": {map[string]string{
			"/props": `{"total_slots":2,"default_generation_settings":{"n_ctx":512}}`, "/v1/models": `{"data":[{"id":"m"}]}`,
		}, catalog.HostStatus{Kind: catalog.HostLlamaCpp, Models: []catalog.HostModel{{Name: "m", Context: 512}}, Slots: 2}},
		"vLLM": {map[string]string{
			"/metrics": metrics, "/v1/models": `{"data":[{"id":"org/m","max_model_len":32768}]}`,
		}, catalog.HostStatus{Kind: catalog.HostVLLM, Models: []catalog.HostModel{{Name: "org/m", Context: 32768}}, LoadKnown: true, InFlight: 6, KVUse: math.Round(0.37/catalog.KVStep) * catalog.KVStep, KVTokens: 16000}},
		"vLLM with odd numbers": {map[string]string{
			"/metrics": "\nvllm:num_requests_running NaN\nvllm:num_requests_waiting 1\nvllm:gpu_cache_usage_perc 7\n", "/v1/models": `{"data":[{"id":"m","max_model_len":-5}]}`,
		}, catalog.HostStatus{Kind: catalog.HostVLLM, Models: []catalog.HostModel{{Name: "m"}}, KVUse: 1}},
		"anything that lists models": {map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`},
			catalog.HostStatus{Kind: catalog.HostOther, Models: []catalog.HostModel{{Name: "m"}}}},
		"one with no model yet": {map[string]string{"/v1/models": `{"data":[]}`}, catalog.HostStatus{Kind: catalog.HostOther}},
	} {
		t.Run(name, func(t *testing.T) {
			kind, err := kindOf(papers(c.docs))
			if err != nil || kind != c.want.Kind {
				t.Fatalf("it is taken for %q, %v", kind, err)
			}
			got, err := readHost(papers(c.docs), kind)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestHostsThatTellNothing(t *testing.T) {
	for name, docs := range map[string]map[string]string{
		"nothing there": {}, "dies": {"/props": "dies"}, "dies later": {"/metrics": "dies"}, "still loading": {"/props": "503", "/v1/models": "503"},
		"no list": {"/v1/models": `{"object":"error"}`}, "no JSON": {"/v1/models": `<html>`},
	} {
		if kind, err := kindOf(papers(docs)); err == nil {
			t.Errorf("%s is taken for %q", name, kind)
		}
	}
	for name, c := range map[string]struct {
		kind catalog.HostKind
		docs map[string]string
	}{
		"Ollama without ps":   {catalog.HostOllama, map[string]string{"/api/tags": `{"models":[]}`}},
		"a list that is text": {catalog.HostOther, map[string]string{"/v1/models": `"x"`}},
		"llama-server":        {catalog.HostLlamaCpp, map[string]string{"/v1/models": `{"data":[]}`, "/props": "503"}},
		"slots die":           {catalog.HostLlamaCpp, map[string]string{"/v1/models": `{"data":[]}`, "/props": `{}`, "/slots": "dies"}},
	} {
		if got, err := readHost(papers(c.docs), c.kind); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	var many bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&many, `{"id":"m%d"},`, i)
	}
	fmt.Fprintf(&many, `{"id":%q}`, strings.Repeat("x", 300))
	got, err := readHost(papers(map[string]string{"/v1/models": `{"data":[` + many.String() + `]}`}), catalog.HostOther)
	if err != nil || len(got.Models) != catalog.MaxHostModels {
		t.Errorf("%d models, %v", len(got.Models), err)
	}
	many.Reset()
	for i := range 100 {
		fmt.Fprintf(&many, `{"id":"%s%03d"},`, strings.Repeat("x", 197), i)
	}
	many.WriteString(`{}`)
	got, err = readHost(papers(map[string]string{"/v1/models": `{"data":[` + many.String() + `]}`}), catalog.HostOther)
	if err != nil || len(got.Models) != 40 {
		t.Errorf("%d models with long names, %v", len(got.Models), err)
	}
}

func TestHostsAreUpAndDownByMoreThanOneLook(t *testing.T) {
	var h hosted
	p := &catalog.Provider{ID: "desk", URL: "http://10.0.0.1"}
	now := time.Unix(1000, 0)
	bad := errors.New("refused")
	seen := catalog.HostStatus{Kind: catalog.HostOllama, Models: []catalog.HostModel{{Name: "m"}}, LoadKnown: true, InFlight: 3}
	for i, step := range []struct {
		err        error
		up, turned bool
	}{
		{bad, false, true}, {nil, false, false}, {nil, true, true}, {bad, true, false}, {nil, true, false}, {bad, true, false}, {bad, false, true},
		{nil, false, false}, {bad, false, false}, {nil, false, false}, {nil, true, true},
	} {
		if due := h.begin([]*catalog.Provider{p}); len(due) != 1 {
			t.Fatalf("look %d: %d are due", i+1, len(due))
		}
		if due := h.begin([]*catalog.Provider{p}); len(due) != 0 {
			t.Fatal("it is looked at twice at once")
		}
		turned := h.end(p, seen, step.err, now)
		s := h.list()[0]
		if s.Up != step.up || turned != step.turned || (s.Problem == "") != step.up || step.err != nil && !s.Up && s.InFlight != 0 {
			t.Errorf("look %d: %+v, turned %v; want up %v, turned %v", i+1, s, turned, step.up, step.turned)
		}
	}
	h.end(p, seen, nil, now)
	for range hostLooks {
		h.end(p, seen, errors.New(strings.Repeat("é", 1000)), now)
	}
	if s := h.list()[0]; s.Up || len(s.Problem) > hostProblem+3 || !utf8.ValidString(s.Problem) {
		t.Errorf("a long fault is told as %+v", s)
	}
	moved := *p
	moved.URL = "http://10.0.0.2"
	h.begin([]*catalog.Provider{&moved})
	if len(h.list()) != 0 {
		t.Error("what was seen at another address is told")
	}
	h.end(p, seen, nil, now) // of the old address
	if len(h.list()) != 0 {
		t.Error("a late look at another address is taken")
	}
	h.begin(nil)
	if h.end(&moved, seen, nil, now); len(h.list()) != 0 {
		t.Error("a host that is gone is told")
	}
}
