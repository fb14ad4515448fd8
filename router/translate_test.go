package router

import (
	"io"
	"net/http"
	"net/http/httptest"
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

func TestResponsesAreTranslatedForAnEngineWithoutThem(t *testing.T) {
	entry, _ := pair(t, true, chatEngine(t))
	lacking(entry, catalog.AbilityResponses)
	whole := text(t, send(t, entry, "POST", "/v1/responses", `{"model":"m","input":"hi"}`))
	for _, part := range []string{`"object":"response"`, `"text":"hello"`, `"input_tokens":7`, `"output_tokens":2`, `"status":"completed"`} {
		if !strings.Contains(whole, part) {
			t.Errorf("%s is not in %s", part, whole)
		}
	}
	stream := text(t, send(t, entry, "POST", "/v1/responses", `{"model":"m","input":"hi","stream":true}`))
	rest := stream
	for _, part := range []string{"event: response.created\n", "event: response.output_text.delta\n", `"delta":"llo"`, "event: response.completed\n"} {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("%q is not at its place in %s", part, stream)
		}
		rest = after
	}
	if strings.Contains(stream, "[DONE]") {
		t.Errorf("a stream of responses ends with [DONE]: %s", stream)
	}
}

// weather is a request that must call a tool.
const weather = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}],"tool_choice":"required"`

func TestWhatIsAskedAndCannotBeDoneIsRefusedNotIgnored(t *testing.T) {
	entry, _ := pair(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") })
	lacking(entry, catalog.AbilityTools, catalog.AbilitySchema, catalog.AbilityImages, catalog.AbilityLogprobs, catalog.AbilityChoices)
	const user = `{"model":"m","messages":[{"role":"user","content":"hi"}],`
	for name, c := range map[string]struct{ body, param, says string }{
		"tools":    {user + weather + `}`, "tools", "call tools"},
		"a schema": {user + `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}}`, "response_format", "schema"},
		"n":        {user + `"n":2}`, "n", "more than one answer"},
		"logprobs": {user + `"logprobs":true}`, "logprobs", "probabilities"},
		"an image": {`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`, "messages", "read images"},
	} {
		t.Run(name, func(t *testing.T) {
			e := wantError(t, send(t, entry, "POST", chatPath, c.body), 400, "unsupported_by_model")
			if !strings.Contains(e.Error.Message, c.says) || e.Error.Param == nil || *e.Error.Param != c.param {
				t.Errorf("%+v", e.Error)
			}
		})
	}
}

func TestARequestGoesToTheReplicaThatCanDoIt(t *testing.T) {
	seen := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, chatWhole) }))
	t.Cleanup(seen.Close)
	entry, blind := newNode(t), Replica{Peer: "a", Slot: 1, Lacks: []catalog.Ability{catalog.AbilityImages}}
	sees := entry.serveLocally("m", seen.URL)
	blind.Local, sees.InFlight = false, 50
	entry.catalog.set(view("m", blind, sees))
	body := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`
	if got := text(t, send(t, entry, "POST", chatPath, body)); got != chatWhole {
		t.Errorf("got %s", got)
	}
}

func TestARequiredCallIsMadeBySchemaWhereTheTemplateKnowsNoTools(t *testing.T) {
	bothWays(t, func(t *testing.T, remote bool) {
		entry, _ := pair(t, remote, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), `"tool_choice"`) || !strings.Contains(string(body), `"json_schema"`) {
				t.Errorf("the engine got %s", body)
			}
			if !strings.Contains(string(body), `"stream":true`) {
				_, _ = io.WriteString(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"{\"city\":\"Paris\"}"}}]}`)
				return
			}
			event(w, `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"{\"city\":"}}]}`+"\n\n",
				`data: {"choices":[{"index":0,"delta":{"content":"\"Paris\"}"}}]}`+"\n\n",
				`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n", done)
		})
		lacking(entry, catalog.AbilityTools, catalog.AbilityMessages)
		chat := `{"model":"m","messages":[{"role":"user","content":"hi"}],` + weather
		whole := text(t, send(t, entry, "POST", chatPath, chat+`}`))
		stream := text(t, send(t, entry, "POST", chatPath, chat+`,"stream":true}`))
		for name, got := range map[string]string{"whole": whole, "stream": stream} {
			for _, part := range []string{`"name":"weather"`, `"finish_reason":"tool_calls"`} {
				if !strings.Contains(got, part) {
					t.Errorf("%s: %s is not in %s", name, part, got)
				}
			}
		}
		if !strings.HasSuffix(stream, done) {
			t.Errorf("the stream ends %q", stream)
		}
		// Through two translations: the Messages API, and the call.
		messages := messagesBody + `,"tools":[{"name":"weather","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}}],"tool_choice":{"type":"any"}`
		for _, more := range []string{`}`, `,"stream":true}`} {
			got := text(t, send(t, entry, "POST", "/v1/messages", messages+more))
			for _, part := range []string{`"type":"tool_use"`, `"name":"weather"`, `"stop_reason":"tool_use"`, `Paris`} {
				if !strings.Contains(got, part) {
					t.Errorf("%s is not in %s", part, got)
				}
			}
		}
	})
}

func TestASchemaInMessagesIsKeptTo(t *testing.T) {
	entry, _ := pair(t, true, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != chatPath || !strings.Contains(string(body), `"json_schema"`) {
			t.Errorf("the engine got %s %s", r.URL.Path, body)
		}
		_, _ = io.WriteString(w, chatWhole)
	})
	body := messagesBody + `,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}}`
	if got := text(t, send(t, entry, "POST", "/v1/messages", body)); !strings.Contains(got, `"text":"hello"`) {
		t.Errorf("got %s", got)
	}
}
