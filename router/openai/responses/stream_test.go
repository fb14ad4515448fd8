package responses

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"llmgw/router/openai"
	"llmgw/router/openai/chat/chattest"
)

func request() *Request {
	return &Request{Model: "m", Store: true, custom: map[string]bool{"patch": true}}
}

// short writes events without what is the same in all: the event's name, which
// must be its type, the number, which must rise by one, and whole responses,
// of which the last is given.
func short(t *testing.T, stream string) (out []string, last map[string]any) {
	t.Helper()
	if stream = strings.ReplaceAll(stream, openai.KeepAlive, ""); stream == "" {
		return nil, nil
	}
	for i, event := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(event, "\ndata: ")
		var fields map[string]any
		if !ok || json.Unmarshal([]byte(data), &fields) != nil {
			t.Fatalf("event %q", event)
		}
		kind := fmt.Sprint(fields["type"])
		prefix := fmt.Sprintf(`{"type":%q,"sequence_number":%d`, kind, i)
		if name != "event: "+kind || !strings.HasPrefix(data, prefix) {
			t.Fatalf("event %d is %q", i, event)
		}
		rest := strings.Trim(strings.TrimSuffix(strings.TrimPrefix(data, prefix), "}"), ",")
		if doc, ok := fields["response"].(map[string]any); ok {
			rest, last = "", doc
		}
		out = append(out, strings.TrimSpace(strings.TrimPrefix(kind, "response.")+" "+rest))
	}
	return out, last
}

var streamCases = map[string]struct {
	stream string
	want   []string
	output string // of the last response
	status string
	usage  string
}{
	"text": {chattest.SSE(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`, "[DONE]"),
		[]string{"created", "in_progress",
			`output_item.added "output_index":0,"item":{"id":"msg_1_0","type":"message","status":"in_progress","role":"assistant","content":[]}`,
			`content_part.added "item_id":"msg_1_0","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}`,
			`output_text.delta "item_id":"msg_1_0","output_index":0,"content_index":0,"delta":"a","logprobs":[]`,
			`output_text.delta "item_id":"msg_1_0","output_index":0,"content_index":0,"delta":"b","logprobs":[]`,
			`output_text.done "item_id":"msg_1_0","output_index":0,"content_index":0,"text":"ab","logprobs":[]`,
			`content_part.done "item_id":"msg_1_0","output_index":0,"content_index":0,"part":{"type":"output_text","text":"ab","annotations":[],"logprobs":[]}`,
			`output_item.done "output_index":0,"item":{"id":"msg_1_0","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"ab","annotations":[],"logprobs":[]}]}`,
			"completed"},
		`[{"content":[{"annotations":[],"logprobs":[],"text":"ab","type":"output_text"}],"id":"msg_1_0","role":"assistant","status":"completed","type":"message"}]`,
		"completed", `{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":11}`},
	"thoughts and two calls": {chattest.SSE(`{"choices":[{"delta":{"reasoning_content":"hm"}}]}`, `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"patch","arguments":"{\"input\":\"x\"}"}},{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"tool_calls"}]}`, "[DONE]"),
		[]string{"created", "in_progress",
			`output_item.added "output_index":0,"item":{"id":"rs_1_0","type":"reasoning","status":"in_progress","summary":[],"content":[]}`,
			`content_part.added "item_id":"rs_1_0","output_index":0,"content_index":0,"part":{"type":"reasoning_text","text":""}`,
			`reasoning_text.delta "item_id":"rs_1_0","output_index":0,"content_index":0,"delta":"hm","logprobs":[]`,
			`reasoning_text.done "item_id":"rs_1_0","output_index":0,"content_index":0,"text":"hm","logprobs":[]`,
			`content_part.done "item_id":"rs_1_0","output_index":0,"content_index":0,"part":{"type":"reasoning_text","text":"hm"}`,
			`output_item.done "output_index":0,"item":{"id":"rs_1_0","type":"reasoning","status":"completed","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}`,
			`output_item.added "output_index":1,"item":{"id":"fc_1_1","type":"function_call","status":"in_progress","call_id":"c1","name":"f","arguments":""}`,
			`function_call_arguments.delta "item_id":"fc_1_1","output_index":1,"delta":"{"`,
			`output_item.added "output_index":2,"item":{"id":"ctc_1_2","type":"custom_tool_call","status":"in_progress","call_id":"c2","name":"patch","input":""}`,
			`function_call_arguments.delta "item_id":"fc_1_1","output_index":1,"delta":"}"`,
			`function_call_arguments.done "item_id":"fc_1_1","output_index":1,"name":"f","arguments":"{}"`,
			`output_item.done "output_index":1,"item":{"id":"fc_1_1","type":"function_call","status":"completed","call_id":"c1","name":"f","arguments":"{}"}`,
			`custom_tool_call_input.delta "item_id":"ctc_1_2","output_index":2,"delta":"x"`,
			`custom_tool_call_input.done "item_id":"ctc_1_2","output_index":2,"input":"x"`,
			`output_item.done "output_index":2,"item":{"id":"ctc_1_2","type":"custom_tool_call","status":"completed","call_id":"c2","name":"patch","input":"x"}`,
			"completed"},
		`[{"content":[{"text":"hm","type":"reasoning_text"}],"id":"rs_1_0","status":"completed","summary":[],"type":"reasoning"},{"arguments":"{}","call_id":"c1","id":"fc_1_1","name":"f","status":"completed","type":"function_call"},{"call_id":"c2","id":"ctc_1_2","input":"x","name":"patch","status":"completed","type":"custom_tool_call"}]`,
		"completed", `{"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":4}`},
	"cut by length": {chattest.SSE(`{"choices":[{"delta":{},"finish_reason":"length"}]}`, "[DONE]"), []string{"created", "in_progress", "incomplete"}, `[]`, "incomplete",
		`{"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}`},
	"an error": {chattest.SSE(`{"choices":[{"delta":{}}]}`, `{"error":{"message":"boom"}}`, "[DONE]"), []string{"created", "in_progress", "failed"}, `[]`, "failed", `null`},
	"cut off":  {chattest.SSE(`{"choices":[{"delta":{}}]}`), []string{"created", "in_progress", "failed"}, `[]`, "failed", `null`},
	"nothing":  {chattest.SSE("[DONE]"), []string{"created", "in_progress", "completed"}, `[]`, "completed", `{"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}`},
}

func text(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestStreamsBecomeResponses(t *testing.T) {
	for name, c := range streamCases {
		t.Run(name, func(t *testing.T) {
			for cut := 1; cut <= len(c.stream); cut++ {
				a := NewAnswer(request(), "1", 7)
				got := chattest.Convert(a, c.stream, cut)
				events, last := short(t, got)
				if diff := cmp.Diff(c.want, events); diff != "" {
					t.Fatalf("reads of %d (-want +got):\n%s", cut, diff)
				}
				if last["id"] != "resp_1" || last["status"] != c.status || text(t, last["output"]) != c.output || text(t, last["usage"]) != c.usage {
					t.Fatalf("the last response is %s", text(t, last))
				}
				var tr openai.Tracker
				if tr.Feed([]byte(got)); !tr.Ended(openai.Responses) || tr.Done() || !a.Ended() {
					t.Fatal("the stream has no end, or [DONE]")
				}
			}
		})
	}
}

func TestResponsesEchoTheRequest(t *testing.T) {
	body := `{"model":"m","input":"hi","instructions":"be","tools":[{"type":"function","name":"f","parameters":{"a":1e2}}],"temperature":0.50,"metadata":{"k":"v"},"store":false}`
	r, e := Translate([]byte(body), nil)
	if e != nil {
		t.Fatal(e)
	}
	got, e := NewAnswer(r, "1", 7).Whole([]byte(`{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`))
	if e != nil {
		t.Fatal(e)
	}
	want := `{"id":"resp_1","object":"response","created_at":7,"status":"completed","background":false,"error":null,"incomplete_details":null,"instructions":"be","max_output_tokens":null,"model":"m",` +
		`"output":[{"id":"msg_1_0","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"ok","annotations":[],"logprobs":[]}]}],` +
		`"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":false,"temperature":0.50,"text":{"format":{"type":"text"}},"tool_choice":"auto",` +
		`"tools":[{"type":"function","name":"f","parameters":{"a":1e2}}],"top_p":null,"truncation":"disabled",` +
		`"usage":{"input_tokens":3,"input_tokens_details":{"cached_tokens":0},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":4},"user":null,"metadata":{"k":"v"}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

func TestWholeRefusesWhatIsNoAnswer(t *testing.T) {
	for name, body := range map[string]string{"an error": `{"error":{"message":"x"}}`, "no JSON": `<html>`, "no choices": `{"choices":[]}`} {
		if _, e := NewAnswer(request(), "1", 0).Whole([]byte(body)); e == nil || e.Status < 400 {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestCommentsArePassedOn(t *testing.T) {
	a := NewAnswer(request(), "1", 0)
	if got := string(a.Feed([]byte(": queued\n\n"))); got != openai.KeepAlive {
		t.Errorf("got %q", got)
	}
	if got := string(a.Feed([]byte(chattest.SSE(`{"error":{"message":"x"}}`) + ": late\n\n"))); strings.Contains(got, openai.KeepAlive) {
		t.Errorf("behind the end: %q", got)
	}
}

func TestFailEndsOnce(t *testing.T) {
	a := NewAnswer(request(), "1", 0)
	got := string(a.Feed([]byte(chattest.SSE(`{"choices":[{"delta":{"content":"a"}}]}`))))
	got += string(a.Fail(&openai.Error{Status: 502, Code: "x", Message: "m"}, openai.Origin{}))
	if events, last := short(t, got); events[len(events)-1] != "failed" || text(t, last["error"]) != `{"code":"x","message":"m"}` {
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
		want := chattest.Convert(NewAnswer(request(), "1", 0), string(stream), 1<<20)
		if got := chattest.Convert(NewAnswer(request(), "1", 0), string(stream), max(size, 1)); got != want {
			t.Fatalf("reads of %d: %q, whole %q", size, got, want)
		}
		short(t, want)
	})
}
