package ollama

import (
	"encoding/json"
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
	return chat.Encode(out)
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
	return chat.Encode(out)
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
	return chat.Encode(struct {
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
		return "", chat.Invalid("", err.Error())
	}
	if w.Model == "" {
		w.Model = w.Name
	}
	if w.Model == "" {
		return "", chat.Invalid("model", "model is required")
	}
	return w.Model, nil
}

// Version answers GET /api/version. Clients compare it with what they need.
func Version(version string) []byte {
	return chat.Encode(map[string]string{"version": version})
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
