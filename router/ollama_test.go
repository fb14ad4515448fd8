package router

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"llmgw/mesh/catalog"
	"llmgw/router/openai"
)

const (
	chatStream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"he\"}}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"llo\"}}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n" + done
	chatWhole = `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`
)

// chatEngine answers chat completions and nothing else.
func chatEngine(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		scanned, err := openai.Scan(body)
		if err != nil || r.URL.Path != "/v1/chat/completions" {
			t.Errorf("the engine got %s %s (%v)", r.URL.Path, body, err)
		}
		if scanned.Stream {
			event(w, strings.SplitAfter(chatStream, "\n\n")...)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatWhole)
	}
}

// lines decodes a stream of documents.
func lines(t *testing.T, stream string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for d := json.NewDecoder(strings.NewReader(stream)); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatalf("%v in %q", err, stream)
		}
		out = append(out, line)
	}
	return out
}

func TestOllamasChatIsAChatCompletion(t *testing.T) {
	const chat = `{"model":"m","messages":[{"role":"user","content":"hi"}]`
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, chatEngine(t))
		_, book := limited(t, entry, catalog.RateLimits{catalog.MetricTokens: 1 << 20})
		resp := send(t, entry, "POST", "/api/chat", chat+`,"options":{"num_ctx":32768}}`)
		got := lines(t, text(t, resp))
		said := ""
		for _, line := range got {
			said += line["message"].(map[string]any)["content"].(string)
		}
		last := got[len(got)-1]
		if said != "hello" || last["done"] != true || last["prompt_eval_count"] != 7.0 || last["eval_count"] != 2.0 || len(got) < 3 {
			t.Errorf("said %q, last %v", said, last)
		}
		if resp.Header.Get("Content-Type") != "application/x-ndjson" || !strings.Contains(resp.Header.Get(noteHeader), "num_ctx") {
			t.Errorf("headers %v", resp.Header)
		}
		whole := lines(t, text(t, send(t, entry, "POST", "/api/chat", chat+`,"stream":false}`)))
		if len(whole) != 1 || whole[0]["message"].(map[string]any)["content"] != "hello" || whole[0]["done"] != true {
			t.Errorf("whole answer %v", whole)
		}
		prompt := lines(t, text(t, send(t, entry, "POST", "/api/generate", `{"model":"m","prompt":"hi","stream":false}`)))
		if len(prompt) != 1 || prompt[0]["response"] != "hello" {
			t.Errorf("generated %v", prompt)
		}
		if r := book.last(t, 3); r.Usage != (openai.Usage{Input: 7, Output: 2, Source: openai.UsageEngine}) {
			t.Errorf("recorded %+v", r)
		}
	})
}

func TestOllamasErrorsAreItsOwn(t *testing.T) {
	entry, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"error":{"message":"prompt is too long"}}`)
	})
	for name, c := range map[string]struct {
		body   string
		status int
		says   string
	}{
		"no JSON":         {`{"model":`, 400, ""},
		"unknown model":   {`{"model":"none","messages":[{"role":"user","content":"hi"}]}`, 404, "does not exist"},
		"the engine's":    {`{"model":"m","messages":[{"role":"user","content":"hi"}]}`, 400, "prompt is too long"},
		"nothing to load": {`{"model":"m","messages":[]}`, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			resp := send(t, entry, "POST", "/api/chat", c.body)
			got := lines(t, text(t, resp))
			if resp.StatusCode != c.status || len(got) != 1 {
				t.Fatalf("status %d, %v", resp.StatusCode, got)
			}
			if e, _ := got[0]["error"].(string); !strings.Contains(e, c.says) || (e == "") != (c.status == 200) {
				t.Errorf("says %v", got[0])
			}
		})
	}
}

func TestAnEngineThatDiesEndsOllamasStream(t *testing.T) {
	entry, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) {
		event(w, strings.SplitAfter(chatStream, "\n\n")[:2]...)
		die()
	})
	got := lines(t, text(t, send(t, entry, "POST", "/api/chat", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)))
	if e, _ := got[len(got)-1]["error"].(string); !strings.Contains(e, "failed before the answer was whole") {
		t.Errorf("ends with %v", got)
	}
}

func TestOllamasListsTellOfTheMesh(t *testing.T) {
	n := newNode(t)
	loaded := view("Org/Small", Replica{Peer: "b", Context: 2048, Lacks: []catalog.Ability{catalog.AbilityTools, catalog.AbilityEmbeddings}})
	loaded.Model.Source = catalog.Source{Digest: "sha256:abc", SizeBytes: 5, Format: "gguf", Architecture: "llama"}
	n.catalog.set(loaded, view("zeta"))
	names := func(path string) (out []string) {
		for _, m := range lines(t, text(t, send(t, n, "GET", path, "")))[0]["models"].([]any) {
			out = append(out, m.(map[string]any)["name"].(string))
		}
		return out
	}
	if got := strings.Join(names("/api/tags"), " "); got != "Org/Small zeta" {
		t.Errorf("there are %s", got)
	}
	if got := strings.Join(names("/api/ps"), " "); got != "Org/Small" {
		t.Errorf("loaded are %s", got)
	}
	show := text(t, send(t, n, "POST", "/api/show", `{"model":"org/small"}`))
	for _, part := range []string{`"llama.context_length":2048`, `"capabilities":["completion","vision"]`, `"format":"gguf"`} {
		if !strings.Contains(show, part) {
			t.Errorf("%s is not in %s", part, show)
		}
	}
	if resp := send(t, n, "POST", "/api/show", `{"model":"none"}`); resp.StatusCode != 404 {
		t.Errorf("status %d for an unknown model", resp.StatusCode)
	}
	if got := text(t, send(t, n, "GET", "/api/version", "", func(r *http.Request) { r.Header.Del("Authorization") })); !strings.Contains(got, `"version":"`) {
		t.Errorf("version %s", got)
	}
}
