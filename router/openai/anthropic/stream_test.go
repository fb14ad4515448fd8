package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"llmgw/router/openai"
	"llmgw/router/openai/chat/chattest"
)

// short writes events as "name data", without the parts that are always there.
func short(t *testing.T, stream string) []string {
	t.Helper()
	var out []string
	for _, event := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(event, "\ndata: ")
		var fields map[string]any
		if !ok || json.Unmarshal([]byte(data), &fields) != nil || "event: "+fmt.Sprint(fields["type"]) != name {
			t.Fatalf("event %q", event)
		}
		data = strings.TrimPrefix(data, fmt.Sprintf(`{"type":%q`, fields["type"]))
		out = append(out, strings.TrimPrefix(name, "event: ")+" "+strings.TrimPrefix(strings.TrimSuffix(data, "}"), ","))
	}
	return out
}

const messageStart = `message_start "message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}`

func ending(reason, usage string) []string {
	return []string{`message_delta "delta":{"stop_reason":` + reason + `},"usage":{` + usage + `}`, "message_stop "}
}

const noUsage = `"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":`

var streamCases = map[string]struct {
	stream   string
	thinking bool
	want     []string
}{
	"text": {chattest.SSE(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":"\u00e9"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`, "[DONE]"), false,
		append([]string{messageStart, `content_block_start "index":0,"content_block":{"type":"text","text":""}`, `content_block_delta "index":0,"delta":{"text":"a","type":"text_delta"}`, `content_block_delta "index":0,"delta":{"text":"é","type":"text_delta"}`, `content_block_stop "index":0`},
			ending(`"end_turn","stop_sequence":null`, `"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":2`)...)},
	"a stop sequence": {chattest.SSE(`{"choices":[{"delta":{},"finish_reason":"stop","stop_reason":"END"}]}`, "[DONE]"), false,
		append([]string{messageStart}, ending(`"stop_sequence","stop_sequence":"END"`, noUsage+"0")...)},
	"cut by length": {chattest.SSE(`{"choices":[{"delta":{},"finish_reason":"length","stop_reason":null}]}`, "[DONE]"), false, append([]string{messageStart}, ending(`"max_tokens","stop_sequence":null`, noUsage+"0")...)},
	"a call behind a text": {chattest.SSE(`{"choices":[{"delta":{"content":"ok"}}]}`, `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":""}}]}}]}`, `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}`, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"), false,
		append([]string{messageStart, `content_block_start "index":0,"content_block":{"type":"text","text":""}`, `content_block_delta "index":0,"delta":{"text":"ok","type":"text_delta"}`, `content_block_stop "index":0`,
			`content_block_start "index":1,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}`, `content_block_delta "index":1,"delta":{"partial_json":"{}","type":"input_json_delta"}`, `content_block_stop "index":1`}, ending(`"tool_use","stop_sequence":null`, noUsage+"3")...)},
	"two calls, mixed": {chattest.SSE(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}},{"index":1,"id":"c2","function":{"name":"g","arguments":"[1"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"]"}},{"index":0,"function":{"arguments":"}"}}],"content":"late"}}]}`, "[DONE]"), false,
		append([]string{messageStart, `content_block_start "index":0,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}`, `content_block_delta "index":0,"delta":{"partial_json":"{","type":"input_json_delta"}`, `content_block_delta "index":0,"delta":{"partial_json":"}","type":"input_json_delta"}`, `content_block_stop "index":0`,
			`content_block_start "index":1,"content_block":{"type":"tool_use","id":"c2","name":"g","input":{}}`, `content_block_delta "index":1,"delta":{"partial_json":"[1]","type":"input_json_delta"}`, `content_block_stop "index":1`,
			`content_block_start "index":2,"content_block":{"type":"text","text":""}`, `content_block_delta "index":2,"delta":{"text":"late","type":"text_delta"}`, `content_block_stop "index":2`}, ending(`"tool_use","stop_sequence":null`, noUsage+"5")...)},
	"thoughts shown": {chattest.SSE(`{"choices":[{"delta":{"reasoning":"hm"}}]}`, `{"choices":[{"delta":{"content":"a"}}]}`, "[DONE]"), true,
		append([]string{messageStart, `content_block_start "index":0,"content_block":{"type":"thinking","thinking":"","signature":""}`, `content_block_delta "index":0,"delta":{"thinking":"hm","type":"thinking_delta"}`, `content_block_stop "index":0`,
			`content_block_start "index":1,"content_block":{"type":"text","text":""}`, `content_block_delta "index":1,"delta":{"text":"a","type":"text_delta"}`, `content_block_stop "index":1`}, ending(`"end_turn","stop_sequence":null`, noUsage+"2")...)},
	"thoughts not shown": {chattest.SSE(`{"choices":[{"delta":{"reasoning_content":"hm"}}]}`, "[DONE]"), false, append([]string{messageStart}, ending(`"end_turn","stop_sequence":null`, noUsage+"1")...)},
	"a comment":          {openai.KeepAlive + chattest.SSE("[DONE]"), false, append([]string{`ping {"type": "ping"`, messageStart}, ending(`"end_turn","stop_sequence":null`, noUsage+"0")...)},
	"an error":           {chattest.SSE(`{"error":{"message":"boom"}}`, "[DONE]"), false, []string{`error "error":{"type":"api_error","message":"boom"},"request_id":"","llmgw":{"node":"","request_id":""}`}},
	"cut off":            {chattest.SSE(`{"choices":[{"delta":{}}]}`), false, []string{messageStart, `error "error":{"type":"api_error","message":"the engine ended its answer too early"},"request_id":"","llmgw":{"node":"","request_id":""}`}},
	"ill-formed UTF-8":   {chattest.SSE("{\"choices\":[{\"delta\":{\"content\":\"\xff\"},\"finish_reason\":\"length\"}]}", "[DONE]"), false, append([]string{messageStart, `content_block_start "index":0,"content_block":{"type":"text","text":""}`, "content_block_delta \"index\":0,\"delta\":{\"text\":\"\ufffd\",\"type\":\"text_delta\"}", `content_block_stop "index":0`}, ending(`"max_tokens","stop_sequence":null`, noUsage+"1")...)},
}

func TestStreamsBecomeMessages(t *testing.T) {
	for name, c := range streamCases {
		t.Run(name, func(t *testing.T) {
			for cut := 1; cut <= len(c.stream); cut++ {
				a := NewAnswer(&Request{Model: "m", Thinking: c.thinking}, "msg_1")
				got := chattest.Convert(a, c.stream, cut)
				if diff := cmp.Diff(c.want, short(t, got)); diff != "" {
					t.Fatalf("reads of %d (-want +got):\n%s", cut, diff)
				}
				if !a.Ended() {
					t.Fatal("not ended")
				}
			}
		})
	}
}

func TestWholeAnswersBecomeMessages(t *testing.T) {
	body := `{"choices":[{"message":{"content":"ok","reasoning":"hm","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}},{"function":{"name":"g","arguments":"no"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`
	got, e := NewAnswer(&Request{Model: "m"}, "msg_1").Whole([]byte(body))
	want := `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"},{"type":"tool_use","id":"c1","name":"f","input":{"a":1}},{"type":"tool_use","id":"toolu_msg_1_1","name":"g","input":{"_raw":"no"}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":4}}`
	if diff := cmp.Diff(want, string(got)); e != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", e, diff)
	}
	for name, body := range map[string]string{"an error": `{"error":{"message":"prompt is too long"}}`, "no JSON": `<html>`, "no choices": `{"choices":[]}`} {
		if _, e := NewAnswer(&Request{Model: "m"}, "msg_1").Whole([]byte(body)); e == nil || e.Status < 400 {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestFailEndsOnce(t *testing.T) {
	a := NewAnswer(&Request{Model: "m"}, "msg_1")
	if got := string(a.Fail(&openai.Error{Status: 429, Message: "x"}, openai.Origin{})); !strings.HasPrefix(got, "event: error\n") {
		t.Errorf("got %q", got)
	}
	if got := string(a.Finish()) + string(a.Feed([]byte(chattest.SSE("[DONE]")))); got != "" {
		t.Errorf("after the end comes %q", got)
	}
}

func FuzzStream(f *testing.F) {
	for _, c := range streamCases {
		f.Add([]byte(c.stream), 7)
	}
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		want := chattest.Convert(NewAnswer(&Request{Model: "m"}, "msg_1"), string(stream), 1<<20)
		if got := chattest.Convert(NewAnswer(&Request{Model: "m"}, "msg_1"), string(stream), max(size, 1)); got != want {
			t.Fatalf("reads of %d: %q, whole %q", size, got, want)
		}
		short(t, want)
	})
}
