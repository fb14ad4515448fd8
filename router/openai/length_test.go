package openai

import (
	"strings"
	"testing"
)

func TestEffectiveCap(t *testing.T) {
	cases := map[string]struct {
		body                       string
		maxOutput, context, prompt int64
		want                       int64
		param                      string
		d                          Dialect
	}{
		"asked":                     {`{"max_tokens":5}`, 100, 1000, 10, 5, "", Chat},
		"asked for the most":        {`{"max_completion_tokens":100}`, 100, 1000, 10, 100, "", Chat},
		"asked for more":            {`{"max_tokens":101}`, 100, 1000, 10, 0, "max_tokens", Chat},
		"asked for more, elsewhere": {`{"max_tokens":5,"n_predict":101}`, 100, 1000, 10, 0, "n_predict", Chat},
		"of Responses":              {`{"max_output_tokens":101}`, 100, 0, 0, 0, "max_output_tokens", Responses},
		"the larger counts":         {`{"max_tokens":5,"max_completion_tokens":6}`, 0, 0, 0, 6, "", Chat},
		"whichever it is":           {`{"max_tokens":6,"max_completion_tokens":5}`, 0, 0, 0, 6, "", Chat},
		"the larger is too large":   {`{"max_tokens":101,"max_completion_tokens":1}`, 100, 0, 0, 0, "max_tokens", Chat},
		"another API's":             {`{"max_output_tokens":1}`, 100, 1000, 10, 100, "", Chat},
		"chat's, of Responses":      {`{"max_tokens":1}`, 100, 1000, 10, 100, "", Responses},
		"an engine's own":           {`{"n_predict":1}`, 100, 1000, 10, 100, "", Chat},
		"an engine's own, larger":   {`{"max_tokens":5,"n_predict":50}`, 100, 1000, 10, 50, "", Chat},
		"not asked":                 {`{}`, 100, 1000, 10, 100, "", Chat},
		"endless":                   {`{"max_tokens":-1}`, 100, 1000, 10, 100, "", Chat},
		"the context leaves less":   {`{}`, 100, 1000, 950, 50, "", Chat},
		"the context alone":         {`{}`, 0, 1000, 950, 50, "", Chat},
		"nothing left":              {`{}`, 100, 1000, 2000, 0, "", Chat},
		"nothing known":             {`{}`, 0, 0, 10, 0, "", Chat},
		"the model alone":           {`{}`, 100, 0, 10, 100, "", Chat},
		"null":                      {`{"max_tokens":null}`, 100, 0, 0, 100, "", Chat},
	}
	for name, c := range cases {
		r := scanOf(t, c.body)
		got, e := EffectiveCap(&r, c.d, c.maxOutput, c.context, c.prompt)
		if got != c.want || (e != nil) != (c.param != "") {
			t.Errorf("%s: %d, %v", name, got, e)
		}
		if e != nil && (e.Param != c.param || e.Status != 400 || !strings.Contains(e.Message, "101") || !strings.Contains(e.Message, "100")) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestCapEdits(t *testing.T) {
	cases := map[string]struct {
		body, want string
		d          Dialect
		limit      int64
	}{
		"none":          {`{"a":1}`, `{"a":1,"max_tokens":7}`, Chat, 7},
		"responses":     {`{"a":1}`, `{"a":1,"max_output_tokens":7}`, Responses, 7},
		"null":          {`{"max_tokens":null}`, `{"max_tokens":7}`, Chat, 7},
		"endless":       {`{"n_predict":-1,"a":1}`, `{"a":1,"max_tokens":7}`, Chat, 7},
		"endless too":   {`{"max_tokens":-1}`, `{"max_tokens":7}`, Chat, 7},
		"asked":         {`{"max_tokens":3}`, `{"max_tokens":3}`, Chat, 7},
		"another API's": {`{"max_output_tokens":1}`, `{"max_output_tokens":1,"max_tokens":7}`, Chat, 7},
		"an engine's":   {`{"n_predict":1}`, `{"n_predict":1,"max_tokens":7}`, Chat, 7},
		"both endless":  {`{"max_tokens":3,"n_predict":-1}`, `{"max_tokens":3}`, Chat, 7},
		"no answer":     {`{"a":1}`, `{"a":1}`, Plain, 7},
		"no cap known":  {`{"a":1}`, `{"a":1}`, Chat, 0},
	}
	for name, c := range cases {
		r := scanOf(t, c.body)
		if got := string(Splice(&r, CapEdits(&r, c.d, c.limit)...)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTruncated(t *testing.T) {
	cases := map[string]struct {
		told  uint64
		bytes int
		want  bool
	}{
		"usual":             {25000, 100000, false},
		"dense":             {3400, 100000, false}, // 30 bytes a token were seen
		"far under":         {2048, 100000, true},
		"short":             {1, 4000, false},
		"not told":          {0, 100000, false},
		"more than thought": {100000, 100000, false},
	}
	for name, c := range cases {
		if got := Truncated(c.told, c.bytes); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
