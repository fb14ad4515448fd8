package ollama

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Embed translates the body of /api/embed, or, where it is old, of
// /api/embeddings.
func Embed(body []byte, old bool) (*Request, *openai.Error) {
	var w struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Prompt     json.RawMessage `json:"prompt"`
		Dimensions json.RawMessage `json:"dimensions"`
		KeepAlive  json.RawMessage `json:"keep_alive"`
		Truncate   json.RawMessage `json:"truncate"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, chat.Invalid("", err.Error())
	}
	if w.Model == "" {
		return nil, chat.Invalid("model", "model is required")
	}
	r, name := &Request{Model: w.Model}, "input"
	if old {
		w.Input, name = w.Prompt, "prompt"
	}
	if len(chat.Given(w.KeepAlive)) > 0 {
		r.note("keep_alive ignored")
	}
	if len(chat.Given(w.Truncate)) > 0 {
		r.note("truncate ignored")
	}
	switch input := string(chat.Given(w.Input)); input {
	case "", `""`, "[]":
		return r, nil
	default:
		if input[0] != '"' && (old || input[0] != '[') {
			return nil, chat.Invalid(name, name+" must be a text, or a list of texts where the route takes one")
		}
	}
	r.Body = chat.Encode(struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Format     string          `json:"encoding_format"`
		Dimensions json.RawMessage `json:"dimensions,omitempty"`
	}{w.Model, w.Input, "float", chat.Given(w.Dimensions)})
	return r, nil
}

// vector is one embedding; its numbers pass as the engine spelled them.
type vector struct {
	Index     int             `json:"index"`
	Embedding json.RawMessage `json:"embedding"`
}

// Embedded turns the answer to an embeddings request into that of /api/embed
// or, where it is old, of /api/embeddings. took is the request's time so far.
func Embedded(model string, body []byte, old bool, took time.Duration) ([]byte, *openai.Error) {
	if e, ok := openai.ReadError(http.StatusOK, body); ok {
		return nil, e
	}
	var w struct {
		Data  []vector   `json:"data"`
		Usage chat.Usage `json:"usage"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, chat.NoAnswer("the engine's answer holds no embeddings")
	}
	vectors := make([]json.RawMessage, len(w.Data))
	slices.SortStableFunc(w.Data, func(a, b vector) int { return a.Index - b.Index })
	for i, d := range w.Data {
		vectors[i] = d.Embedding
	}
	if old {
		return chat.Encode(map[string]json.RawMessage{"embedding": firstOf(vectors)}), nil
	}
	return chat.Encode(struct {
		Model   string            `json:"model"`
		Vectors []json.RawMessage `json:"embeddings"`
		Total   int64             `json:"total_duration"`
		Load    int64             `json:"load_duration"`
		Prompt  uint64            `json:"prompt_eval_count"`
	}{model, vectors, int64(took), 0, uint64(max(w.Usage.Prompt, 0))}), nil
}

func firstOf(vectors []json.RawMessage) json.RawMessage {
	if len(vectors) == 0 {
		return json.RawMessage("[]")
	}
	return vectors[0]
}

// NoEmbedding is the answer to an embeddings request without a text.
func NoEmbedding(model string, old bool) []byte {
	if old {
		return []byte(`{"embedding":[]}`)
	}
	return chat.Encode(map[string]any{"model": model, "embeddings": []any{}})
}
