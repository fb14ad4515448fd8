package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// spoken is a chat stream that says text in pieces of three letters.
func spoken(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i += 3 {
		piece, _ := json.Marshal(text[i:min(i+3, len(text))])
		// Some engines stamp each chunk anew.
		fmt.Fprintf(&b, "data: {\"id\":\"c1\",\"created\":%d,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":%s},\"finish_reason\":null}]}\n\n", 100+i/60, piece)
	}
	return b.String()
}

func watched(w *Watchdog, stream string, size int) bool {
	for stream != "" {
		n := min(size, len(stream))
		if w.Feed([]byte(stream[:n])) {
			return true
		}
		stream = stream[n:]
	}
	return false
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d squared is %d, ", i, i*i)
	}
	return b.String()
}

func TestWatchdogSeesAnswersThatRunAway(t *testing.T) {
	limit := Repetition{Bytes: 400, Times: 5}
	cases := map[string]struct {
		text string
		want bool
	}{
		"one letter":         {"So " + strings.Repeat("a", 500), true},
		"a word":             {"It is " + strings.Repeat("very ", 100), true},
		"a sentence":         {numbers(40) + strings.Repeat("The model says the same thing over and over again. ", 12), true},
		"lines":              {strings.Repeat("- item\n", 100), true},
		"a long piece":       {strings.Repeat(numbers(50)[:700], 6), true},
		"a long piece, few":  {strings.Repeat(numbers(50)[:700], 4), false},
		"too little":         {"So " + strings.Repeat("a", 300), false},
		"counting":           {numbers(300), false},
		"a repeat that ends": {strings.Repeat("very ", 70) + numbers(30) + strings.Repeat("very ", 70), false},
		"nothing":            {"", false},
	}
	for name, c := range cases {
		stream := spoken(c.text)
		for _, size := range []int{1, 7, 100, 1 << 20} {
			if got := watched(NewWatchdog(limit, Chat), stream, size); got != c.want {
				t.Errorf("%s, reads of %d: %v", name, size, got)
			}
		}
	}
}

func TestWatchdogReadsTheTextsOfAllStreams(t *testing.T) {
	limit := Repetition{Bytes: 200, Times: 4}
	repeat := func(event string) string { return strings.Repeat("data: "+event+"\n\n", 200) }
	cases := map[string]struct {
		d      Dialect
		stream string
		want   bool
	}{
		"completions":       {Chat, repeat(`{"object":"text_completion","choices":[{"index":0,"text":" so"}]}`), true},
		"reasoning":         {Chat, repeat(`{"choices":[{"delta":{"content":null,"reasoning_content":"hm "}}]}`), true},
		"arguments":         {Chat, repeat(`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"a\""}}]}}]}`), true},
		"messages":          {Messages, repeat(`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"so "}}`), true},
		"responses":         {Responses, repeat(`{"type":"response.output_text.delta","delta":"so ","obfuscation":"x"}`), true},
		"roles are no text": {Chat, repeat(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`), false},
		"no text":           {Chat, repeat(`{"choices":[{"delta":{}}]}`) + repeat(`{"choices":[{"delta":null}]}`), false},
		"comments":          {Chat, strings.Repeat(KeepAlive, 500), false},
	}
	for name, c := range cases {
		for _, size := range []int{1, 9, 1 << 20} {
			if got := watched(NewWatchdog(limit, c.d), c.stream, size); got != c.want {
				t.Errorf("%s, reads of %d: %v", name, size, got)
			}
		}
	}
}

func TestWatchdogEndsStreamsInForm(t *testing.T) {
	var m UsageMeter
	stream := spoken(strings.Repeat("a", 60))
	m.Feed([]byte(stream))
	w := NewWatchdog(Repetition{Bytes: 20, Times: 2}, Chat)
	if !w.Feed([]byte(stream)) {
		t.Fatal("not seen")
	}
	got, ok := w.End(&m, true)
	want := `data: {"id":"c1","object":"chat.completion.chunk","created":100,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\n" +
		`data: {"id":"c1","object":"chat.completion.chunk","created":100,"model":"m","choices":[],"usage":{"prompt_tokens":0,"completion_tokens":20,"total_tokens":20}}` + "\n\n" + DoneFrame
	if !ok || string(got) != want {
		t.Errorf("got %s", got)
	}
	w = NewWatchdog(Repetition{}, Messages)
	w.Feed([]byte(`data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"a"}}` + "\n\n"))
	got, ok = w.End(&m, false)
	var tr Tracker
	if tr.Feed(got); !ok || !tr.Ended(Messages) || !strings.Contains(string(got), `"index":2`) || !strings.Contains(string(got), `"stop_reason":"max_tokens"`) {
		t.Errorf("got %s", got)
	}
	if _, ok := NewWatchdog(Repetition{}, Responses).End(&m, false); ok {
		t.Error("a Responses stream cannot be ended so")
	}
	if got, ok := NewWatchdog(Repetition{}, Chat).End(&m, false); !ok || !strings.Contains(string(got), `"id":""`) {
		t.Errorf("of nothing: %s", got)
	}
}

func FuzzWatchdog(f *testing.F) {
	f.Add([]byte(spoken("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")), 5)
	f.Add([]byte(`data: {"delta":{"a":"\"","b":[{"c":"d"}]}}`), 1)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		for _, d := range []Dialect{Chat, Messages} {
			w := NewWatchdog(Repetition{Bytes: 20, Times: 3}, d)
			watched(w, string(stream), max(size, 1))
			end, ok := w.End(new(UsageMeter), true)
			var tr Tracker
			if tr.Feed(end); !ok || !tr.Boundary() || !tr.Ended(d) {
				t.Fatalf("%q ends with %q", stream, end)
			}
		}
	})
}

func BenchmarkWatchdog(b *testing.B) {
	event := []byte(events(`{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" token"}}]}`, `{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" other"}}]}`))
	w := NewWatchdog(Repetition{Bytes: 1 << 62, Times: 8}, Chat)
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		w.Feed(event)
	}
}
