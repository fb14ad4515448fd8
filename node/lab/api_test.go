package lab

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func told(body io.Reader) (Tale, error) {
	s := &Stream{resp: &http.Response{Body: io.NopCloser(body)}, read: bufio.NewReader(body)}
	return s.Rest()
}

func TestTaleOfAStream(t *testing.T) {
	chunk := func(text string) string { return `data: {"choices":[{"delta":{"content":"` + text + `"}}]}` + "\n\n" }
	failed := `data: {"error":{"message":"gone","type":"server_error"},"llmgw":{"node":"b"}}` + "\n\n"
	gone := Answer{Body: strings.TrimPrefix(strings.TrimSpace(failed), "data: ")}.Failure()
	for name, tc := range map[string]struct {
		body string
		want Tale
		ok   bool
	}{
		"whole":              {chunk("a") + ": ping\n\n" + chunk("b") + "data: [DONE]\n\n", Tale{Chunks: 2, Text: "ab", Done: true}, true},
		"carriage returns":   {strings.ReplaceAll(chunk("a"), "\n", "\r\n") + "data:[DONE]\r\n\r\n", Tale{Chunks: 1, Text: "a", Done: true}, true},
		"completion, usage":  {`data: {"choices":[{"text":"x","finish_reason":"stop"}],"usage":{"completion_tokens":7}}` + "\n\n", Tale{Chunks: 1, Text: "x", Finish: "stop", Usage: 7}, true},
		"error frame":        {chunk("a") + failed + "data: [DONE]\n\n", Tale{Chunks: 1, Text: "a", Failure: []Error{gone}, Done: true}, true},
		"silent cut":         {chunk("a"), Tale{Chunks: 1, Text: "a"}, true},
		"half an event":      {chunk("a") + "data: {", Tale{Chunks: 1, Text: "a"}, true},
		"event after [DONE]": {"data: [DONE]\n\n" + chunk("a"), Tale{Done: true}, false},
		"no JSON":            {"data: hello\n\n", Tale{}, false},
	} {
		got, err := told(strings.NewReader(tc.body))
		if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != tc.ok {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	broken := io.MultiReader(strings.NewReader(chunk("a")), iotest.ErrReader(errors.New("reset")))
	if _, err := told(broken); err == nil {
		t.Error("a broken transport is told as an end")
	}
}

func TestMetricSumsItsSamples(t *testing.T) {
	text := "# HELP x y\n# TYPE x counter\nx{a=\"b c\"} 2\nx 3.5\nxy 100\nbad\n"
	if v, ok := metric(text, "x"); v != 5.5 || !ok {
		t.Errorf("x = %v, %v", v, ok)
	}
	if _, ok := metric(text, "z"); ok {
		t.Error("z was found")
	}
}
