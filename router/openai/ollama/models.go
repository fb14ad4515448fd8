package ollama

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Model is what /api/tags, /api/ps and /api/show tell of a model.
type Model struct {
	Name         string
	Modified     time.Time
	Size         int64  // bytes of the weights
	Digest       string // hex of SHA-256
	Format       string // "gguf"
	Family       string // "llama"
	Parameters   string // "135M"; empty: not known
	Quantization string // "Q4_1"; empty: not known
	Capabilities []string
	Context      int64 // tokens; 0: not known
	Template     string
	License      string

	// Of a loaded model.
	SizeVRAM int64
	Expires  time.Time // zero: it stays
}

type details struct {
	Parent       string   `json:"parent_model"`
	Format       string   `json:"format"`
	Family       string   `json:"family"`
	Families     []string `json:"families"`
	Parameters   string   `json:"parameter_size"`
	Quantization string   `json:"quantization_level"`
}

func (m *Model) details() details {
	d := details{Format: m.Format, Family: m.Family, Parameters: m.Parameters, Quantization: m.Quantization, Families: []string{}}
	if m.Family != "" {
		d.Families = append(d.Families, m.Family)
	}
	return d
}

type tag struct {
	Name     string  `json:"name"`
	Model    string  `json:"model"`
	Modified string  `json:"modified_at,omitempty"`
	Size     int64   `json:"size"`
	Digest   string  `json:"digest"`
	Details  details `json:"details"`
	Expires  string  `json:"expires_at,omitempty"`
	SizeVRAM *int64  `json:"size_vram,omitempty"`
	Context  int64   `json:"context_length,omitempty"`
}

type tags struct {
	Models []tag `json:"models"`
}

// Tags answers GET /api/tags.
func Tags(models []Model) []byte {
	out := tags{Models: make([]tag, 0, len(models))}
	for i := range models {
		m := &models[i]
		out.Models = append(out.Models, tag{
			Name: m.Name, Model: m.Name, Modified: stamp(m.Modified), Size: m.Size, Digest: m.Digest, Details: m.details(),
		})
	}
	return encode(out)
}

// farAhead is when a model that stays is said to be unloaded: clients want a
// time.
var farAhead = time.Date(2318, 1, 1, 0, 0, 0, 0, time.UTC)

// PS answers GET /api/ps with the models that are loaded.
func PS(models []Model) []byte {
	out := tags{Models: make([]tag, 0, len(models))}
	for i := range models {
		m := &models[i]
		expires, vram := m.Expires, m.SizeVRAM
		if expires.IsZero() {
			expires = farAhead
		}
		out.Models = append(out.Models, tag{
			Name: m.Name, Model: m.Name, Size: m.Size, Digest: m.Digest, Details: m.details(),
			Expires: stamp(expires), SizeVRAM: &vram, Context: m.Context,
		})
	}
	return encode(out)
}

// Show answers POST /api/show.
func Show(m Model) []byte {
	info := map[string]any{"general.architecture": m.Family}
	if m.Family != "" && m.Context > 0 {
		info[m.Family+".context_length"] = m.Context
	}
	capabilities := m.Capabilities
	if capabilities == nil {
		capabilities = []string{}
	}
	return encode(struct {
		License      string         `json:"license,omitempty"`
		Modelfile    string         `json:"modelfile"`
		Parameters   string         `json:"parameters"`
		Template     string         `json:"template"`
		Details      details        `json:"details"`
		Info         map[string]any `json:"model_info"`
		Capabilities []string       `json:"capabilities"`
		Modified     string         `json:"modified_at,omitempty"`
	}{m.License, "", "", m.Template, m.details(), info, capabilities, stamp(m.Modified)})
}

// ModelOf reads the name in the body of /api/show, in both spellings.
func ModelOf(body []byte) (string, *openai.Error) {
	var w struct {
		Model string `json:"model"`
		Name  string `json:"name"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return "", invalid("", err.Error())
	}
	if w.Model == "" {
		w.Model = w.Name
	}
	if w.Model == "" {
		return "", invalid("model", "model is required")
	}
	return w.Model, nil
}

// Version answers GET /api/version. Clients compare it with what they need.
func Version(version string) []byte {
	return encode(map[string]string{"version": version})
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

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
		return nil, invalid("", err.Error())
	}
	if w.Model == "" {
		return nil, invalid("model", "model is required")
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
			return nil, invalid(name, name+" must be a text, or a list of texts where the route takes one")
		}
	}
	r.Body = encode(struct {
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
		return nil, &openai.Error{
			Status: http.StatusBadGateway, Type: openai.TypeServer, Code: "engine_error",
			Message: "the engine's answer holds no embeddings",
		}
	}
	vectors := make([]json.RawMessage, len(w.Data))
	slices.SortStableFunc(w.Data, func(a, b vector) int { return a.Index - b.Index })
	for i, d := range w.Data {
		vectors[i] = d.Embedding
	}
	if old {
		return encode(map[string]json.RawMessage{"embedding": firstOf(vectors)}), nil
	}
	return encode(struct {
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
	return encode(map[string]any{"model": model, "embeddings": []any{}})
}
