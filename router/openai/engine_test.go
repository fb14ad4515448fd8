package openai

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestOverflowOfEveryEngineHasOneCode(t *testing.T) {
	cases := map[string]struct {
		status int
		body   string
	}{
		"llama.cpp":             {400, `{"error":{"code":400,"message":"request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":4390,"n_ctx":4096}}`},
		"llama.cpp, status 200": {200, `{"error":{"code":400,"message":"the request exceeds the available context size.","type":"exceed_context_size_error"}}`},
		"llama.cpp, by type":    {500, `{"error":{"code":500,"message":"too much","type":"exceed_context_size_error"}}`},
		"llama.cpp, pool":       {500, `{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}`},
		"llama.cpp, embeddings": {500, `{"error":{"code":500,"message":"input is too large to process. increase the physical batch size","type":"server_error"}}`},
		"vLLM":                  {400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens","type":"BadRequestError","param":null,"code":400}}`},
		"vLLM, older":           {400, `{"object":"error","message":"This model's maximum context length is 1536 tokens.","type":"BadRequestError","param":null,"code":400}`},
		"vLLM, nothing left":    {400, `{"error":{"message":"max_tokens must be at least 1, got -12.","type":"BadRequestError","code":400}}`},
		"vLLM, decoder":         {400, `{"error":{"message":"The decoder prompt (length 9) is longer than the maximum model length of 8.","code":400}}`},
		"SGLang":                {400, `{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequest","param":null,"code":400}`},
		"SGLang, sum":           {400, `{"object":"error","message":"Requested token count exceeds the model's maximum context length of 8192 tokens.","code":400}`},
		"TGI":                   {422, "{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000\",\"error_type\":\"validation\"}"},
		"TEI":                   {413, "{\"error\":\"Input validation error: `inputs` must have less than 512 tokens. Given: 600\",\"error_type\":\"Validation\"}"},
		"Ollama":                {400, `{"error":"the input length exceeds the context length"}`},
		"OpenAI":                {400, `{"error":{"message":"x","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`},
		"Anthropic":             {400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e, ok := ReadError(c.status, []byte(c.body))
			if !ok || e.Status != 400 || e.Code != CodeTooLong || e.Message == "" {
				t.Fatalf("%+v, %v", e, ok)
			}
			status, body, changed := Chat.MendError(c.status, []byte(c.body), Origin{})
			if status != 400 || !changed || !strings.Contains(string(body), `"code":"context_length_exceeded"`) {
				t.Errorf("%d %s, changed %v", status, body, changed)
			}
		})
	}
}

func TestReadErrorTellsErrorsFromAnswers(t *testing.T) {
	cases := map[string]struct {
		status int
		body   string
		want   Error
		none   bool
	}{
		"an answer":             {status: 200, body: `{"choices":[{"message":{"content":"error"}}]}`, none: true},
		"an answer, null error": {status: 200, body: `{"id":"resp_1","error":null,"output":[]}`, none: true},
		"an answer with a note": {status: 200, body: `{"choices":[],"error":{"message":"x"}}`, none: true},
		"200 with an error":     {status: 200, body: `{"error":{"message":"boom","type":"server_error","code":503}}`, want: Error{Status: 503, Type: "server_error", Message: "boom"}},
		"200, no code":          {status: 200, body: `{"error":"boom"}`, want: Error{Status: 502, Type: TypeServer, Message: "boom"}},
		"200, odd code":         {status: 200, body: `{"error":{"message":"boom","code":7}}`, want: Error{Status: 502, Type: TypeServer, Message: "boom"}},
		"FastAPI":               {status: 422, body: `{"detail":[{"loc":["body"],"msg":"bad"}]}`, want: Error{Status: 422, Type: TypeInvalidRequest, Message: `[{"loc":["body"],"msg":"bad"}]`}},
		"FastAPI, text":         {status: 404, body: `{"detail":"Not Found"}`, want: Error{Status: 404, Type: TypeInvalidRequest, Message: "Not Found"}},
		"no tools":              {status: 500, body: `{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}`, want: Error{Status: 400, Type: TypeInvalidRequest, Code: CodeUnsupported, Message: "tools param requires --jinja flag"}},
		"no images":             {status: 500, body: `{"error":{"message":"image input is not supported - hint: mmproj"}}`, want: Error{Status: 400, Type: TypeInvalidRequest, Code: CodeUnsupported, Message: "image input is not supported - hint: mmproj"}},
		"no JSON":               {status: 500, body: `Internal Server Error`, none: true},
		"empty":                 {status: 503, none: true},
		"cut":                   {status: 500, body: `{"error":{"mess`, none: true},
		"odd":                   {status: 500, body: `{"error":[1,2]}`, none: true},
		"error is false":        {status: 200, body: `{"error":false,"message":"x"}`, none: true},
	}
	for name, c := range cases {
		e, ok := ReadError(c.status, []byte(c.body))
		if ok == c.none {
			t.Errorf("%s: %+v, %v", name, e, ok)
		} else if ok && *e != c.want {
			t.Errorf("%s: %+v, want %+v", name, *e, c.want)
		}
	}
}

func TestMendErrorKeepsWhatHasTheForm(t *testing.T) {
	openAI, anthropic := `{"error":{"message":"m","type":"t","x":1}}`, `{"type":"error","error":{"type":"t","message":"m"},"y":2}`
	cases := map[string]struct {
		d      Dialect
		status int
		body   string
		kept   bool
		has    string
	}{
		"own form":           {Chat, 500, openAI, true, `"x":1`},
		"Anthropic's":        {Messages, 429, anthropic, true, `"y":2`},
		"OpenAI's, Messages": {Messages, 429, openAI, false, `"type":"rate_limit_error"`},
		"Anthropic's, chat":  {Chat, 429, anthropic, true, `"y":2`},
		"old vLLM":           {Chat, 404, `{"object":"error","message":"m","code":404}`, false, `"error":{"message":"m"`},
		"OpenAI's, Ollama":   {Ollama, 500, openAI, false, `{"error":"m"}`},
		"Ollama's":           {Ollama, 404, `{"error":"m"}`, true, `{"error":"m"}`},
		"a page":             {Chat, 502, `<html><body>502</body></html>`, false, `the engine answered with status 502`},
		"text":               {Chat, 500, "boom \xff", false, `status 500: boom`},
		"nothing":            {Chat, 503, ``, false, `status 503`},
		"200, an error":      {Chat, 200, openAI, false, `"message":"m"`},
		"200, an answer":     {Chat, 200, `{"choices":[]}`, true, `{"choices":[]}`},
	}
	for name, c := range cases {
		status, body, changed := c.d.MendError(c.status, []byte(c.body), Origin{RequestID: "r"})
		if changed == c.kept || !strings.Contains(string(body), c.has) {
			t.Errorf("%s: %d %s, changed %v", name, status, body, changed)
		}
		if changed && (!json.Valid(body) || status < 400) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

func FuzzReadError(f *testing.F) {
	f.Add(200, []byte(`{"error":{"message":"boom","type":"server_error","code":503}}`))
	f.Add(500, []byte(`{"object":"error","message":1,"detail":[]}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if e, ok := ReadError(status, body); ok && (e.Status < 400 || e.Message == "") {
			t.Fatalf("%+v", e)
		}
		for _, d := range []Dialect{Chat, Plain, Responses, Messages, Ollama} {
			if _, mended, changed := d.MendError(status, body, Origin{}); changed && !json.Valid(mended) {
				t.Fatalf("%q became %q", body, mended)
			}
		}
	})
}

func TestDialectsEndStreamsInTheirOwnTerms(t *testing.T) {
	e := &Error{Status: http.StatusBadGateway, Type: TypeServer, Code: "engine_failed", Message: "line\nend \"quoted\" \xff data: [DONE]\n\n"}
	for _, d := range []Dialect{Chat, Plain, Responses, Messages} {
		frames := d.StreamError(e, Origin{Node: "n", RequestID: "r"}, nil)
		var tr Tracker
		tr.Feed(frames)
		if !tr.Boundary() || !tr.Failed() || !tr.Ended(d) && d != Messages {
			t.Errorf("dialect %d: %q", d, frames)
		}
		if tr.Done() != (d == Chat) {
			t.Errorf("dialect %d has [DONE]: %v", d, tr.Done())
		}
		for _, line := range strings.Split(string(frames), "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" && !json.Valid([]byte(data)) {
				t.Errorf("dialect %d: %q is no JSON", d, data)
			}
		}
		var keep Tracker
		if keep.Feed([]byte(d.KeepAlive() + d.Comment("loading"))); !keep.Boundary() || keep.Failed() || keep.Done() {
			t.Errorf("dialect %d: %q breaks a stream", d, d.KeepAlive())
		}
	}
	line := string(Ollama.StreamError(e, Origin{}, nil))
	if !strings.HasSuffix(line, "}\n") || strings.Count(line, "\n") != 1 || !json.Valid([]byte(line)) {
		t.Errorf("Ollama's line is %q", line)
	}
	if Ollama.KeepAlive() != "" {
		t.Error("Ollama's clients take each line for a piece")
	}
}

func TestResponseStateGoesOnCounting(t *testing.T) {
	stream := "event: response.created\n" + events(`{"type":"response.created","sequence_number":0,"response":{"id":"resp_7","object":"response"}}`) +
		events(`{"type":"response.output_text.delta","delta":"\"sequence_number\":99","sequence_number": 41}`)
	var s ResponseState
	s.Feed([]byte(stream[:40]))
	s.Feed([]byte(stream[40:]))
	if s.ID != "resp_7" || s.Sequence != 42 {
		t.Fatalf("%+v", s)
	}
	frame := string(Responses.StreamError(&Error{Message: "m", Code: "c"}, Origin{}, &s))
	for _, part := range []string{"event: response.failed\n", `"sequence_number":42`, `"id":"resp_7"`, `"error":{"code":"c","message":"m"}`, `"usage":null`} {
		if !strings.Contains(frame, part) {
			t.Errorf("%s lacks %s", frame, part)
		}
	}
}

func TestTrackerKnowsTheEndOfEachDialect(t *testing.T) {
	cases := map[string]struct {
		stream string
		d      Dialect
		want   bool
	}{
		"responses":             {"event: response.completed\ndata: {}\n\n", Responses, true},
		"responses, incomplete": {"event: response.incomplete\ndata: {}\n\n", Responses, true},
		"responses, failed":     {"event:response.failed\ndata: {}\n\n", Responses, true},
		"responses, unnamed":    {"data: {\"type\":\"response.completed\",\"x\":1}\n\n", Responses, true},
		"responses, not whole":  {"event: response.completed\ndata: {}\n", Responses, false},
		"responses, [DONE]":     {DoneFrame, Responses, false},
		"responses, longer":     {"event: response.completed.not\ndata: {}\n\n", Responses, false},
		"responses, in text":    {"data: {\"delta\":\"event: response.completed\"}\n\n", Responses, false},
		"messages":              {"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", Messages, true},
		"messages, not yet":     {"event: message_delta\ndata: {}\n\n", Messages, false},
		"chat":                  {"event: message_stop\ndata: {}\n\n", Chat, false},
		"chat, done":            {DoneFrame, Chat, true},
		"plain":                 {"", Plain, true},
	}
	for name, c := range cases {
		for size := 1; size < 60; size += 7 {
			var tr Tracker
			for rest := c.stream; rest != ""; {
				n := min(size, len(rest))
				tr.Feed([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got := tr.Ended(c.d); got != c.want {
				t.Errorf("%s, reads of %d: %v", name, size, got)
			}
		}
	}
}
