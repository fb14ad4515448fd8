package ollama

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"llmgw/router/openai"
	"llmgw/router/openai/chat/chattest"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ticking is a clock that goes on by a second with each look at it.
func ticking() func() time.Time {
	n := 0
	return func() time.Time { n++; return start.Add(time.Duration(n) * time.Second) }
}

func still() time.Time { return start }

const stamped = `"model":"m","created_at":"2026-01-02T03:04:05Z",`

var streamCases = map[string]struct {
	generate     bool
	stream, want string
}{
	"chat": {false, chattest.SSE(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"delta":{"content":"a\u00e9"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, "[DONE]"),
		`{` + stamped + `"message":{"role":"assistant","content":"aé"},"done":false}` + "\n" +
			`{` + stamped + `"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":9,"prompt_eval_duration":0,"eval_count":2,"eval_duration":0}` + "\n"},
	"generate, cut by length": {true, chattest.SSE(`{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`, "[DONE]"),
		`{` + stamped + `"response":"a","done":false}` + "\n" +
			`{` + stamped + `"response":"","done":true,"done_reason":"length","total_duration":0,"load_duration":0,"prompt_eval_count":0,"prompt_eval_duration":0,"eval_count":1,"eval_duration":0}` + "\n"},
	"tools": {false, chattest.SSE(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":""}}]}}]}`, `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"id":"c2","function":{"name":"g","arguments":"no"}}]},"finish_reason":"tool_calls"}]}`, "[DONE]"),
		`{` + stamped + `"message":{"role":"assistant","content":"","tool_calls":[{"id":"c1","function":{"index":0,"name":"f","arguments":{"a":1}}},{"id":"c2","function":{"index":1,"name":"g","arguments":{"_raw":"no"}}}]},"done":false}` + "\n" +
			`{` + stamped + `"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":0,"prompt_eval_duration":0,"eval_count":3,"eval_duration":0}` + "\n"},
	"reasoning, timings": {false, chattest.SSE(`{"choices":[{"delta":{"reasoning_content":"hm"}}]}`, `{"choices":[{"delta":{}}],"timings":{"prompt_ms":1.5,"predicted_ms":2}}`, "[DONE]"),
		`{` + stamped + `"message":{"role":"assistant","content":"","thinking":"hm"},"done":false}` + "\n" +
			`{` + stamped + `"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":0,"prompt_eval_duration":1500000,"eval_count":1,"eval_duration":2000000}` + "\n"},
	"an error": {false, chattest.SSE(`{"choices":[{"delta":{"content":"a"}}]}`, `{"error":{"message":"boom"}}`, "[DONE]"), `{` + stamped + `"message":{"role":"assistant","content":"a"},"done":false}` + "\n" + `{"error":"boom"}` + "\n"},
	"a comment": {false, ": c\n\n" + chattest.SSE(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, "[DONE]"), `{` + stamped + `"message":{"role":"assistant","content":""},"done":false}` + "\n" + `{` + stamped + `"message":{"role":"assistant","content":"a"},"done":false}` + "\n" +
		`{` + stamped + `"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":0,"prompt_eval_duration":0,"eval_count":1,"eval_duration":0}` + "\n"},
	"cut off":           {false, chattest.SSE(`{"choices":[{"delta":{"content":"a"}}]}`), `{` + stamped + `"message":{"role":"assistant","content":"a"},"done":false}` + "\n" + `{"error":"the engine ended its answer too early"}` + "\n"},
	"odd events":        {false, "data: [1]\n\ndata: {\n\nevent: x\n\ndata: {\"choices\":7}\n\ndata: {\"choices\":[{\"delta\":{\"content\":{}}}]}\n\n" + chattest.SSE("[DONE]"), `{` + stamped + `"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":0,"prompt_eval_duration":0,"eval_count":0,"eval_duration":0}` + "\n"},
	"after the end":     {false, chattest.SSE("[DONE]", `{"choices":[{"delta":{"content":"a"}}]}`), `{` + stamped + `"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":0,"prompt_eval_duration":0,"eval_count":0,"eval_duration":0}` + "\n"},
	"unfinished [DONE]": {false, "data: [DONE]", `{` + stamped + `"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":0,"prompt_eval_duration":0,"eval_count":0,"eval_duration":0}` + "\n"},
}

func TestStreamsBecomeLines(t *testing.T) {
	for name, c := range streamCases {
		t.Run(name, func(t *testing.T) {
			for cut := 1; cut <= len(c.stream); cut++ {
				if diff := cmp.Diff(c.want, chattest.Convert(NewAnswer("m", c.generate, still), c.stream, cut)); diff != "" {
					t.Fatalf("reads of %d (-want +got):\n%s", cut, diff)
				}
			}
			crlf := strings.ReplaceAll(c.stream, "\n", "\r\n")
			if diff := cmp.Diff(c.want, chattest.Convert(NewAnswer("m", c.generate, still), crlf, 3)); diff != "" {
				t.Fatalf("with CRLF (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDurationsComeFromTheClock(t *testing.T) {
	a := NewAnswer("m", false, ticking()) // began at 1 s
	out := chattest.Convert(a, chattest.SSE(`{"choices":[{"delta":{"content":"a"}}]}`, "[DONE]"), 1<<20)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last Reply
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Total <= 0 || last.PromptTime <= 0 || last.EvalDuration <= 0 || last.PromptTime+last.EvalDuration != last.Total {
		t.Errorf("%+v", last.Figures)
	}
}

func TestWholeAnswers(t *testing.T) {
	body := `{"choices":[{"message":{"role":"assistant","content":"hi","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`
	got, e := NewAnswer("m", false, still).Whole([]byte(body))
	want := `{` + stamped + `"message":{"role":"assistant","content":"hi","tool_calls":[{"id":"c","function":{"index":0,"name":"f","arguments":{}}}]},"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":3,"prompt_eval_duration":0,"eval_count":4,"eval_duration":0}`
	if diff := cmp.Diff(want, string(got)); e != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", e, diff)
	}
	for name, body := range map[string]string{"an error": `{"error":{"message":"x"}}`, "no JSON": `<html>`, "no choices": `{}`} {
		if _, e := NewAnswer("m", false, still).Whole([]byte(body)); e == nil || e.Status < 400 {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestFailEndsOnce(t *testing.T) {
	a := NewAnswer("m", false, still)
	if got := string(a.Fail(&openai.Error{Message: "x"}, openai.Origin{})); got != `{"error":"x"}`+"\n" {
		t.Errorf("got %q", got)
	}
	if got := string(a.Fail(&openai.Error{Message: "x"}, openai.Origin{})) + string(a.Finish()) + string(a.Feed([]byte(chattest.SSE("[DONE]")))); got != "" {
		t.Errorf("after the end comes %q", got)
	}
}

func TestKeepAliveAndLoadedAreDocuments(t *testing.T) {
	for _, line := range []string{string(NewAnswer("m", true, still).KeepAlive()), string(Loaded("m", false, start))} {
		var r Reply
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Model != "m" {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestModelDocuments(t *testing.T) {
	m := Model{Name: "smol", Modified: start, Size: 7, Digest: "ab", Format: "gguf", Family: "llama", Context: 8192, Capabilities: []string{"completion"}, SizeVRAM: 3}
	for name, c := range map[string]struct{ got, want string }{
		"tags":    {string(Tags([]Model{m})), `{"models":[{"name":"smol","model":"smol","modified_at":"2026-01-02T03:04:05Z","size":7,"digest":"ab","details":{"parent_model":"","format":"gguf","family":"llama","families":["llama"],"parameter_size":"","quantization_level":""}}]}`},
		"none":    {string(Tags(nil)), `{"models":[]}`},
		"ps":      {string(PS([]Model{m})), `{"models":[{"name":"smol","model":"smol","size":7,"digest":"ab","details":{"parent_model":"","format":"gguf","family":"llama","families":["llama"],"parameter_size":"","quantization_level":""},"expires_at":"2318-01-01T00:00:00Z","size_vram":3,"context_length":8192}]}`},
		"show":    {string(Show(m)), `{"modelfile":"","parameters":"","template":"","details":{"parent_model":"","format":"gguf","family":"llama","families":["llama"],"parameter_size":"","quantization_level":""},"model_info":{"general.architecture":"llama","llama.context_length":8192},"capabilities":["completion"],"modified_at":"2026-01-02T03:04:05Z"}`},
		"version": {string(Version("0.1")), `{"version":"0.1"}`},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if name, e := ModelOf([]byte(`{"name":"a"}`)); e != nil || name != "a" {
		t.Errorf("%q, %v", name, e)
	}
	if _, e := ModelOf([]byte(`{}`)); e == nil {
		t.Error("no model is no error")
	}
}

func FuzzStream(f *testing.F) {
	for _, c := range streamCases {
		f.Add([]byte(c.stream), 7)
	}
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		want := chattest.Convert(NewAnswer("m", false, still), string(stream), 1<<20)
		if got := chattest.Convert(NewAnswer("m", false, still), string(stream), max(size, 1)); got != want {
			t.Fatalf("reads of %d: %q, whole %q", size, got, want)
		}
		for _, line := range strings.Split(strings.TrimSuffix(want, "\n"), "\n") {
			if !json.Valid([]byte(line)) {
				t.Fatalf("line %q", line)
			}
		}
	})
}
