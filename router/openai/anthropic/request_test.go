package anthropic

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func asJSON(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestRequestsBecomeChatCompletions(t *testing.T) {
	cases := map[string]struct{ body, want string }{
		"a text": {`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`},
		"stream": {`{"model":"m","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m","max_tokens":5,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`},
		"parameters": {`{"model":"m","max_tokens":5,"temperature":0.5,"top_p":null,"top_k":3,"stop_sequences":["x"],"metadata":{"user_id":"u"},"messages":[{"role":"user","content":"hi"}]}`,
			`{"model":"m","max_tokens":5,"temperature":0.5,"top_k":3,"stop":["x"],"user":"u","messages":[{"role":"user","content":"hi"}]}`},
		"system, a text":  {`{"model":"m","max_tokens":5,"system":"be","messages":[{"role":"user","content":"hi"}]}`, `{"model":"m","max_tokens":5,"messages":[{"role":"system","content":"be"},{"role":"user","content":"hi"}]}`},
		"system, blocks":  {`{"model":"m","max_tokens":5,"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],"messages":[{"role":"user","content":"hi"}]}`, `{"model":"m","max_tokens":5,"messages":[{"role":"system","content":"a\nb"},{"role":"user","content":"hi"}]}`},
		"images":          {`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}},{"type":"image","source":{"type":"url","url":"https://x/y"}}]}]}`, `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}},{"type":"image_url","image_url":{"url":"https://x/y"}}]}]}`},
		"calls":           {`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"ok"},{"type":"tool_use","id":"t1","name":"f","input":{"a": 1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"r"},{"type":"image","source":{"type":"url","url":"u"}}]},{"type":"text","text":"and"}]}]}`, `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ok","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","content":"r","tool_call_id":"t1"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"and"}]}]}`},
		"a call alone":    {`{"model":"m","max_tokens":5,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"bad","is_error":true}]}]}`, `{"model":"m","max_tokens":5,"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"Error: bad","tool_call_id":"t1"}]}`},
		"an empty result": {`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","is_error":true}]}]}`, `{"model":"m","max_tokens":5,"messages":[{"role":"tool","content":"Error","tool_call_id":"t1"}]}`},
		"tools":           {`{"model":"m","max_tokens":5,"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"cache_control":{}}],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"messages":[{"role":"user","content":"hi"}]}`, `{"model":"m","max_tokens":5,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],"tool_choice":"required","parallel_tool_calls":false,"messages":[{"role":"user","content":"hi"}]}`},
		"a named tool":    {`{"model":"m","max_tokens":5,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f"},"messages":[{"role":"user","content":"hi"}]}`, `{"model":"m","max_tokens":5,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"messages":[{"role":"user","content":"hi"}]}`},
		"a schema":        {`{"model":"m","max_tokens":5,"output_format":{"type":"json_schema","schema":{"type":"object"}},"messages":[{"role":"user","content":"hi"}]}`, `{"model":"m","max_tokens":5,"response_format":{"type":"json_schema","json_schema":{"name":"response","schema":{"type":"object"},"strict":true}},"messages":[{"role":"user","content":"hi"}]}`},
		"null fields":     {`{"model":"m","max_tokens":5,"system":null,"tools":null,"tool_choice":null,"stop_sequences":null,"stream":null,"thinking":null,"metadata":null,"messages":[{"role":"user","content":"hi"}]}`, `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, e := Translate([]byte(c.body), false)
			if e != nil {
				t.Fatal(e)
			}
			if diff := cmp.Diff(asJSON(t, c.want), asJSON(t, string(r.Body))); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"hi"}]`
	for name, c := range map[string]struct{ body, param string }{
		"no JSON":         {`{`, ""},
		"no model":        {`{"max_tokens":5,` + user + `}`, "model"},
		"no bound":        {`{"model":"m",` + user + `}`, "max_tokens"},
		"bound of 0":      {`{"model":"m","max_tokens":0,` + user + `}`, "max_tokens"},
		"no messages":     {`{"model":"m","max_tokens":5}`, "messages"},
		"odd role":        {`{"model":"m","max_tokens":5,"messages":[{"role":"x","content":"a"}]}`, "messages"},
		"odd content":     {`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":7}]}`, ""},
		"a document":      {`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"document"}]}]}`, "messages"},
		"an empty image":  {`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]}`, "messages"},
		"a server's tool": {`{"model":"m","max_tokens":5,"tools":[{"type":"web_search_20250305","name":"w"}],` + user + `}`, "tools"},
		"odd tool choice": {`{"model":"m","max_tokens":5,"tool_choice":{"type":"x"},` + user + `}`, "tool_choice"},
	} {
		if _, e := Translate([]byte(c.body), false); e == nil || e.Status != 400 || e.Param != c.param {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if r, e := Translate([]byte(`{"model":"m","stream":true,`+user+`}`), true); e != nil || r.Stream {
		t.Errorf("count_tokens: %+v, %v", r, e)
	}
	if got := string(Counted(7)); got != `{"input_tokens":7}` {
		t.Errorf("counted: %s", got)
	}
}

func FuzzTranslate(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":5,"tools":[{"name":"f"}],"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text"}]}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, e := Translate(body, false); e == nil && !json.Valid(r.Body) {
			t.Fatalf("%q became %q", body, r.Body)
		}
	})
}
