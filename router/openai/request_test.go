package openai

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func scanOf(t *testing.T, body string) Request {
	t.Helper()
	r, err := Scan([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func TestScanReadsWhatLimitsAndRoutingNeed(t *testing.T) {
	count := func(n int64) Count { return Count{N: n, Set: true} }
	cases := map[string]struct {
		body string
		want Request
	}{
		"lengths":             {`{"max_tokens":5,"max_completion_tokens":6,"max_output_tokens":7,"n_predict":-1}`, Request{MaxTokens: count(5), MaxCompletionTokens: count(6), MaxOutputTokens: count(7), NPredict: count(-1)}},
		"spelled as floats":   {`{"max_tokens":1e2,"n":2.0}`, Request{MaxTokens: count(100), N: count(2)}},
		"null equals absent":  {`{"max_tokens":null,"n":null,"tools":null,"stop":null,"logprobs":null,"stream_options":null,"tool_choice":null,"response_format":null,"store":null,"messages":null,"input":null,"options":null}`, Request{}},
		"null undoes":         {`{"max_tokens":5,"max_tokens":null,"store":true,"store":null,"tool_choice":"none","tool_choice":null}`, Request{}},
		"choices":             {`{"n":3,"best_of":4}`, Request{N: count(3), BestOf: count(4)}},
		"usage asked":         {`{"stream":true,"stream_options":{"include_usage":true}}`, Request{Stream: true, IncludeUsage: true}},
		"usage not asked":     {`{"stream_options":{"include_usage":false}}`, Request{}},
		"usage null":          {`{"stream_options":{"include_usage":null}}`, Request{}},
		"options odd":         {`{"stream_options":[true]}`, Request{}},
		"tools":               {`{"tools":[{}]}`, Request{Tools: true}},
		"no tools":            {`{"tools":[ ]}`, Request{}},
		"functions":           {`{"functions":[1]}`, Request{Tools: true}},
		"choice none":         {`{"tool_choice":"none"}`, Request{ToolChoice: ToolChoice{Kind: ToolsNone}}},
		"choice required":     {`{"tool_choice":"required"}`, Request{ToolChoice: ToolChoice{Kind: ToolsRequired}}},
		"choice any":          {`{"tool_choice":{"type":"any"}}`, Request{ToolChoice: ToolChoice{Kind: ToolsRequired}}},
		"choice auto, object": {`{"tool_choice":{"type":"auto"}}`, Request{ToolChoice: ToolChoice{Kind: ToolsAuto}}},
		"choice named":        {`{"tool_choice":{"type":"function","function":{"name":"f"}}}`, Request{ToolChoice: ToolChoice{ToolNamed, "f"}}},
		"choice named, short": {`{"tool_choice":{"type":"function","name":"f"}}`, Request{ToolChoice: ToolChoice{ToolNamed, "f"}}},
		"choice of Messages":  {`{"tool_choice":{"type":"tool","name":"f"}}`, Request{ToolChoice: ToolChoice{ToolNamed, "f"}}},
		"choice of some":      {`{"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required"}}}`, Request{ToolChoice: ToolChoice{Kind: ToolsRequired}}},
		"choice odd":          {`{"tool_choice":7}`, Request{}},
		"serial tools":        {`{"parallel_tool_calls":false}`, Request{ParallelTools: Flag{Set: true}}},
		"format object":       {`{"response_format":{"type":"json_object"}}`, Request{Format: FormatObject}},
		"format schema":       {`{"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}}`, Request{Format: FormatSchema}},
		"format text":         {`{"response_format":{"type":"text"}}`, Request{}},
		"format of Responses": {`{"text":{"format":{"type":"json_schema","name":"x"}}}`, Request{Format: FormatSchema}},
		"text without format": {`{"response_format":{"type":"json_object"},"text":"x"}`, Request{Format: FormatObject}},
		"logprobs":            {`{"logprobs":true,"top_logprobs":5}`, Request{Logprobs: true, TopLogprobs: count(5)}},
		"logprobs, a number":  {`{"logprobs":0}`, Request{Logprobs: true}},
		"no logprobs":         {`{"logprobs":false}`, Request{}},
		"state":               {`{"store":false,"previous_response_id":"resp_1","background":true}`, Request{Store: Flag{Set: true}, PreviousResponse: "resp_1", Background: Flag{On: true, Set: true}}},
		"embeddings":          {`{"input":["a","b"],"encoding_format":"base64"}`, Request{Inputs: 2, EncodingFormat: "base64"}},
		"a text":              {`{"input":"a"}`, Request{Inputs: 1}},
		"token list":          {`{"input":[1,2,3]}`, Request{Inputs: 1}},
		"token lists":         {`{"input":[ [1,2],[3]]}`, Request{Inputs: 2}},
		"no inputs":           {`{"input":[]}`, Request{}},
		"prompts":             {`{"prompt":["a","b","c"]}`, Request{Inputs: 3}},
		"Ollama's":            {`{"keep_alive":"5m","options":{"num_ctx":4096}}`, Request{KeepAlive: true, NumCtx: count(4096)}},
		"Ollama's, none":      {`{"keep_alive":null,"options":{"num_ctx":"x"}}`, Request{}},
		"images":              {`{"messages":[{"content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}`, Request{Images: 1}},
		"images of Messages":  {`{"messages":[{"content":[{"type":"image","source":{}},{"type":"tool_result","content":[{"type":"image"}]}]}]}`, Request{Images: 2}},
		"images of Responses": {`{"input":[{"role":"user","content":[{"type":"input_image"},{"type":"input_file"}]},{"type":"function_call_output","output":[{"type":"input_image"}]}]}`, Request{Images: 2, Files: 1, Inputs: 2}},
		"audio":               {`{"messages":[{"content":[{"type":"input_audio"}]}]}`, Request{Audio: 1}},
		"words are no images": {`{"messages":[{"content":"image_url"},{"content":[{"type":"tool_use","input":{"type":"image"}}]}]}`, Request{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := scanOf(t, c.body)
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(Request{}), cmpopts.IgnoreFields(Request{}, "TextBytes")); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScanRefusesCountsThatLimitsDependOn(t *testing.T) {
	for _, body := range []string{
		`{"max_tokens":"5"}`, `{"max_tokens":1.5}`, `{"n":true}`, `{"max_completion_tokens":[1]}`, `{"best_of":{}}`, `{"n":1e400}`,
		`{"max_tokens":99999999999999999999}`, `{"n":"` + strings.Repeat("9", 5000) + `"}`,
	} {
		var field *FieldError
		if _, err := Scan([]byte(body)); !errors.As(err, &field) {
			t.Errorf("%.40s: %v", body, err)
		}
	}
}

func TestScanBoundsTheNumberOfFields(t *testing.T) {
	body := func(n int) string { return "{" + strings.Repeat(`"":0,`, n-1) + `"":0}` }
	if _, err := Scan([]byte(body(maxFields))); err != nil {
		t.Errorf("%d fields: %v", maxFields, err)
	}
	var syntax *SyntaxError
	if _, err := Scan([]byte(body(maxFields + 1))); !errors.As(err, &syntax) {
		t.Errorf("%d fields: %v", maxFields+1, err)
	}
}

func TestFieldGivesRawValues(t *testing.T) {
	r := scanOf(t, `{"a":1, "a" : [ 2 ] ,"b":null,"\u0063":"x"}`)
	for name, want := range map[string]string{"a": "[ 2 ]", "b": "", "c": `"x"`, "d": ""} {
		if got := string(r.Field(name)); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestTextBytesLeaveMediaOut(t *testing.T) {
	image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 4000) + `"}}`
	messages := `[{"role":"user","content":[{"type":"text","text":"hi"},` + image + `]}]`
	cases := map[string]struct {
		body string
		want int
	}{
		"messages":    {`{"messages":` + messages + `,"tools":[1],"system":"abc"}`, len(messages) - len(image) + 3 + 5},
		"text":        {`{"prompt":"abc","suffix":"x"}`, 5},
		"responses":   {`{"instructions":"a","input":"bc"}`, 3 + 4},
		"rerank":      {`{"query":"a","documents":["b"]}`, 3 + 5},
		"nothing":     {`{"model":"m"}`, 0},
		"last counts": {`{"prompt":"abc","prompt":"a"}`, 3},
	}
	for name, c := range cases {
		if r := scanOf(t, c.body); r.TextBytes != c.want {
			t.Errorf("%s: %d, want %d", name, r.TextBytes, c.want)
		}
	}
}

func TestALongSpellingOfANumberIsRefused(t *testing.T) {
	for _, spelled := range []string{"1." + strings.Repeat("0", 62) + "e5", "1" + strings.Repeat("0", 80)} {
		if r, err := Scan([]byte(`{"max_tokens":` + spelled + `}`)); err == nil {
			t.Errorf("%s is read as %d", spelled, r.MaxTokens.N)
		}
	}
}
