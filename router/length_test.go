package router

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
)

// limitedModel changes the limits of a node's model.
func limitedModel(n *node, limits catalog.Limits) {
	v, _ := n.catalog.Resolve("m")
	v.Model.Limits = limits
	n.catalog.set(v)
}

func TestAnAnswerIsNoLongerThanItsModelAllows(t *testing.T) {
	got := make(chan string, 1)
	entry, _ := pair(t, true, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
		_, _ = io.WriteString(w, "{}")
	})
	limitedModel(entry, catalog.Limits{MaxOutput: 100})
	for path, cases := range map[string]map[string]string{
		chatPath: {
			`{"model":"m"}`:                  `{"model":"m","max_tokens":100}`,
			`{"model":"m","max_tokens":7}`:   `{"model":"m","max_tokens":7}`,
			`{"model":"m","max_tokens":100}`: `{"model":"m","max_tokens":100}`,
		},
		"/v1/responses":  {`{"model":"m"}`: `{"model":"m","max_output_tokens":100}`},
		"/v1/embeddings": {`{"model":"m"}`: `{"model":"m"}`},
	} {
		for body, want := range cases {
			text(t, send(t, entry, "POST", path, body))
			if engine := <-got; engine != want {
				t.Errorf("%s %s: the engine got %s", path, body, engine)
			}
		}
	}
	e := wantError(t, send(t, entry, "POST", chatPath, `{"model":"m","max_completion_tokens":101}`), 400, "max_tokens_exceeded")
	for _, part := range []string{"101", "100", "max_completion_tokens"} {
		if !strings.Contains(e.Error.Message, part) {
			t.Errorf("%q does not name %s", e.Error.Message, part)
		}
	}
}

func TestAStreamThatOnlyRepeatsItselfIsEnded(t *testing.T) {
	chunk := "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"again and again \"}}]}\n\n"
	for name, ends := range map[string]bool{"watched": true, "not watched": false} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{}, 1)
			entry, _ := pair(t, true, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				for i := 0; ends && r.Context().Err() == nil; i++ { // more than any buffer holds
					event(w, chunk)
				}
				if ends {
					gone <- struct{}{}
					return
				}
				for range 400 {
					event(w, chunk)
				}
				event(w, done)
			})
			limitedModel(entry, catalog.Limits{EndRepetition: ends})
			got := text(t, send(t, entry, "POST", chatPath, chatBody))
			if n := strings.Count(got, "again"); !ends && n != 800 {
				t.Errorf("%d repetitions reached the client", n)
			}
			if strings.Contains(got, `"finish_reason":"length"`) != ends || !strings.HasSuffix(got, done) {
				t.Errorf("ends %q", got[max(len(got)-200, 0):])
			}
			if ends {
				select {
				case <-gone:
				case <-time.After(30 * time.Second):
					t.Error("the engine goes on")
				}
			}
		})
	}
}

func TestAPromptThatWasCutWithoutAWordIsFlagged(t *testing.T) {
	entry, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":2048,"completion_tokens":1}}`)
	})
	for bytes, want := range map[int]float64{1000: 0, 200_000: 1} {
		body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", bytes/5) + `"}]}`
		text(t, send(t, entry, "POST", chatPath, body))
		eventually(t, "the request is over", func() bool { return entry.picker.Idle() })
		if want > 0 {
			eventually(t, "it is flagged", func() bool { return counted(entry.metrics.truncated.WithLabelValues("m")) == want })
		}
	}
}
