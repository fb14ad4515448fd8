package ollama

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asJSON compares bodies without their spacing and order.
func asJSON(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"

func TestRequestsBecomeChatCompletions(t *testing.T) {
	cases := map[string]struct {
		generate   bool
		body, want string
		stream     bool
		notes      []string
	}{
		"chat": {body: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, stream: true,
			want: `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`},
		"no stream": {body: `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":false}`,
			want: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`},
		"options": {body: `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}],"options":{"temperature":0.1,"top_p":0.9,"top_k":4,"seed":7,"stop":["x"],"num_predict":5,"num_ctx":99999,"num_gpu":1,"mirostat":null,"main_gpu":0}}`,
			want:  `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5,"temperature":0.1,"top_p":0.9,"top_k":4,"seed":7,"stop":["x"]}`,
			notes: []string{"num_ctx clamped to 8192", "main_gpu, num_gpu ignored"}},
		"no bound": {body: `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}],"options":{"num_predict":-1,"num_ctx":10},"keep_alive":-1}`,
			want: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, notes: []string{"keep_alive ignored", "num_ctx ignored"}},
		"format json":   {body: `{"model":"m","stream":false,"format":"json","messages":[{"role":"user","content":"hi"}]}`, want: `{"model":"m","messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"}}`},
		"format empty":  {body: `{"model":"m","stream":false,"format":"","messages":[{"role":"user","content":"hi"}]}`, want: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`},
		"format schema": {body: `{"model":"m","stream":false,"format":{"type":"object"},"messages":[{"role":"user","content":"hi"}]}`, want: `{"model":"m","messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"response","schema":{"type":"object"},"strict":true}}}`},
		"images":        {body: `{"model":"m","stream":false,"messages":[{"role":"user","content":"what","images":["` + png + `"]}]}`, want: `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + png + `"}}]}]}`},
		"tools": {body: `{"model":"m","stream":false,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"messages":[{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"g"}}]},{"role":"tool","tool_name":"g","content":"2"},{"role":"tool","content":"1"},{"role":"tool","content":"0"}]}`,
			want: `{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","content":"2","tool_call_id":"call_2"},{"role":"tool","content":"1","tool_call_id":"call_1"},{"role":"tool","content":"0","tool_call_id":"call_0"}]}`},
		"think":         {body: `{"model":"m","stream":false,"think":false,"messages":[{"role":"user","content":"hi"}]}`, want: `{"model":"m","messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"enable_thinking":false}}`},
		"think, graded": {body: `{"model":"m","stream":false,"think":"low","messages":[{"role":"user","content":"hi"}]}`, want: `{"model":"m","messages":[{"role":"user","content":"hi"}],"reasoning_effort":"low"}`},
		"generate": {generate: true, body: `{"model":"m","prompt":"hi","system":"be","template":"{{.Prompt}}","context":[1],"stream":false}`,
			want: `{"model":"m","messages":[{"role":"system","content":"be"},{"role":"user","content":"hi"}]}`, notes: []string{"template ignored", "context ignored"}},
		"generate, null fields": {generate: true, body: `{"model":"m","prompt":"hi","system":null,"images":null,"options":null,"keep_alive":null,"raw":null,"stream":null}`, stream: true,
			want: `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			translate := Chat
			if c.generate {
				translate = Generate
			}
			r, e := translate([]byte(c.body), 8192)
			if e != nil {
				t.Fatal(e)
			}
			if diff := cmp.Diff(asJSON(t, []byte(c.want)), asJSON(t, r.Body)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.notes, r.Notes); diff != "" || r.Stream != c.stream || r.Model != "m" {
				t.Errorf("%+v, notes:\n%s", r, diff)
			}
		})
	}
}

func TestRequestsWithoutAPromptOnlyLoad(t *testing.T) {
	if r, e := Chat([]byte(`{"model":"m","messages":[]}`), 0); e != nil || r.Body != nil {
		t.Errorf("chat: %+v, %v", r, e)
	}
	if r, e := Generate([]byte(`{"model":"m","keep_alive":0}`), 0); e != nil || r.Body != nil || len(r.Notes) != 1 {
		t.Errorf("generate: %+v, %v", r, e)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		generate    bool
		body, param string
	}{
		"no JSON":         {false, `{`, ""},
		"no model":        {false, `{"messages":[]}`, "model"},
		"odd messages":    {false, `{"model":"m","messages":7}`, ""},
		"odd format":      {false, `{"model":"m","format":"yaml","messages":[{"role":"user"}]}`, "format"},
		"odd num_predict": {false, `{"model":"m","options":{"num_predict":"x"},"messages":[{"role":"user"}]}`, "options.num_predict"},
		"no picture":      {false, `{"model":"m","messages":[{"role":"user","images":["AAAAAAAAAAAAAAAA"]}]}`, "images"},
		"no base64":       {false, `{"model":"m","messages":[{"role":"user","images":["http://x"]}]}`, "images"},
		"suffix":          {true, `{"model":"m","prompt":"a","suffix":"b"}`, "suffix"},
		"raw":             {true, `{"model":"m","prompt":"a","raw":true}`, "raw"},
	} {
		translate := Chat
		if c.generate {
			translate = Generate
		}
		if _, e := translate([]byte(c.body), 0); e == nil || e.Status != 400 || e.Param != c.param {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestEmbeddings(t *testing.T) {
	cases := map[string]struct {
		old        bool
		body, want string
	}{
		"a text": {false, `{"model":"m","input":"a","keep_alive":"5m"}`, `{"model":"m","input":"a","encoding_format":"float"}`},
		"a list": {false, `{"model":"m","input":["a","b"],"dimensions":8}`, `{"model":"m","input":["a","b"],"encoding_format":"float","dimensions":8}`},
		"old":    {true, `{"model":"m","prompt":"a"}`, `{"model":"m","input":"a","encoding_format":"float"}`},
	}
	for name, c := range cases {
		r, e := Embed([]byte(c.body), c.old)
		if e != nil {
			t.Fatalf("%s: %v", name, e)
		}
		if diff := cmp.Diff(asJSON(t, []byte(c.want)), asJSON(t, r.Body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, body := range map[string]string{"number": `{"model":"m","input":7}`, "no model": `{"input":"a"}`, "no JSON": `[`} {
		if _, e := Embed([]byte(body), false); e == nil || e.Status != 400 {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if r, e := Embed([]byte(`{"model":"m"}`), false); e != nil || r.Body != nil {
		t.Errorf("without a text: %+v, %v", r, e)
	}
	answer := []byte(`{"data":[{"index":1,"embedding":[0.25]},{"index":0,"embedding":[1e-3,-0.0]}],"usage":{"prompt_tokens":4}}`)
	got, e := Embedded("m", answer, false, 5)
	if want := `{"model":"m","embeddings":[[1e-3,-0.0],[0.25]],"total_duration":5,"load_duration":0,"prompt_eval_count":4}`; e != nil || string(got) != want {
		t.Errorf("embed: %s, %v", got, e)
	}
	if got, e := Embedded("m", answer, true, 5); e != nil || string(got) != `{"embedding":[1e-3,-0.0]}` {
		t.Errorf("embeddings: %s, %v", got, e)
	}
	if _, e := Embedded("m", []byte(`{"error":{"message":"input is too large to process"}}`), false, 5); e == nil || e.Status != 400 {
		t.Errorf("an error: %v", e)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"tool","content":"x","images":["iVBORw0KGgo="],"tool_calls":[{}]}],"options":{"a":1},"format":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, translate := range []func([]byte, int64) (*Request, error){
			func(b []byte, n int64) (*Request, error) {
				r, e := Chat(b, n)
				if e != nil {
					return nil, e
				}
				return r, nil
			},
			func(b []byte, n int64) (*Request, error) {
				r, e := Generate(b, n)
				if e != nil {
					return nil, e
				}
				return r, nil
			},
		} {
			if r, err := translate(body, 8); err == nil && r.Body != nil && !json.Valid(r.Body) {
				t.Fatalf("%q became %q", body, r.Body)
			}
		}
		if r, e := Embed(body, false); e == nil && r.Body != nil && !json.Valid(r.Body) {
			t.Fatalf("%q became %q", body, r.Body)
		}
	})
}
