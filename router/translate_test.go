package router

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"llmgw/mesh/catalog"
)

const messagesBody = `{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"hi"}]`

// lacking makes the only replica of a node's model lack something.
func lacking(n *node, lacks ...catalog.Ability) {
	v, _ := n.catalog.Resolve("m")
	v.Replicas[0].Lacks = lacks
	n.catalog.set(v)
}

func TestMessagesGoToAnEngineThatHasThemAsTheyAre(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/v1/messages" || string(body) != messagesBody+"}" || r.Header.Get("Anthropic-Version") != "2023-06-01" {
				t.Errorf("the engine got %s %s %v", r.URL.Path, body, r.Header)
			}
			_, _ = io.WriteString(w, `{"type":"message"}`)
		})
		resp := send(t, entry, "POST", "/v1/messages", messagesBody+"}", func(r *http.Request) {
			r.Header.Set("Anthropic-Version", "2023-06-01")
			r.Header.Set("X-Api-Key", "good")
			r.Header.Del("Authorization")
		})
		if got := text(t, resp); got != `{"type":"message"}` {
			t.Errorf("got %s", got)
		}
	})
}

func TestMessagesAreTranslatedForAnEngineWithoutThem(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, chatEngine(t))
		lacking(entry, catalog.AbilityMessages)
		whole := text(t, send(t, entry, "POST", "/v1/messages", messagesBody+"}"))
		for _, part := range []string{`"type":"message"`, `"text":"hello"`, `"input_tokens":7`, `"output_tokens":2`, `"stop_reason":"end_turn"`} {
			if !strings.Contains(whole, part) {
				t.Errorf("%s is not in %s", part, whole)
			}
		}
		stream := text(t, send(t, entry, "POST", "/v1/messages", messagesBody+`,"stream":true}`))
		rest := stream
		for _, part := range []string{"event: message_start\n", "event: content_block_delta\n", `"text":"he"`, `"text":"llo"`, "event: message_delta\n", "event: message_stop\n"} {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("%q is not at its place in %s", part, stream)
			}
			rest = after
		}
		if strings.Contains(stream, "[DONE]") {
			t.Errorf("a stream of messages ends with [DONE]: %s", stream)
		}
	})
}

func TestMessagesHaveErrorsOfTheirOwn(t *testing.T) {
	entry, _ := pair(t, false, func(w http.ResponseWriter, _ *http.Request) {
		event(w, strings.SplitAfter(chatStream, "\n\n")[:2]...)
		die()
	})
	lacking(entry, catalog.AbilityMessages)
	for name, c := range map[string]struct {
		body   string
		status int
		says   string
	}{
		"a bad request":    {`{"model":"m","messages":[{"role":"user","content":"hi"}]}`, 400, `"error":{"type":"invalid_request_error","message":"max_tokens: field required"}`},
		"an unknown model": {strings.Replace(messagesBody, `"m"`, `"none"`, 1) + "}", 404, `"type":"not_found_error"`},
		"a broken stream":  {messagesBody + `,"stream":true}`, 200, "event: error\ndata: {\"type\":\"error\""},
	} {
		t.Run(name, func(t *testing.T) {
			resp := send(t, entry, "POST", "/v1/messages", c.body)
			if got := text(t, resp); resp.StatusCode != c.status || !strings.Contains(got, c.says) {
				t.Errorf("status %d, %s", resp.StatusCode, got)
			}
		})
	}
}

func TestWhatNoReplicaCanAnswerIsRefusedByName(t *testing.T) {
	entry, _ := pair(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") })
	lacking(entry, catalog.AbilityRerank, catalog.AbilityTokenize, catalog.AbilityEmbeddings, catalog.AbilityMessages)
	for path, name := range map[string]string{
		"/v1/rerank": "/v1/rerank", "/rerank": "/v1/rerank", "/v2/rerank": "/v2/rerank", "/tokenize": "/tokenize", "/v1/embeddings": "/v1/embeddings",
	} {
		e := wantError(t, send(t, entry, "POST", path, plainBody), 400, "unsupported_by_model")
		if !strings.Contains(e.Error.Message, "does not answer "+name) {
			t.Errorf("%s: %s", path, e.Error.Message)
		}
	}
	if resp := send(t, entry, "POST", "/v1/messages/count_tokens", messagesBody+"}"); resp.StatusCode != 400 {
		t.Errorf("count_tokens: status %d", resp.StatusCode)
	}
}
