package openai

import (
	"bytes"
	"encoding/json"
)

// End gives what ends the stream that has run away in form, at a boundary of
// its events, as if the engine had met a bound; m is the stream's meter.
// includeUsage is set where the client asked for a chunk with it. False: the
// dialect has no end that does not need all that came before, as Responses.
func (w *Watchdog) End(m *UsageMeter, includeUsage bool) ([]byte, bool) {
	used, _ := m.Usage()
	switch w.d {
	case Chat:
		return w.endChat(used, includeUsage), true
	case Messages:
		return w.endMessages(used), true
	}
	return nil, false
}

func (w *Watchdog) endChat(used Usage, includeUsage bool) []byte {
	chunk, length := w.names(), "length"
	last := endChoice{FinishReason: &length}
	if chunk.Object == "text_completion" {
		last.Text = new(string)
	} else {
		last.Delta = new(struct{})
	}
	chunk.Choices = []endChoice{last}
	out := DataFrame(encode(chunk))
	if includeUsage {
		chunk.Choices = []endChoice{}
		chunk.Usage = &endUsage{used.Input, used.Output, used.Input + used.Output}
		out = append(out, DataFrame(encode(chunk))...)
	}
	return append(out, DoneFrame...)
}

// names gives what all chunks of the stream have in common.
func (w *Watchdog) names() endChunk {
	chunk := endChunk{ID: json.RawMessage(`""`), Object: "chat.completion.chunk", Created: json.RawMessage("0"), Model: json.RawMessage(`""`)}
	if w.key == keyOfTexts {
		chunk.Object = "text_completion"
	}
	_, data, _ := bytes.Cut(w.first, []byte("data:"))
	for f := fieldsOf(data); f.next(); {
		switch string(f.name) {
		case "id":
			chunk.ID = bytes.Clone(f.value)
		case "created":
			chunk.Created = bytes.Clone(f.value)
		case "model":
			chunk.Model = bytes.Clone(f.value)
		}
	}
	return chunk
}

type endChunk struct {
	ID      json.RawMessage `json:"id"`
	Object  string          `json:"object"`
	Created json.RawMessage `json:"created"`
	Model   json.RawMessage `json:"model"`
	Choices []endChoice     `json:"choices"`
	Usage   *endUsage       `json:"usage,omitempty"`
}

type endChoice struct {
	Index        int       `json:"index"`
	Delta        *struct{} `json:"delta,omitempty"`
	Text         *string   `json:"text,omitempty"`
	FinishReason *string   `json:"finish_reason"`
}

type endUsage struct {
	Input  uint64 `json:"prompt_tokens"`
	Output uint64 `json:"completion_tokens"`
	Total  uint64 `json:"total_tokens"`
}

func (w *Watchdog) endMessages(used Usage) []byte {
	out := EventFrame("content_block_stop", encode(struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}{"content_block_stop", w.block}))
	out = append(out, EventFrame("message_delta", encode(map[string]any{
		"type": "message_delta", "delta": map[string]any{"stop_reason": "max_tokens", "stop_sequence": nil},
		"usage": map[string]uint64{"output_tokens": used.Output},
	}))...)
	return append(out, EventFrame("message_stop", []byte(`{"type":"message_stop"}`))...)
}
