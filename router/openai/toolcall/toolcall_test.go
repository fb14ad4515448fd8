package toolcall

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"llmgw/router/openai"
	"llmgw/router/openai/chat/chattest"
)

func bySchema(t *testing.T, body string) (string, *Call) {
	t.Helper()
	r, err := openai.Scan([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	out, call, e := BySchema(&r, "x")
	if e != nil {
		t.Fatal(e)
	}
	return string(out), call
}

const (
	toolF = `{"type":"function","function":{"name":"f","description":"does f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}`
	toolG = `{"type":"function","function":{"name":"g"}}`
)

func TestRequestAsksForTheDocumentOfACall(t *testing.T) {
	body, _ := bySchema(t, `{"model":"m","seed":1e2,"tools":[`+toolF+`,`+toolG+`],"tool_choice":{"type":"function","function":{"name":"f"}},"messages":[{"role":"user","content":"a\u00e9"}]}`)
	want := `{"model":"m","seed":1e2,"messages":[{"role":"system","content":"Answer with the arguments of a call to this function, as JSON and nothing else:\nf: does f\nArguments: {\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}\n"},{"role":"user","content":"a\u00e9"}],` +
		`"response_format":{"json_schema":{"name":"call","schema":{"type":"object","properties":{"a":{"type":"integer"}}},"strict":true},"type":"json_schema"}}`
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("named (-want +got):\n%s", diff)
	}
	body, _ = bySchema(t, `{"tools":[`+toolF+`,`+toolG+`],"tool_choice":"required","parallel_tool_calls":false,"messages":[{"role":"system","content":"be"},{"role":"user","content":"hi"}]}`)
	for _, part := range []string{
		`{"role":"system","content":"be\n\nAnswer with a call to one of`, `{"role":"user","content":"hi"}`,
		`"anyOf":[{"type":"object","properties":{"name":{"const":"f"},"arguments":{"type":"object","properties":{"a":{"type":"integer"}}}},"required":["name","arguments"],"additionalProperties":false},{"type":"object","properties":{"name":{"const":"g"},"arguments":{"type":"object","properties":{}}}`,
	} {
		if !strings.Contains(body, part) {
			t.Errorf("required: %s lacks %s", body, part)
		}
	}
	if strings.Contains(body, "tool_choice") || strings.Contains(body, `"tools"`) || !json.Valid([]byte(body)) {
		t.Errorf("required: %s", body)
	}
}

func TestBadToolsAreRefused(t *testing.T) {
	for name, body := range map[string]string{
		"unknown name": `{"tools":[` + toolF + `],"tool_choice":{"type":"function","function":{"name":"x"}},"messages":[{}]}`,
		"odd tools":    `{"tools":[7],"tool_choice":"required","messages":[{}]}`,
		"no messages":  `{"tools":[` + toolF + `],"tool_choice":"required"}`,
		"odd messages": `{"tools":[` + toolF + `],"tool_choice":"required","messages":{}}`,
	} {
		r, err := openai.Scan([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, e := BySchema(&r, "x"); e == nil || e.Status != 400 {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// stream is a chat stream of a text in pieces.
func stream(reason string, pieces ...string) string {
	var b strings.Builder
	event := func(delta, finish string) {
		fmt.Fprintf(&b, "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", delta, finish)
	}
	event(`{"role":"assistant","content":""}`, "null")
	for _, piece := range pieces {
		text, _ := json.Marshal(piece)
		event(`{"content":`+string(text)+`}`, "null")
	}
	event("{}", `"`+reason+`"`)
	b.WriteString("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n")
	return b.String()
}

// told is what a client understands of a stream.
type told struct {
	ID, Name, Arguments, Content, Finish string
	Begins                               int
	Usage, Done                          bool
}

func understand(t *testing.T, stream string) told {
	t.Helper()
	var out told
	for _, event := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		if strings.HasPrefix(event, ":") {
			continue
		}
		data := strings.TrimPrefix(event, "data: ")
		if data == "[DONE]" {
			out.Done = true
			continue
		}
		var chunk struct {
			Usage   map[string]any
			Choices []choiceDelta
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%q: %v", event, err)
		}
		out.Usage = out.Usage || chunk.Usage != nil
		for _, c := range chunk.Choices {
			for _, call := range c.Delta.Calls {
				if call.ID != "" {
					out.Begins++
				}
				out.ID += call.ID
				out.Name += call.Function.Name
				out.Arguments += call.Function.Arguments
			}
			if c.Delta.Content != nil {
				out.Content += *c.Delta.Content
			}
			if c.Finish != nil {
				out.Finish = *c.Finish
			}
		}
	}
	return out
}

func TestStreamsBecomeToolCalls(t *testing.T) {
	one, several := &Call{name: "f", id: "x"}, &Call{id: "x"}
	cases := map[string]struct {
		call   *Call
		stream string
		want   told
	}{
		"one tool":                {one, stream("stop", " {", `"a"`, ":1", "}", "\n"), told{"call_x_0", "f", `{"a":1}`, "", "tool_calls", 1, true, true}},
		"cut by length":           {one, stream("length", `{"a"`), told{"call_x_0", "f", `{"a"`, "", "length", 1, true, true}},
		"several tools":           {several, stream("stop", `{"na`, `me": "g`, `h", "argu`, `ments": {"t":"}\"{"`, `,"b":{}}`, `}`), told{"call_x_0", "gh", `{"t":"}\"{","b":{}}`, "", "tool_calls", 1, true, true}},
		"several, in one piece":   {several, stream("stop", `{"name":"g","arguments":{}}`), told{"call_x_0", "g", `{}`, "", "tool_calls", 1, true, true}},
		"a comment":               {one, openai.KeepAlive + stream("stop", "{}"), told{"call_x_0", "f", `{}`, "", "tool_calls", 1, true, true}},
		"no document":             {one, stream("stop", "I can", "not"), told{Content: "I cannot", Finish: "stop", Usage: true, Done: true}},
		"several, no call":        {several, stream("stop", `{"answer":1}`), told{Content: `{"answer":1}`, Finish: "stop", Usage: true, Done: true}},
		"nothing":                 {one, stream("stop"), told{Finish: "stop", Usage: true, Done: true}},
		"an escape in the name":   {several, stream("stop", `{"name":"a\u0062","arguments":{}}`), told{"call_x_0", "ab", `{}`, "", "tool_calls", 1, true, true}},
		"arguments are no object": {several, stream("stop", `{"name":"a","arguments":7}`), told{Content: `{"name":"a","arguments":7}`, Finish: "stop", Usage: true, Done: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for cut := 1; cut <= len(c.stream); cut++ {
				if diff := cmp.Diff(c.want, understand(t, chattest.Convert(NewAnswer(c.call), c.stream, cut))); diff != "" {
					t.Fatalf("reads of %d (-want +got):\n%s", cut, diff)
				}
			}
		})
	}
}

func TestBrokenStreamsEndInForm(t *testing.T) {
	whole := stream("stop", "{}")
	got := chattest.Convert(NewAnswer(&Call{name: "f"}), whole[:len(whole)/2], 9)
	var tr openai.Tracker
	if tr.Feed([]byte(got)); !tr.Failed() || !tr.Done() || !tr.Boundary() {
		t.Errorf("got %q", got)
	}
}

func TestWholeAnswersBecomeToolCalls(t *testing.T) {
	body := `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"{\"a\": 1}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`
	got, e := NewAnswer(&Call{name: "f", id: "x"}).Whole([]byte(body))
	want := `{"choices":[{"finish_reason":"tool_calls","index":0,"message":{"content":null,"role":"assistant","tool_calls":[{"id":"call_x_0","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]}}],"id":"c","usage":{"prompt_tokens":1}}`
	if diff := cmp.Diff(want, string(got)); e != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", e, diff)
	}
	prose := `{"choices":[{"index":0,"message":{"content":"no"},"finish_reason":"stop"}]}`
	if got, e := NewAnswer(&Call{name: "f"}).Whole([]byte(prose)); e != nil || !strings.Contains(string(got), `"content":"no"`) || strings.Contains(string(got), "tool_calls") {
		t.Errorf("prose: %s, %v", got, e)
	}
	if _, e := NewAnswer(&Call{name: "f"}).Whole([]byte(`{"error":{"message":"x"}}`)); e == nil {
		t.Error("an error is no error")
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(stream("stop", `{"name":"g","arguments":{"a":"}"}}`)), 7, true)
	f.Add([]byte(stream("length", `{"a"`)), 3, false)
	f.Fuzz(func(t *testing.T, in []byte, size int, several bool) {
		call := &Call{name: "f", id: "x"}
		if several {
			call.name = ""
		}
		want := chattest.Convert(NewAnswer(call), string(in), 1<<20)
		if got := chattest.Convert(NewAnswer(call), string(in), max(size, 1)); got != want {
			t.Fatalf("reads of %d: %q, whole %q", size, got, want)
		}
	})
}
