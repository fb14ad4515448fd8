package responses

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
	const user = `{"role":"user","content":"hi"}`
	cases := map[string]struct {
		body, earlier, want string
		notes               []string
	}{
		"a text":       {body: `{"model":"m","input":"hi"}`, want: `{"model":"m","messages":[` + user + `]}`},
		"stream":       {body: `{"model":"m","input":"hi","stream":true}`, want: `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[` + user + `]}`},
		"instructions": {body: `{"model":"m","input":"hi","instructions":"be"}`, want: `{"model":"m","messages":[{"role":"system","content":"be"},` + user + `]}`},
		"parameters":   {body: `{"model":"m","input":"hi","max_output_tokens":5,"temperature":0.5,"top_p":0.9,"user":"u","prompt_cache_key":"k","reasoning":{"effort":"low"},"top_logprobs":0}`, want: `{"model":"m","max_tokens":5,"temperature":0.5,"top_p":0.9,"user":"u","prompt_cache_key":"k","reasoning_effort":"low","messages":[` + user + `]}`},
		"one system message": {body: `{"model":"m","instructions":"a","input":[{"role":"developer","content":"b"},{"type":"message","role":"system","content":[{"type":"input_text","text":"c"}]},{"role":"user","content":"hi"},{"role":"developer","content":"d"}]}`,
			want: `{"model":"m","messages":[{"role":"system","content":"a\n\nb\n\nc"},` + user + `,{"role":"system","content":"d"}]}`},
		"parts": {body: `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"what"},{"type":"input_image","image_url":"data:,","detail":"low"}]}]}`,
			want: `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:,","detail":"low"}}]}]}`},
		"calls": {body: `{"model":"m","input":[{"role":"user","content":"hi"},{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"1"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"},{"type":"input_image","image_url":"u"}]}]}`,
			want: `{"model":"m","messages":[` + user + `,{"role":"assistant","content":"ok","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"1"},{"role":"tool","tool_call_id":"c2","content":"2"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}`},
		"going on": {body: `{"model":"m","input":"more","instructions":"be","previous_response_id":"resp_1"}`, earlier: `[{"role":"user","content":"hi"},{"type":"message","role":"assistant","id":"x","content":[{"type":"output_text","text":"ok","annotations":[]}]}]`,
			want: `{"model":"m","messages":[{"role":"system","content":"be"},` + user + `,{"role":"assistant","content":"ok"},{"role":"user","content":"more"}]}`},
		"tools": {body: `{"model":"m","input":"hi","tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true},{"type":"web_search"}],"tool_choice":"required","parallel_tool_calls":false}`,
			want: `{"model":"m","messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"},"strict":true}}],"tool_choice":"required","parallel_tool_calls":false}`, notes: []string{"tool web_search left out"}},
		"a named tool": {body: `{"model":"m","input":"hi","tools":[{"type":"function","name":"f","parameters":null}],"tool_choice":{"type":"function","name":"f"}}`,
			want: `{"model":"m","messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`},
		"a free-form tool": {body: `{"model":"m","input":[{"role":"user","content":"hi"},{"type":"custom_tool_call","call_id":"c","name":"p","input":"a\"b"},{"type":"custom_tool_call_output","call_id":"c","output":"1"}],"tools":[{"type":"custom","name":"p","description":"d","format":{"type":"grammar","syntax":"lark","definition":"x"}}]}`,
			want: `{"model":"m","messages":[` + user + `,{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"p","arguments":"{\"input\":\"a\\\"b\"}"}}]},{"role":"tool","tool_call_id":"c","content":"1"}],"tools":[{"type":"function","function":{"name":"p","description":"d\nThe input follows this lark grammar:\nx","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}}]}`},
		"a schema": {body: `{"model":"m","input":"hi","text":{"format":{"type":"json_schema","name":"s","schema":{"type":"object"},"strict":true}}}`,
			want: `{"model":"m","messages":[` + user + `],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"},"strict":true}}}`},
		"an object":   {body: `{"model":"m","input":"hi","text":{"format":{"type":"json_object"}}}`, want: `{"model":"m","messages":[` + user + `],"response_format":{"type":"json_object"}}`},
		"null fields": {body: `{"model":"m","input":"hi","instructions":null,"tools":null,"tool_choice":null,"text":null,"stream":null,"store":null,"reasoning":null,"previous_response_id":null,"max_output_tokens":null,"background":null}`, want: `{"model":"m","messages":[` + user + `]}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, e := Translate([]byte(c.body), []byte(c.earlier))
			if e != nil {
				t.Fatal(e)
			}
			if diff := cmp.Diff(asJSON(t, c.want), asJSON(t, string(r.Body))); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.notes, r.Notes); diff != "" || !r.Store {
				t.Errorf("store %v, notes:\n%s", r.Store, diff)
			}
		})
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ body, earlier, param string }{
		"no JSON":           {`{`, "", ""},
		"no model":          {`{"input":"hi"}`, "", "model"},
		"no input":          {`{"model":"m"}`, "", "input"},
		"odd input":         {`{"model":"m","input":7}`, "", "input"},
		"odd item":          {`{"model":"m","input":[7]}`, "", "input"},
		"odd role":          {`{"model":"m","input":[{"role":"x","content":"a"}]}`, "", "input"},
		"an item reference": {`{"model":"m","input":[{"type":"item_reference","id":"x"}]}`, "", "input"},
		"a file":            {`{"model":"m","input":[{"role":"user","content":[{"type":"input_file"}]}]}`, "", "input"},
		"no image":          {`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`, "", "input"},
		"background":        {`{"model":"m","input":"hi","background":true}`, "", "background"},
		"required, hosted":  {`{"model":"m","input":"hi","tools":[{"type":"web_search"}],"tool_choice":"required"}`, "", "tool_choice"},
		"a hosted tool":     {`{"model":"m","input":"hi","tool_choice":{"type":"web_search"}}`, "", "tool_choice"},
		"odd tool choice":   {`{"model":"m","input":"hi","tool_choice":7}`, "", "tool_choice"},
		"odd format":        {`{"model":"m","input":"hi","text":{"format":{"type":"yaml"}}}`, "", "text.format"},
		"no schema":         {`{"model":"m","input":"hi","text":{"format":{"type":"json_schema"}}}`, "", "text.format.schema"},
		"logprobs":          {`{"model":"m","input":"hi","top_logprobs":2}`, "", "top_logprobs"},
		"stored, broken":    {`{"model":"m","input":"hi"}`, "{", "previous_response_id"},
	} {
		if _, e := Translate([]byte(c.body), []byte(c.earlier)); e == nil || e.Status != 400 || e.Param != c.param {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestItemsAreWhatTheNextRequestGoesOnFrom(t *testing.T) {
	first, e := Translate([]byte(`{"model":"m","input":"hi"}`), nil)
	if e != nil {
		t.Fatal(e)
	}
	a := NewAnswer(first, "1", 0)
	if _, e := a.Whole([]byte(`{"choices":[{"message":{"content":"ok","reasoning":"hm","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}`)); e != nil {
		t.Fatal(e)
	}
	earlier := string(first.Items[:len(first.Items)-1]) + "," + string(a.Output()[1:])
	next, e := Translate([]byte(`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"1"}]}`), []byte(earlier))
	if e != nil {
		t.Fatal(e)
	}
	want := `{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ok","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"1"}]}`
	if diff := cmp.Diff(asJSON(t, want), asJSON(t, string(next.Body))); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func FuzzTranslate(f *testing.F) {
	f.Add([]byte(`{"model":"m","input":[{"role":"user","content":[{"type":"input_text"}]},{"type":"function_call"}],"tools":[{"type":"custom"}]}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, body, earlier []byte) {
		r, e := Translate(body, earlier)
		if e != nil {
			return
		}
		if !json.Valid(r.Body) || !json.Valid(r.Items) {
			t.Fatalf("%q became %q with %q", body, r.Body, r.Items)
		}
		if doc := NewAnswer(r, "1", 0).Document(); !json.Valid(doc) {
			t.Fatalf("document %q", doc)
		}
	})
}
