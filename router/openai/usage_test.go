package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func events(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "data: %s\n\n", line)
	}
	return b.String()
}

func chatPiece(text string) string {
	return `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}],"usage":null}`
}

var usageCases = map[string]struct {
	body string
	want Usage
	none bool
}{
	"chat, whole": {body: `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":4}}}`,
		want: Usage{Input: 9, Cached: 4, Output: 2, Source: UsageEngine}},
	"chat, stream": {body: events(chatPiece("a"), chatPiece("b"), `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`, "[DONE]"),
		want: Usage{Input: 9, Output: 2, Source: UsageEngine}},
	"running totals": {body: events(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`,
		`{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`), want: Usage{Input: 9, Output: 2, Source: UsageEngine}},
	"messages, two events": {body: "event: message_start\n" + events(`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":3,"output_tokens":1}}}`) +
		"event: message_delta\n" + events(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":25}}`),
		want: Usage{Input: 18, Cached: 5, CacheWrite: 3, Output: 25, Source: UsageEngine}},
	"messages, input told as 0 later": {body: events(`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":0}}}`, `{"type":"message_delta","usage":{"input_tokens":0,"output_tokens":7}}`),
		want: Usage{Input: 10, Output: 7, Source: UsageEngine}},
	"responses": {body: events(`{"type":"response.created","response":{"usage":null,"tools":[{"parameters":{"properties":{"usage":{"type":"string"}}}}]}}`,
		`{"type":"response.completed","response":{"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":6},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":10}}}`),
		want: Usage{Input: 7, Cached: 6, Output: 3, Source: UsageEngine}},
	"an echoed default does not lower it": {body: events(`{"response":{"usage":{"input_tokens":70,"output_tokens":30},"text":{"default":{"usage":{"input_tokens":0,"output_tokens":0}}}}}`),
		want: Usage{Input: 70, Output: 30, Source: UsageEngine}},
	"embeddings":               {body: `{"object":"list","data":[{"embedding":[0.5,1e-3]}],"usage":{"prompt_tokens":4,"total_tokens":4}}`, want: Usage{Input: 4, Source: UsageEngine}},
	"rerank, total":            {body: `{"results":[{"index":0,"document":{"text":"x"}}],"usage":{"total_tokens":56}}`, want: Usage{Input: 56, Source: UsageEngine}},
	"llama.cpp":                {body: events(chatPiece("a"), `{"choices":[{"delta":{},"finish_reason":"stop"}],"timings":{"cache_n":30,"prompt_n":5,"prompt_ms":1.5,"predicted_n":8,"predicted_ms":9}}`, "[DONE]"), want: Usage{Input: 35, Cached: 30, Output: 8, Source: UsageEngine}},
	"both":                     {body: `{"usage":{"prompt_tokens":35,"completion_tokens":8},"timings":{"cache_n":30,"prompt_n":5,"predicted_n":8}}`, want: Usage{Input: 35, Cached: 30, Output: 8, Source: UsageEngine}},
	"audio":                    {body: `{"text":"hello","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":0,"audio_tokens":14},"output_tokens":45,"total_tokens":59}}`, want: Usage{Input: 14, AudioIn: 14, Output: 45, Source: UsageEngine}},
	"audio out":                {body: `{"usage":{"prompt_tokens":3,"completion_tokens":9,"completion_tokens_details":{"audio_tokens":7}}}`, want: Usage{Input: 3, Output: 9, AudioOut: 7, Source: UsageEngine}},
	"audio, seconds":           {body: `{"text":"hello","usage":{"type":"duration","seconds":3}}`, none: true},
	"space everywhere":         {body: "{ \"usage\" : \n\t{ \"prompt_tokens\" : 9 , \"completion_tokens\":2 } }", want: Usage{Input: 9, Output: 2, Source: UsageEngine}},
	"floats":                   {body: `{"usage":{"prompt_tokens":9.0,"completion_tokens":2e1}}`, want: Usage{Input: 9, Output: 20, Source: UsageEngine}},
	"odd types":                {body: `{"usage":{"prompt_tokens":"9","completion_tokens":[2],"total_tokens":{"a":1},"prompt_tokens_details":7,"completion_tokens_details":"x","input_tokens":null,"output_tokens":true}}`, none: true},
	"some odd":                 {body: `{"usage":{"prompt_tokens":-4,"completion_tokens":2,"total_tokens":1e400,"prompt_tokens_details":{"cached_tokens":{}}}}`, want: Usage{Output: 2, Source: UsageEngine}},
	"usage is text":            {body: `{"usage":"none"}`, none: true},
	"usage is a list":          {body: `{"usage":[{"prompt_tokens":1}]}`, none: true},
	"usage as a value":         {body: `{"object":"usage","x":{"prompt_tokens":1}}`, none: true},
	"said by the model":        {body: `{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":999}"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, want: Usage{Input: 1, Output: 1, Source: UsageEngine}},
	"brackets in text":         {body: `{"usage":{"note":"}{\"\\","prompt_tokens":1,"completion_tokens":1}}`, want: Usage{Input: 1, Output: 1, Source: UsageEngine}},
	"cut off":                  {body: `{"usage":{"prompt_tokens":1,`, none: true},
	"far too large":            {body: `{"usage":{"x":"` + strings.Repeat("y", 2*maxGrab) + `","prompt_tokens":1}}` + `{"usage":{"prompt_tokens":2}}`, want: Usage{Input: 2, Source: UsageEngine}},
	"nothing":                  {none: true},
	"no usage, whole":          {body: `{"choices":[{"text":"a","delta":{"content":"x"}}]}`, none: true},
	"more cached than read":    {body: `{"usage":{"prompt_tokens":4,"prompt_tokens_details":{"cached_tokens":9}}}`, want: Usage{Input: 4, Cached: 4, Source: UsageEngine}},
	"counted, chat":            {body: events(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, chatPiece("a"), chatPiece("b"), chatPiece(`\"`), `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]"), want: Usage{Output: 3, Source: UsageCounted}},
	"counted, several choices": {body: events(`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`), want: Usage{Output: 2, Source: UsageCounted}},
	"counted, role in each":    {body: events(`{"choices":[{"delta":{"role":"assistant","content":"a"}}]}`, `{"choices":[{"delta":{"role":"assistant","content":"b"}}]}`), want: Usage{Output: 2, Source: UsageCounted}},
	"counted, reasoning":       {body: events(`{"choices":[{"delta":{"role":null,"content":null,"reasoning_content":"a","tool_calls":null}}]}`), want: Usage{Output: 1, Source: UsageCounted}},
	"counted, tools":           {body: events(`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}`, `{"choices":[{"delta":{"content":null,"tool_calls":[]}}]}`), want: Usage{Output: 1, Source: UsageCounted}},
	"counted, completions":     {body: events(`{"choices":[{"index":0,"text":"a","logprobs":null}]}`, `{"choices":[{"text":""}]}`, `{"choices":[{"text":"b"}]}`), want: Usage{Output: 2, Source: UsageCounted}},
	"counted, messages": {body: events(`{"type":"content_block_start","content_block":{"type":"text","text":""}}`, `{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`,
		`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":""}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null}}`), want: Usage{Output: 1, Source: UsageCounted}},
	"counted, responses":        {body: "event: response.output_text.delta\n" + events(`{"type":"response.output_text.delta","delta":"a"}`, `{"type":"response.output_text.delta","delta":""}`, `{"type":"response.output_text.done","text":"a"}`), want: Usage{Output: 1, Source: UsageCounted}},
	"counted, behind a comment": {body: ": keep-alive\n\n" + events(chatPiece("a")), want: Usage{Output: 1, Source: UsageCounted}},
	"ill-formed UTF-8":          {body: events(chatPiece("\xff\xfe"), chatPiece("\xe2\x82")), want: Usage{Output: 2, Source: UsageCounted}},
}

// meter feeds body in pieces of the given size; 0: whole.
func meter(body string, size int) *UsageMeter {
	m := new(UsageMeter)
	if size == 0 {
		m.Feed([]byte(body))
		return m
	}
	for len(body) > 0 {
		n := min(size, len(body))
		m.Feed([]byte(body[:n]))
		body = body[n:]
	}
	return m
}

func TestUsageMeterReadsAllForms(t *testing.T) {
	for name, c := range usageCases {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 1, 2, 3, 7, 8, 9, 10, 17, 96, 97} {
				got, ok := meter(c.body, size).Usage()
				if diff := cmp.Diff(c.want, got); diff != "" || ok == c.none {
					t.Fatalf("reads of %d, ok %v (-want +got):\n%s", size, ok, diff)
				}
			}
		})
	}
}

func TestUsageMeterCarriesOverEveryCut(t *testing.T) {
	for name, c := range usageCases {
		for cut := range min(len(c.body), 1500) {
			var m UsageMeter
			m.Feed([]byte(c.body[:cut]))
			m.Feed([]byte(c.body[cut:]))
			if got, _ := m.Usage(); got != c.want {
				t.Fatalf("%s, cut at %d (%q): %+v, want %+v", name, cut, c.body[max(0, cut-9):cut], got, c.want)
			}
		}
	}
}

func TestUsageMeterCountsPictures(t *testing.T) {
	body := `{"created":1,"data":[{"b64_json":"aaaa"},{"b64_json":"bbbb"}]}`
	for _, size := range []int{0, 1, 5} {
		m := UsageMeter{Images: true}
		for rest := body; rest != ""; {
			n := len(rest)
			if size > 0 {
				n = min(size, n)
			}
			m.Feed([]byte(rest[:n]))
			rest = rest[n:]
		}
		if got, ok := m.Usage(); !ok || got.Images != 2 || got.Source != UsageEngine {
			t.Errorf("reads of %d: %+v, %v", size, got, ok)
		}
	}
}

func TestUsageMeterTellsOfTheCache(t *testing.T) {
	cases := map[string]struct {
		body           string
		prompt, cached int
		ok             bool
	}{
		"told":            {`{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}}`, 9, 0, true},
		"not told":        {`{"usage":{"prompt_tokens":9,"prompt_tokens_details":null}}`, 0, 0, false},
		"llama.cpp":       {`{"timings":{"cache_n":4,"prompt_n":5}}`, 9, 4, true},
		"llama.cpp, half": {`{"timings":{"cache_n":4}}`, 0, 0, false},
		"messages":        {`{"usage":{"input_tokens":5,"cache_read_input_tokens":4}}`, 9, 4, true},
		"absurd":          {`{"usage":{"prompt_tokens":9007199254740991,"prompt_tokens_details":{"cached_tokens":1}}}`, 0, 0, false},
	}
	for name, c := range cases {
		prompt, cached, ok := meter(c.body, 0).Cached()
		if prompt != c.prompt || cached != c.cached || ok != c.ok {
			t.Errorf("%s: %d, %d, %v", name, prompt, cached, ok)
		}
	}
}

func TestUsageMeterDoesNotDependOnCuts(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		`"usage"`, `"delta"`, `"text"`, `"timings"`, ":", " ", "{", "}", `"content":"`, `"`, `\`, "null", "[", "]", ",",
		`"prompt_tokens":7`, `"role":"assistant"`, `"cache_n":3,"prompt_n":4`, "\n\n", "data: ", "x", strings.Repeat("y", 60),
	})
	rapid.Check(t, func(t *rapid.T) {
		body := strings.Join(rapid.SliceOf(piece).Draw(t, "body"), "")
		want, wantOK := meter(body, 0).Usage()
		size := rapid.IntRange(1, 120).Draw(t, "size")
		if got, ok := meter(body, size).Usage(); got != want || ok != wantOK {
			t.Fatalf("%q in reads of %d: %+v, whole %+v", body, size, got, want)
		}
	})
}

func FuzzUsageMeter(f *testing.F) {
	for _, c := range usageCases {
		f.Add([]byte(c.body[:min(len(c.body), 2048)]), 7)
	}
	f.Fuzz(func(t *testing.T, body []byte, size int) {
		if size < 1 {
			size = 1
		}
		want, wantOK := meter(string(body), 0).Usage()
		m := meter(string(body), size)
		if got, ok := m.Usage(); got != want || ok != wantOK {
			t.Fatalf("reads of %d: %+v, whole %+v", size, got, want)
		}
		if cap(m.grab.part) > 2*maxGrab {
			t.Fatalf("%d bytes are kept", cap(m.grab.part))
		}
	})
}

func TestUsageMeterAllocatesNothingPerEvent(t *testing.T) {
	event := []byte(events(chatPiece(" token")))
	var m UsageMeter
	if n := testing.AllocsPerRun(100, func() { m.Feed(event) }); n != 0 {
		t.Errorf("%.0f allocations an event", n)
	}
}

func BenchmarkUsageMeter(b *testing.B) {
	cases := map[string]string{
		"chat":         events(`{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" token"}}]}`),
		"usage null":   events(chatPiece(" token")),
		"usage always": events(`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":" token"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`),
	}
	for name, event := range cases {
		b.Run(name, func(b *testing.B) {
			var m UsageMeter
			chunk := []byte(event)
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			for b.Loop() {
				m.Feed(chunk)
			}
		})
	}
}

func TestMessagesThatWereLeftEarlyCountWhatCame(t *testing.T) {
	var m UsageMeter
	m.Feed([]byte("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"x\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n"))
	for range 500 {
		m.Feed([]byte("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" word\"}}\n\n"))
	}
	if u, ok := m.Usage(); !ok || u.Output != 500 || u.Input != 10 || u.Source != UsageCounted {
		t.Errorf("%+v, %v", u, ok)
	}
	m.Feed([]byte("event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":700}}\n\n"))
	if u, _ := m.Usage(); u.Output != 700 || u.Source != UsageEngine {
		t.Errorf("%+v", u)
	}
}
