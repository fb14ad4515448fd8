package openai

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// told is what a tracker says of a stream.
type told struct {
	Boundary, Done, Failed, IDs bool
	Completion                  string
}

func tell(t *Tracker) told {
	return told{t.Boundary(), t.Done(), t.Failed(), t.HasIDs(), t.Completion()}
}

func TestTrackerFollowsEvents(t *testing.T) {
	cases := map[string]struct {
		stream string
		want   told
	}{
		"nothing":                      {"", told{Boundary: true}},
		"one event":                    {"data: {}\n\n", told{Boundary: true}},
		"terminator":                   {"data: {}\n\ndata: [DONE]\n\n", told{Boundary: true, Done: true}},
		"terminator without a space":   {"data:[DONE]\n\n", told{Boundary: true, Done: true}},
		"terminator with CRLF":         {"data: [DONE]\r\n\r\n", told{Boundary: true, Done: true}},
		"terminator with CR":           {"data: [DONE]\r\r", told{Boundary: true, Done: true}},
		"terminator in model text":     {`data: {"content":"data: [DONE]"}` + "\n\n", told{Boundary: true}},
		"escaped line end in text":     {`data: {"content":"\ndata: [DONE]\n\n"}` + "\n\n", told{Boundary: true}},
		"longer line":                  {"data: [DONE]!\n\n", told{Boundary: true}},
		"longer by a space":            {"data:  [DONE]\n\n", told{Boundary: true}},
		"much longer line":             {"data: [DONE]" + strings.Repeat("x", 40) + "\n\n", told{Boundary: true}},
		"cut in a line":                {"data: {\"a\"", told{Completion: "\n\n"}},
		"cut after a line":             {"data: {}\n", told{Completion: "\n"}},
		"cut after a CR line":          {"data: {}\r", told{Completion: "\n\n"}},
		"cut within CRLF":              {"data: {}\r\n\r", told{Boundary: true}},
		"comment":                      {": hello\n", told{Boundary: true}},
		"comment within an event":      {"data: {}\n: hello\n", told{Completion: "\n"}},
		"cut comment":                  {": hel", told{Completion: "\n\n"}},
		"error":                        {`data: {"error":{"message":"x"}}` + "\n\n", told{Boundary: true, Failed: true}},
		"error that is not whole":      {`data: {"error":{"message":"x"}}` + "\n", told{Completion: "\n"}},
		"error event":                  {"event: error\ndata: {}\n\n", told{Boundary: true, Failed: true}},
		"IDs":                          {"id: 7\ndata: {}\n\n", told{Boundary: true, IDs: true}},
		"other fields and empty lines": {"retry: 7\n\n\n\ndata\n\n", told{Boundary: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for cut := range len(c.stream) + 1 {
				var tr Tracker
				tr.Feed([]byte(c.stream[:cut]))
				tr.Feed([]byte(c.stream[cut:]))
				if diff := cmp.Diff(c.want, tell(&tr)); diff != "" {
					t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
				}
			}
			var tr Tracker
			for i := range len(c.stream) {
				tr.Feed([]byte(c.stream[i : i+1]))
			}
			if diff := cmp.Diff(c.want, tell(&tr)); diff != "" {
				t.Fatalf("byte by byte (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrackerReportsTheLastBoundary(t *testing.T) {
	cases := map[string]struct {
		stream string
		want   int
	}{
		"none":              {"data: {}", -1},
		"after one":         {"data: {}\n\ndata: ", 10},
		"after two":         {"data: {}\n\ndata: {}\n\nda", 20},
		"after a comment":   {"data: {}\n\n: x\nda", 14},
		"of CRLF, both":     {"data: {}\r\n\r\nda", 12},
		"not after a field": {"data: {}\n", -1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var tr Tracker
			if got := tr.Feed([]byte(c.stream)); got != c.want {
				t.Errorf("boundary %d, want %d", got, c.want)
			}
		})
	}
}

func TestTrackerEndTakesAnUnfinishedLine(t *testing.T) {
	var tr Tracker
	tr.Feed([]byte("data: [DONE]"))
	if tr.Done() {
		t.Error("done before the line's end is known")
	}
	tr.End()
	if !tr.Done() {
		t.Error("not done at the stream's end")
	}
}

func TestCompletionAlwaysLeadsToABoundary(t *testing.T) {
	piece := rapid.SampledFrom([]string{"\n", "\r", "data: ", "{}", "[DONE]", ":", "id: 1", "x"})
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOf(piece).Draw(t, "stream"), "")
		var whole, again Tracker
		whole.Feed([]byte(stream))
		whole.Feed([]byte(whole.Completion()))
		if !whole.Boundary() {
			t.Fatalf("%q: no boundary after its completion", stream)
		}
		for rest := stream; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			again.Feed([]byte(rest[:n]))
			rest = rest[n:]
		}
		again.Feed([]byte(again.Completion()))
		if whole.Done() != again.Done() || whole.Failed() != again.Failed() {
			t.Fatalf("%q: the cuts changed what was seen", stream)
		}
	})
}

func BenchmarkTracker(b *testing.B) {
	chunk := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" token"}}]}` + "\n\n")
	var tr Tracker
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		tr.Feed(chunk)
	}
}
