package openai

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const usageOnly = `data: {"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}` + "\n\n"

// filtered feeds stream in pieces of the given size.
func filtered(stream string, size int) string {
	var f UsageFilter
	var out bytes.Buffer
	for rest := stream; rest != ""; {
		n := min(size, len(rest))
		out.Write(f.Feed([]byte(rest[:n])))
		rest = rest[n:]
	}
	out.Write(f.End())
	return out.String()
}

// unfiltered is what filtered must give, worked out event by event.
func unfiltered(stream string) string {
	var out strings.Builder
	b := []byte(stream)
	for i := 0; ; {
		end := eventEnd(b, i)
		if end < 0 {
			out.Write(b[i:])
			return out.String()
		}
		if !isUsageOnly(b[i:end]) {
			out.Write(b[i:end])
		}
		i = end
	}
}

func TestUsageFilterTakesOutTheUsageChunkAlone(t *testing.T) {
	text, done := events(chatPiece("a")), DoneFrame
	both := events(`{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}`)
	cases := map[string]struct{ stream, want string }{
		"at the end":          {text + usageOnly + done, text + done},
		"alone":               {usageOnly, ""},
		"none":                {text + done, text + done},
		"with choices":        {text + both + done, text + both + done},
		"usage null":          {events(`{"choices":[],"usage":null}`) + done, events(`{"choices":[],"usage":null}`) + done},
		"choices without it":  {events(`{"choices":[],"prompt_filter_results":[]}`), events(`{"choices":[],"prompt_filter_results":[]}`)},
		"no choices at all":   {events(`{"usage":{"a":1}}`), events(`{"usage":{"a":1}}`)},
		"spaced":              {"data:{ \"choices\" : [ ] , \"usage\" : {} }\n\n" + done, done},
		"CRLF":                {"data: {\"a\":1}\r\n\r\n" + strings.ReplaceAll(usageOnly, "\n", "\r\n") + "data: [DONE]\r\n\r\n", "data: {\"a\":1}\r\n\r\ndata: [DONE]\r\n\r\n"},
		"CR":                  {strings.ReplaceAll(text+usageOnly+done, "\n", "\r"), strings.ReplaceAll(text+done, "\n", "\r")},
		"twice":               {usageOnly + text + usageOnly + usageOnly, text},
		"with a field before": {"event: x\n" + usageOnly + done, done},
		"said by the model":   {events(`{"choices":[{"delta":{"content":"{\"choices\":[],\"usage\":{}}"}}]}`), events(`{"choices":[{"delta":{"content":"{\"choices\":[],\"usage\":{}}"}}]}`)},
		"nested":              {events(`{"x":{"choices":[],"usage":{}}}`), events(`{"x":{"choices":[],"usage":{}}}`)},
		"cut off":             {text + usageOnly[:60], text + usageOnly[:60]},
		"no JSON":             {"data: {\"choices\":[],\"usage\":{]\n\n", "data: {\"choices\":[],\"usage\":{]\n\n"},
		"too large":           {`data: {"choices":[],"usage":{},"x":"` + strings.Repeat("y", maxUsageEvent) + `"}` + "\n\n" + usageOnly + done, `data: {"choices":[],"usage":{},"x":"` + strings.Repeat("y", maxUsageEvent) + `"}` + "\n\n" + done},
		"ill-formed UTF-8":    {events(chatPiece("\xff")) + usageOnly + done, events(chatPiece("\xff")) + done},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 5, 16, 64, 100, 4096, 1 << 20} {
				if got := filtered(c.stream, size); got != c.want {
					t.Fatalf("reads of %d: %q, want %q", size, got, c.want)
				}
			}
			for cut := range min(len(c.stream), 600) {
				var f UsageFilter
				got := string(f.Feed([]byte(c.stream[:cut])))
				got += string(f.Feed([]byte(c.stream[cut:])))
				if got += string(f.End()); got != c.want {
					t.Fatalf("cut at %d: %q, want %q", cut, got, c.want)
				}
			}
		})
	}
}

func TestUsageFilterHoldsBackNoWholeEvent(t *testing.T) {
	one := events(chatPiece("a"))
	for cut := range len(one) {
		var f UsageFilter
		if got := string(f.Feed([]byte(one + one[:cut]))); got != one {
			t.Fatalf("%d bytes of the next event: %q goes out", cut, got)
		}
	}
}

func TestUsageFilterCopiesNothing(t *testing.T) {
	var f UsageFilter
	p := []byte(events(chatPiece("a"), chatPiece("b")))
	if n := testing.AllocsPerRun(100, func() {
		if got := f.Feed(p); &got[0] != &p[0] || len(got) != len(p) {
			t.Fatal("what goes out is no part of what came in")
		}
	}); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}

func TestUsageFilterDoesNotDependOnCuts(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		usageOnly, "\n", "\r", "\r\n", "\n\n", "data: ", `{"choices":[],`, `"usage":{}`, "}", `"usage":`, "null", ": c\n\n", "x",
		strings.Repeat("y", maxUsageEvent/3), DoneFrame,
	})
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOf(piece).Draw(t, "stream"), "")
		if got, want := filtered(stream, rapid.IntRange(1, 99).Draw(t, "size")), unfiltered(stream); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func FuzzUsageFilter(f *testing.F) {
	f.Add([]byte(events(chatPiece("a"))+usageOnly+DoneFrame), 7)
	f.Add([]byte("data: {\"choices\":[],\"usage\":{}}\r\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		if got, want := filtered(string(stream), max(size, 1)), unfiltered(string(stream)); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func BenchmarkUsageFilter(b *testing.B) {
	for name, event := range map[string]string{
		"chat":       events(`{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" token"}}]}`),
		"usage null": events(chatPiece(" token")),
	} {
		b.Run(name, func(b *testing.B) {
			var f UsageFilter
			chunk := []byte(event)
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			for b.Loop() {
				f.Feed(chunk)
			}
		})
	}
}
