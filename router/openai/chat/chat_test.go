package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// texts gives the contents of a stream that is read in pieces.
func texts(stream string, size int) (out []string, r *Reader) {
	r = new(Reader)
	use := func(a *Answer) {
		for _, c := range a.Choices {
			out = append(out, string(c.Delta.Content))
		}
	}
	for stream != "" {
		n := min(size, len(stream))
		r.Feed([]byte(stream[:n]), use)
		stream = stream[n:]
	}
	r.End(use)
	return out, r
}

func piece(text string) string { return `data: {"choices":[{"delta":{"content":"` + text + `"}}]}` }

func TestReaderReadsEventsOfAllForms(t *testing.T) {
	cases := map[string]struct {
		stream string
		want   []string
		done   bool
	}{
		"usual":                {piece("a") + "\n\n" + piece("b") + "\n\ndata: [DONE]\n\n", []string{"a", "b"}, true},
		"CRLF":                 {piece("a") + "\r\n\r\n" + piece("b") + "\r\n\r\ndata: [DONE]\r\n\r\n", []string{"a", "b"}, true},
		"CR":                   {piece("a") + "\r\r" + piece("b") + "\r\rdata: [DONE]\r\r", []string{"a", "b"}, true},
		"no space":             {strings.Replace(piece("a"), "data: ", "data:", 1) + "\n\ndata:[DONE]\n\n", []string{"a"}, true},
		"several data lines":   {"data: {\"choices\":[\ndata: {\"delta\":{\"content\":\"a\"}}]}\n\n", []string{"a"}, false},
		"comments and fields":  {": hi\n\nevent: x\nid: 7\nretry: 1\n" + piece("a") + "\n: c\n\n", []string{"a"}, false},
		"no blank line":        {piece("a") + "\n", []string{"a"}, false},
		"no line end":          {piece("a"), []string{"a"}, false},
		"the end mark alone":   {"data: [DONE]", nil, true},
		"the end mark in text": {piece("data: [DONE]") + "\n\n", []string{"data: [DONE]"}, false},
		"behind the end mark":  {"data: [DONE]\n\n" + piece("a") + "\n\n", nil, true},
		"no JSON":              {"data: {\n\n" + piece("a") + "\n\n", []string{"a"}, false},
		"odd types":            {"data: {\"id\":7,\"choices\":{}}\n\ndata: {\"choices\":[{\"delta\":{\"content\":{\"a\":1}}}]}\n\n" + piece("b") + "\n\n", []string{"", "b"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(c.stream); size++ {
				got, r := texts(c.stream, size)
				if diff := cmp.Diff(c.want, got); diff != "" || r.Done() != c.done {
					t.Fatalf("reads of %d, done %v (-want +got):\n%s", size, r.Done(), diff)
				}
			}
		})
	}
}

func TestReaderBoundsAnEvent(t *testing.T) {
	var r Reader
	part := []byte(strings.Repeat("x", 1<<20))
	for range 12 {
		r.Feed(part, func(*Answer) { t.Fatal("an event came") })
	}
	if len(r.line) > maxEvent || !strings.Contains(r.Cut().Message, "8 MiB") {
		t.Errorf("%d bytes are held, %v", len(r.line), r.Cut())
	}
	if e := new(Reader).Cut(); e.Status != 502 || !strings.Contains(e.Message, "too early") {
		t.Errorf("cut: %+v", e)
	}
}

func TestAnswersTolerateAnyType(t *testing.T) {
	values := []string{`null`, `7`, `-1.5`, `"x"`, `true`, `[]`, `{}`, `[{"text":"y"}]`, `1e400`, `{"a":[1]}`}
	forms := []string{
		`{"id":%s,"choices":[{"delta":{"content":"a"}}]}`, `{"created":%s,"choices":[{"delta":{"content":"a"}}]}`,
		`{"choices":[{"delta":{"content":"a","role":%s,"refusal":%[1]s}}]}`, `{"choices":[{"index":%s,"finish_reason":%[1]s,"delta":{"content":"a"}}]}`,
		`{"usage":%s,"choices":[{"delta":{"content":"a"}}]}`, `{"usage":{"prompt_tokens":%s,"prompt_tokens_details":%[1]s},"choices":[{"delta":{"content":"a"}}]}`,
		`{"timings":%s,"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":"a","tool_calls":%s}}]}`,
		`{"choices":[{"delta":{"content":"a","tool_calls":[{"index":%s,"id":%[1]s,"function":%[1]s}]}}]}`,
		`{"choices":[{"delta":{"content":"a","tool_calls":[{"function":{"name":%s,"arguments":%[1]s}}]}}]}`,
	}
	for _, form := range forms {
		for _, value := range values {
			line := fmt.Sprintf(form, value)
			got, _ := texts("data: "+line+"\n\n", 1<<20)
			if len(got) != 1 || got[0] != "a" {
				t.Errorf("%s gives %q", line, got)
			}
		}
	}
}

func TestCallsArePutTogether(t *testing.T) {
	cases := map[string]struct {
		pieces string // a list of tool call deltas
		want   []ToolCall
	}{
		"in order":          {`[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}},{"index":0,"function":{"arguments":"}"}}]`, []ToolCall{{"a", "function", CallFunction{"f", "{}"}}}},
		"mixed":             {`[{"index":0,"id":"a","function":{"name":"f"}},{"index":1,"id":"b","function":{"name":"g","arguments":"1"}},{"index":0,"function":{"arguments":"2"}}]`, []ToolCall{{"a", "function", CallFunction{"f", "2"}}, {"b", "function", CallFunction{"g", "1"}}}},
		"indices from five": {`[{"index":5,"id":"a"},{"index":5,"function":{"arguments":"x"}}]`, []ToolCall{{"a", "function", CallFunction{"", "x"}}}},
		"no indices":        {`[{"id":"a","function":{"arguments":"1"}},{"function":{"arguments":"2"}},{"id":"b","function":{"arguments":"3"}}]`, []ToolCall{{"a", "function", CallFunction{"", "12"}}, {"b", "function", CallFunction{"", "3"}}}},
		"doubled names":     {`[{"index":0,"id":"a","function":{"name":"f"}},{"index":0,"id":"a","function":{"name":"f"}}]`, []ToolCall{{"a", "function", CallFunction{"f", ""}}}},
		"an object":         {`[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}]`, []ToolCall{{"a", "function", CallFunction{"f", `{"x":1}`}}}},
	}
	for name, c := range cases {
		var list []CallDelta
		if err := json.Unmarshal([]byte(c.pieces), &list); err != nil {
			t.Fatal(err)
		}
		var calls Calls
		for i := range list {
			calls.Add(&list[i])
		}
		var got []ToolCall
		for at := range calls.Len() {
			got = append(got, calls.Call(at))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestObjectKeepsWhatIsNone(t *testing.T) {
	for in, want := range map[string]string{
		"": "{}", "  ": "{}", `{"a":1}`: `{"a":1}`, `[1]`: `{"_raw":"[1]"}`, `{"a"`: `{"_raw":"{\"a\""}`, "null": `{"_raw":"null"}`, ` {"a": 1} `: `{"a": 1}`,
	} {
		if got := string(Object(in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestContentIsATextWhereItCanBe(t *testing.T) {
	for name, c := range map[string]struct {
		parts []Part
		want  string
	}{
		"a text":   {[]Part{TextPart("a")}, `"a"`},
		"texts":    {[]Part{TextPart("a"), TextPart("b")}, `"a\nb"`},
		"nothing":  {nil, `""`},
		"an image": {[]Part{TextPart(""), ImagePart("u")}, `[{"type":"text","text":""},{"type":"image_url","image_url":{"url":"u"}}]`},
	} {
		if got := string(Encode(Content(c.parts))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestDecodeRefusesWhatIsNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"an error":   {`{"error":{"message":"x","code":503}}`, 503},
		"overflow":   {`{"error":{"message":"prompt is too long"}}`, 400},
		"no JSON":    {`<html>`, 502},
		"no choices": {`{"choices":[]}`, 502},
		"nothing":    {``, 502},
	} {
		if _, e := Decode([]byte(c.body)); e == nil || e.Status != c.status {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if a, e := Decode([]byte(`{"choices":[{"message":{"content":"hi"}}],"created":"x"}`)); e != nil || a.Choices[0].Message.Content != "hi" {
		t.Errorf("%+v, %v", a, e)
	}
}
