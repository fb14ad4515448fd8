package sim

import (
	"encoding/json"
	"strconv"
	"time"
)

// shape is how one route spells an answer. Stream events are appended to b,
// because a benchmark should measure its gateway and not this package.
type shape interface {
	missing(q request) string // name of a required field that q lacks
	idPrefix() string
	begin(b []byte, g *generation) []byte
	token(b []byte, g *generation, i int) []byte
	end(b []byte, g *generation) []byte
	whole(g *generation) any
}

// chatShape is /v1/chat/completions.
type chatShape struct{}

func (chatShape) idPrefix() string { return "chatcmpl" }

func (chatShape) missing(q request) string {
	if len(q.Messages) == 0 {
		return "messages"
	}
	return ""
}

func (chatShape) begin(b []byte, g *generation) []byte {
	b = append(b, `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],`...)
	return g.tail(b, "chat.completion.chunk", false)
}

func (chatShape) token(b []byte, g *generation, i int) []byte {
	b = append(b, `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"token-`...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, ` "}}],`...)
	return g.tail(b, "chat.completion.chunk", false)
}

func (chatShape) end(b []byte, g *generation) []byte {
	b = append(b, `data: {"choices":[{"finish_reason":"`+g.plan.finish+`","index":0,"delta":{}}],`...)
	b = g.tail(b, "chat.completion.chunk", false)
	if g.usage {
		b = append(b, `data: {"choices":[],`...)
		b = g.tail(b, "chat.completion.chunk", true)
	}
	return b
}

func (chatShape) whole(g *generation) any {
	return g.object("chat.completion", map[string]any{
		"index": 0, "finish_reason": g.plan.finish,
		"message": map[string]any{"role": "assistant", "content": Text(g.made)},
	})
}

// textShape is /v1/completions.
type textShape struct{}

func (textShape) idPrefix() string { return "cmpl" }

func (textShape) missing(q request) string {
	if len(q.Prompt) == 0 || string(q.Prompt) == "null" {
		return "prompt"
	}
	return ""
}

func (textShape) begin(b []byte, _ *generation) []byte { return b }

func (textShape) token(b []byte, g *generation, i int) []byte {
	b = append(b, `data: {"choices":[{"text":"token-`...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, ` ","index":0,"logprobs":null,"finish_reason":null}],`...)
	return g.tail(b, "text_completion", false)
}

func (textShape) end(b []byte, g *generation) []byte {
	b = append(b, `data: {"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"`+g.plan.finish+`"}],`...)
	return g.tail(b, "text_completion", g.usage)
}

func (textShape) whole(g *generation) any {
	return g.object("text_completion", map[string]any{
		"index": 0, "finish_reason": g.plan.finish, "logprobs": nil, "text": Text(g.made),
	})
}

// tail ends an event with the fields that all have.
func (g *generation) tail(b []byte, object string, usage bool) []byte {
	b = append(b, `"created":`...)
	b = strconv.AppendInt(b, g.begun.Unix(), 10)
	b = append(b, `,"id":"`+g.id+`","model":`...)
	b = append(b, g.s.alias...)
	b = append(b, `,"system_fingerprint":"llmgw-sim","object":"`+object+`"`...)
	if usage {
		// Numbers only: it cannot fail.
		u, _ := json.Marshal(g.usageObject())
		t, _ := json.Marshal(g.timings())
		b = append(append(b, `,"usage":`...), u...)
		b = append(append(b, `,"timings":`...), t...)
	}
	return append(b, "}\n\n"...)
}

func (g *generation) object(kind string, choice map[string]any) any {
	return map[string]any{
		"id": g.id, "object": kind, "created": g.begun.Unix(), "model": g.s.cfg.Alias,
		"system_fingerprint": "llmgw-sim", "choices": []any{choice},
		"usage": g.usageObject(), "timings": g.timings(),
	}
}

func (g *generation) usageObject() map[string]any {
	return map[string]any{
		"prompt_tokens": g.plan.prompt, "completion_tokens": g.made, "total_tokens": g.plan.prompt + g.made,
		"prompt_tokens_details": map[string]any{"cached_tokens": g.plan.cached},
	}
}

// timings are llama-server's; the prompt's share ends with the first token.
func (g *generation) timings() map[string]any {
	first := g.first
	if first.IsZero() {
		first = g.begun
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return map[string]any{
		"cache_n": g.plan.cached, "prompt_n": g.plan.prompt - g.plan.cached, "prompt_ms": ms(first.Sub(g.begun)),
		"predicted_n": g.made, "predicted_ms": ms(g.s.cfg.Now().Sub(first)),
	}
}
