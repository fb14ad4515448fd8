package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"llmgw/router/openai"
)

// chunk frames p as engines do.
func chunk(p string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(p), p) }

// pumped runs one exchange whose engine plays, and pumps its answer to out.
func pumped(t *testing.T, out *sink, play func(w io.Writer)) Answer {
	t.Helper()
	ours, theirs := pipe()
	engine(t, theirs, func(_ *http.Request, w io.Writer) { play(w) })
	x, err := Start(t.Context(), ours, call("{}"), quick(), nil)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer x.Close()
	return Pump(x, out, pumpOptions())
}

// stream holds what makes relays stumble: multi-byte characters, ill-formed
// UTF-8, the terminator in a text, all line ends, comments, tool deltas.
const stream = ": comment\n\n" +
	"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"é漢\U0001f600\"}}],\"usage\":null}\n\n" +
	"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\xc3 data: [DONE]\\n\\n\"}}]}\r\n\r\n" +
	"data:{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"c\",\"function\":{\"arguments\":\"{\"}}]}}]}\r\r" +
	"data: {\"choices\":[{\"delta\":{},\"finish_reason\":null}]}\n\n" +
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\n" +
	doneFrame

func TestStreamCutAnywhereArrivesUnchanged(t *testing.T) {
	framings := map[string]func(a, b string) []string{
		"a chunk each":   func(a, b string) []string { return []string{chunk(a), chunk(b)} },
		"within a chunk": func(a, b string) []string { return []string{fmt.Sprintf("%x\r\n%s", len(a)+len(b), a), b + "\r\n"} },
	}
	for name, frame := range framings {
		t.Run(name, func(t *testing.T) {
			for cut := 1; cut < len(stream); cut++ {
				out := &sink{}
				answer := pumped(t, out, func(w io.Writer) {
					say(w, sseHead)
					say(w, frame(stream[:cut], stream[cut:])...)
					say(w, "0\r\n\r\n")
				})
				if out.text() != stream || answer.Err != nil || !answer.Sound {
					t.Fatalf("cut at %d: %v, got %q", cut, answer.Err, out.text())
				}
			}
		})
	}
}

func TestStreamByteByByteArrivesUnchanged(t *testing.T) {
	out := &sink{}
	answer := pumped(t, out, func(w io.Writer) {
		say(w, sseHead)
		for i := range len(stream) {
			say(w, chunk(stream[i:i+1]))
		}
		say(w, "0\r\n\r\n")
	})
	if out.text() != stream || answer.Err != nil {
		t.Errorf("%v, got %q", answer.Err, out.text())
	}
}

// clientView reads a stream as strictly as SDKs do: each event is JSON or the
// terminator. It returns the events' data.
func clientView(t *testing.T, text string) []string {
	t.Helper()
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var events []string
	for block := range strings.SplitSeq(text, "\n\n") {
		for line := range strings.SplitSeq(block, "\n") {
			data, ok := strings.CutPrefix(line, "data:")
			if !ok {
				if line != "" && !strings.HasPrefix(line, ":") {
					t.Fatalf("line %q is no field of ours", line)
				}
				continue
			}
			data = strings.TrimPrefix(data, " ")
			if data != "[DONE]" && !json.Valid([]byte(data)) {
				t.Fatalf("event %q is no JSON", data)
			}
			events = append(events, data)
		}
	}
	return events
}

func TestEngineThatDiesAnywhereLeavesAReadableStream(t *testing.T) {
	ends := map[string]string{"cut": "", "ended in order": "0\r\n\r\n"}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			for cut := 1; cut <= len(stream)-len("[DONE]\n\n"); cut++ {
				out := &sink{}
				answer := pumped(t, out, func(w io.Writer) { say(w, sseHead, chunk(stream[:cut]), end) })
				if stageOf(answer.Err) != StageAnswer || !answer.Sound || !answer.Began {
					t.Fatalf("cut at %d: %+v", cut, answer)
				}
				sent, failed := strings.CutSuffix(out.text(), brokenFrame+doneFrame)
				if !failed || !strings.HasPrefix(stream, sent) {
					t.Fatalf("cut at %d: got %q", cut, out.text())
				}
				clientView(t, out.text())
			}
		})
	}
}

func TestStreamEndsOfAllKinds(t *testing.T) {
	event := "data: {\"choices\":[]}\n\n"
	huge := `data: {"x":"` + strings.Repeat("y", 2*copyBytes)
	errorEvent := "data: {\"error\":{\"message\":\"out of memory\"}}\n\n"
	cases := map[string]struct {
		said []string // after the head
		want string
		err  bool
	}{
		"whole":                          {[]string{chunk(event + doneFrame), "0\r\n\r\n"}, event + doneFrame, false},
		"cut after the terminator":       {[]string{chunk(event + doneFrame)}, event + doneFrame, false},
		"cut within the terminator":      {[]string{chunk(event + "data: [DONE]\n")}, event + doneFrame, false},
		"terminator without a blank":     {[]string{chunk(event + "data: [DONE]"), "0\r\n\r\n"}, event + "data: [DONE]", false},
		"engine's own error, then ended": {[]string{chunk(event + errorEvent), "0\r\n\r\n"}, event + errorEvent + doneFrame, true},
		"engine's own error, then cut":   {[]string{chunk(event + errorEvent)}, event + errorEvent + doneFrame, true},
		"half of the engine's error":     {[]string{chunk(event + errorEvent[:len(errorEvent)-1])}, event + brokenFrame + doneFrame, true},
		"no event at all":                {[]string{"0\r\n\r\n"}, brokenFrame + doneFrame, true},
		"a huge event, cut":              {[]string{chunk(huge)}, huge[:copyBytes] + "*" + "\n\n" + brokenFrame + doneFrame, true},
		"a huge event, whole":            {[]string{chunk(huge + "\"}\n\n" + doneFrame), "0\r\n\r\n"}, huge + "\"}\n\n" + doneFrame, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out := &sink{}
			answer := pumped(t, out, func(w io.Writer) { say(w, append([]string{sseHead}, c.said...)...) })
			if (answer.Err != nil) != c.err || !answer.Sound {
				t.Errorf("error %v, sound %v", answer.Err, answer.Sound)
			}
			prefix, suffix, vague := strings.Cut(c.want, "*")
			got := out.text()
			if !vague && got != c.want || vague && (!strings.HasPrefix(got, prefix) || !strings.HasSuffix(got, suffix)) {
				t.Errorf("got %.300q", got)
			}
		})
	}
}

func TestStreamsOfOtherRoutesGetNoTerminator(t *testing.T) {
	ours, theirs := pipe()
	engine(t, theirs, func(_ *http.Request, w io.Writer) { say(w, sseHead, chunk("data: {}\n\n"), "0\r\n\r\n") })
	x, err := Start(t.Context(), ours, call("{}"), quick(), nil)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer x.Close()
	o, out := pumpOptions(), &sink{}
	o.Dialect = openai.Plain
	if answer := Pump(x, out, o); answer.Err != nil || out.text() != "data: {}\n\n" {
		t.Errorf("%v, got %q", answer.Err, out.text())
	}
}

func TestAllEventsInHandAreOneWrite(t *testing.T) {
	events := strings.Repeat("data: {}\n\n", 20)
	var chunks strings.Builder
	for e := range strings.SplitAfterSeq(events, "\n\n") {
		if e != "" {
			chunks.WriteString(chunk(e))
		}
	}
	out := &sink{}
	pumped(t, out, func(w io.Writer) { say(w, sseHead+chunks.String(), chunk(doneFrame)+"0\r\n\r\n") })
	if len(out.writes) != 2 || out.writes[0] != events {
		t.Errorf("%d writes: %q", len(out.writes), out.writes)
	}
}

func TestEachEventIsWrittenWhenItComes(t *testing.T) {
	out := &sink{}
	pumped(t, out, func(w io.Writer) {
		say(w, sseHead)
		for range 5 {
			say(w, chunk("data: {}\n\n"))
		}
		say(w, chunk(doneFrame), "0\r\n\r\n")
	})
	if len(out.writes) != 6 {
		t.Errorf("%d writes: %q", len(out.writes), out.writes)
	}
}

func TestHeadWaitsForTheFirstByteOfTheBody(t *testing.T) {
	for name, head := range map[string]string{
		"stream": sseHead, "JSON": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			out := &sink{}
			answer := pumped(t, out, func(w io.Writer) { say(w, head) })
			if answer.Began || out.committed || stageOf(answer.Err) != StageAnswer {
				t.Errorf("%+v, committed %v", answer, out.committed)
			}
		})
	}
}

func TestJSONAnswersPassUnchanged(t *testing.T) {
	cases := map[string]struct{ status, body string }{
		"fine":           {"200 OK", `{"x":1e400,"é":"\ud800"}`},
		"engine's 400":   {"400 Bad Request", `{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}`},
		"engine's 503":   {"503 Unavailable", `{"error":{"message":"Loading model"}}`},
		"ill-formed":     {"500 Oops", "\xff\xfe"},
		"larger than us": {"200 OK", strings.Repeat("x", 3*copyBytes+1)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out := &sink{}
			answer := pumped(t, out, func(w io.Writer) {
				say(w, fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.status, len(c.body), c.body))
			})
			if answer.Err != nil || !answer.Sound || out.text() != c.body || fmt.Sprint(out.status) != c.status[:3] {
				t.Errorf("%+v, status %d, got %.80q", answer, out.status, out.text())
			}
		})
	}
}

func TestCutJSONIsNotSound(t *testing.T) {
	out := &sink{}
	answer := pumped(t, out, func(w io.Writer) {
		say(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n", `{"x"`)
	})
	if answer.Sound || !answer.Began || stageOf(answer.Err) != StageAnswer {
		t.Errorf("%+v", answer)
	}
}

func TestSilentClientIsTheClientsFault(t *testing.T) {
	out := &sink{fail: errors.New("broken pipe")}
	answer := pumped(t, out, func(w io.Writer) { say(w, sseHead, chunk("data: {}\n\n")) })
	if !errors.Is(answer.Err, ErrClientGone) || answer.Sound {
		t.Errorf("%+v", answer)
	}
}

func TestAnswersAfterTheHeadWentOut(t *testing.T) {
	apiError := `{"error":{"message":"no"}}`
	cases := map[string]struct{ said, want string }{
		"stream": {sseHead + chunk(doneFrame) + "0\r\n\r\n", doneFrame},
		"error object": {
			"HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: 29\r\n\r\n{\"error\": {\"message\":\n \"no\"}}",
			strings.NewReplacer("broke off", "no", `"type":""`, `"type":"invalid_request_error"`).Replace(brokenFrame) + doneFrame,
		},
		"other error": {"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", brokenFrame + doneFrame},
		"plain JSON":  {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", brokenFrame + doneFrame},
		"cut error":   {"HTTP/1.1 500 Oops\r\nContent-Length: 40\r\n\r\n" + apiError, brokenFrame + doneFrame},
		"huge error":  {"HTTP/1.1 500 Oops\r\nContent-Length: 99999\r\n\r\n" + strings.Repeat("x", 99999), brokenFrame + doneFrame},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out := &sink{committed: true}
			answer := pumped(t, out, func(w io.Writer) { say(w, c.said) })
			if out.text() != c.want || !answer.Sound || out.status != 0 {
				t.Errorf("%+v, status %d, got %q", answer, out.status, out.text())
			}
		})
	}
}

func TestEnginesErrorsAreMended(t *testing.T) {
	native := `{"error":{"message":"no","type":"x","code":"y"},"extra":1}`
	cases := map[string]struct {
		status int
		says   string
		want   int
		body   string // a part of it
	}{
		"in form":           {404, native, 404, native},
		"another form":      {422, `{"detail":"bad field"}`, 422, `"message":"bad field"`},
		"too long":          {500, `{"error":{"message":"request (9 tokens) exceeds the available context size (4 tokens)"}}`, 400, `"code":"context_length_exceeded"`},
		"no JSON":           {502, "<html>", 502, `"code":"engine_error"`},
		"a 200":             {200, `{"error":{"message":"prompt is too long"}}`, 400, `"code":"context_length_exceeded"`},
		"a 200 that is one": {200, `{"error":null,"choices":[]}`, 200, `{"error":null,"choices":[]}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pipe()
			engine(t, theirs, func(_ *http.Request, w io.Writer) {
				say(w, fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", c.status, len(c.says), c.says))
			})
			x, err := Start(t.Context(), ours, call("{}"), quick(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			o, out := pumpOptions(), &sink{}
			o.Mend = true
			answer := Pump(x, out, o)
			if answer.Err != nil || !answer.Sound || out.status != c.want || answer.Status != c.want || !strings.Contains(out.text(), c.body) {
				t.Errorf("%+v, status %d, got %q", answer, out.status, out.text())
			}
		})
	}
}

func TestSilentStreamGetsComments(t *testing.T) {
	cases := map[string]struct {
		first string
		want  int // comments in 50 s
	}{
		"between events":     {"data: {}\n\n", 3},
		"within an event":    {"data: {", 0},
		"after an ID":        {"id: 1\ndata: {}\n\n", 0},
		"within a line end?": {"data: {}\r\n\r", 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &sink{}
				answer := pumped(t, out, func(w io.Writer) {
					say(w, sseHead, chunk(c.first))
					time.Sleep(50 * time.Second)
					say(w, chunk(doneFrame), "0\r\n\r\n")
				})
				if got := strings.Count(out.text(), openai.KeepAlive); got != c.want || answer.Err != nil && c.want > 0 {
					t.Errorf("%d comments, %v: %q", got, answer.Err, out.text())
				}
			})
		})
	}
}

func TestEventStreamIsKnownByItsType(t *testing.T) {
	for value, want := range map[string]bool{
		"text/event-stream": true, "text/event-stream; charset=utf-8": true, "Text/Event-Stream": true,
		"application/json": false, "": false, "text/event-streams": false,
	} {
		if got := IsEventStream(http.Header{"Content-Type": {value}}); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

// nullConn answers each exchange with the same bytes.
type nullConn struct{ *bytes.Reader }

func (nullConn) Write(p []byte) (int, error)      { return len(p), nil }
func (nullConn) SetReadDeadline(time.Time) error  { return nil }
func (nullConn) SetWriteDeadline(time.Time) error { return nil }
func (nullConn) Close() error                     { return nil }
func (nullConn) Reset() error                     { return nil }

type nullSink struct{}

func (nullSink) Committed() bool                     { return false }
func (nullSink) Begin(int, http.Header, int64) error { return nil }
func (nullSink) Write([]byte) error                  { return nil }

func BenchmarkExchange(b *testing.B) {
	var answer strings.Builder
	answer.WriteString(sseHead)
	for range 64 {
		answer.WriteString(chunk("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"}}]}\n\n"))
	}
	answer.WriteString(chunk(doneFrame) + "0\r\n\r\n")
	c := call(`{"model":"m","stream":true}`)
	b.ReportAllocs()
	for b.Loop() {
		x, err := Start(b.Context(), nullConn{bytes.NewReader([]byte(answer.String()))}, c, quick(), nil)
		if err != nil {
			b.Fatal(err)
		}
		if answer := Pump(x, nullSink{}, pumpOptions()); answer.Err != nil {
			b.Fatal(answer.Err)
		}
		x.Close()
	}
}
