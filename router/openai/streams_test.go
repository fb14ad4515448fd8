package openai

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seen is what the head makes of a stream: the bytes that go out, and what it
// knows of them.
type seen struct {
	Out          string
	Done, Failed bool
	Usage        Usage
}

// relayed passes a stream on as the relay does, in reads of the given size;
// asked is set where the client asked for usage itself.
func relayed(stream string, size int, asked bool) seen {
	var tr Tracker
	var m UsageMeter
	var f UsageFilter
	var out bytes.Buffer
	for rest := []byte(stream); len(rest) > 0; {
		p := bytes.Clone(rest[:min(size, len(rest))])
		rest = rest[len(p):]
		tr.Feed(p)
		m.Feed(p)
		if !asked {
			p = f.Feed(p)
		}
		out.Write(p)
	}
	out.Write(f.End())
	tr.End()
	usage, _ := m.Usage()
	return seen{out.String(), tr.Done(), tr.Failed(), usage}
}

// TestStreamsOfTheWild has the faults of streams that were reported of
// gateways, by the number that the reference gives them.
func TestStreamsOfTheWild(t *testing.T) {
	usage := Usage{Input: 9, Output: 2, Source: UsageEngine}
	counted := func(n uint64) Usage { return Usage{Output: n, Source: UsageCounted} }
	tool := func(index, rest string) string {
		return `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":` + index + `,` + rest + `}]}}]}`
	}
	cases := map[string]struct {
		stream string
		asked  bool
		want   seen // Out empty: all bytes, unchanged
	}{
		"S1 characters of several bytes":  {events(chatPiece("日本"), chatPiece("\U0001f600é"), "[DONE]"), false, seen{Done: true, Usage: counted(2)}},
		"S2 ill-formed UTF-8":             {events(chatPiece("\xe6\x97"), chatPiece("\xff\xc0\x80\xed\xa0\x80"), "[DONE]"), false, seen{Done: true, Usage: counted(2)}},
		"S3 usage, then the end":          {events(chatPiece("a")) + usageOnly + DoneFrame, false, seen{Out: events(chatPiece("a")) + DoneFrame, Done: true, Usage: usage}},
		"S4 the end mark in text":         {events(chatPiece(`data: [DONE]\n\n`), chatPiece("x")), false, seen{Usage: counted(2)}},
		"S6 an error without the end":     {events(chatPiece("a"), `{"error":{"message":"x"}}`), false, seen{Failed: true, Usage: counted(1)}},
		"S8 the last reason is null":      {events(chatPiece("a"), `{"choices":[{"delta":{},"finish_reason":null}]}`, "[DONE]"), false, seen{Done: true, Usage: counted(1)}},
		"S9 usage that was asked for":     {events(chatPiece("a")) + usageOnly + DoneFrame, true, seen{Done: true, Usage: usage}},
		"S10 two calls, in fragments":     {events(tool("0", `"id":"a","function":{"name":"f","arguments":""}`), tool("1", `"id":"b","function":{"name":"g","arguments":"{"}`), tool("0", `"function":{"arguments":"{}"}`), "[DONE]"), false, seen{Done: true, Usage: counted(3)}},
		"S11 calls doubled and malformed": {events(tool("0", `"id":"a"`), tool("0", `"id":"a"`), tool("null", `"function":"x"`), `{"choices":[{"delta":{"tool_calls":"?"}}]}`, `{"choices":`, "[DONE]"), false, seen{Done: true, Usage: counted(4)}},
		"S15 comments between events":     {KeepAlive + events(chatPiece("a")) + KeepAlive + usageOnly + KeepAlive + DoneFrame, false, seen{Out: KeepAlive + events(chatPiece("a")) + KeepAlive + KeepAlive + DoneFrame, Done: true, Usage: usage}},
		"S17 no end mark of Responses":    {"event: response.completed\n" + events(`{"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":2}}}`), false, seen{Usage: usage}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.want.Out == "" {
				c.want.Out = c.stream
			}
			for size := 1; size <= len(c.stream); size++ {
				if diff := cmp.Diff(c.want, relayed(c.stream, size, c.asked)); diff != "" {
					t.Fatalf("reads of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

func TestErrorsBehindABrokenEventEndTheStream(t *testing.T) {
	e := &Error{Type: TypeServer, Message: "broke"}
	whole := events(chatPiece("a"), chatPiece("é"))
	for cut := range len(whole) {
		var tr Tracker
		tr.Feed([]byte(whole[:cut]))
		end := tr.Completion() + string(Chat.StreamError(e, Origin{}, nil))
		if tr.Feed([]byte(end)); !tr.Failed() || !tr.Done() || !tr.Boundary() {
			t.Fatalf("cut at %d: %q does not end it", cut, end)
		}
	}
}

func TestOnlyChatStreamsHaveTheEndMark(t *testing.T) {
	for d, want := range map[Dialect]string{Chat: DoneFrame, Plain: "", Responses: "", Messages: "", Ollama: ""} {
		if got := d.Terminator(); got != want {
			t.Errorf("dialect %d: %q", d, got)
		}
	}
}

func TestEmbeddingsStayInTheEncodingAskedFor(t *testing.T) {
	r := scanOf(t, `{"model":"m","input":"a","encoding_format":"base64"}`)
	if r.EncodingFormat != "base64" || string(AskUsage(&r)) != string(r.body) {
		t.Error("the request is not passed on as it is")
	}
	answer := `{"object":"list","data":[{"embedding":"AACAPwAAAEA=","index":0}],"usage":{"prompt_tokens":1,"total_tokens":1}}`
	if got, ok := meter(answer, 5).Usage(); !ok || got.Input != 1 {
		t.Errorf("usage %+v, %v", got, ok)
	}
}

func FuzzTracker(f *testing.F) {
	f.Add([]byte(events(chatPiece("a"), "[DONE]")))
	f.Add([]byte("event: error\r\ndata: {\"error\"\r\n\r\rid: 1\n: c\ndata:[DONE]"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var whole Tracker
		whole.Feed(stream)
		for cut := range min(len(stream), 300) {
			var tr Tracker
			tr.Feed(stream[:cut])
			tr.Feed(stream[cut:])
			if diff := cmp.Diff(tell(&whole), tell(&tr)); diff != "" || whole.Ended(Messages) != tr.Ended(Messages) {
				t.Fatalf("cut at %d:\n%s", cut, diff)
			}
		}
		if whole.Feed([]byte(whole.Completion())); !whole.Boundary() {
			t.Fatalf("%q has no boundary behind it", stream)
		}
	})
}
