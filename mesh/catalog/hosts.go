package catalog

import (
	"math"
	"slices"
)

// HostKind is the program that a host runs, as its sponsor found out.
type HostKind string

// Kinds of hosts.
const (
	HostOllama   HostKind = "ollama"
	HostLMStudio HostKind = "lmstudio"
	HostLlamaCpp HostKind = "llama-server"
	HostVLLM     HostKind = "vllm"
	HostOther    HostKind = "openai" // anything that lists its models
)

// HostStatus is what the sponsor of a host saw of it last.
type HostStatus struct {
	ID      string      `json:"id"` // of the provider's document
	Kind    HostKind    `json:"kind"`
	Up      bool        `json:"up"`
	Problem string      `json:"problem,omitempty"` // why it is not
	Since   int64       `json:"since"`             // unix seconds on the sponsor's clock
	Models  []HostModel `json:"models,omitempty"`
	Slots   int         `json:"slots,omitempty"` // requests at once; 0: not told
	// LoadKnown: it tells its requests. Where it does not, InFlight is no zero.
	LoadKnown bool    `json:"load_known,omitempty"`
	InFlight  int     `json:"in_flight,omitempty"` // computed and waiting
	KVUse     float64 `json:"kv_use,omitempty"`    // 0 to 1, in steps of KVStep
	KVTokens  int64   `json:"kv_tokens,omitempty"` // that its KV cache holds; 0: not told
}

// KVStep is how finely the use of a KV cache is told.
const KVStep = 0.05

// KVStepped rounds the use of a KV cache to what is told of it.
func KVStepped(use float64) float64 { return math.Round(use/KVStep) * KVStep }

// HostModel is a model that a host has.
type HostModel struct {
	Name    string `json:"name"`
	Cold    bool   `json:"cold,omitempty"`    // known not to be loaded
	Context int    `json:"context,omitempty"` // tokens of one request; 0: not told
}

// MaxHostModels bounds the models of a host that are told.
const MaxHostModels = 128

// Model finds what a host has under a name, or under that name with the tag that
// Ollama adds.
func (s HostStatus) Model(name string) (HostModel, bool) {
	for _, folded := range []string{FoldName(name), FoldName(name) + ":latest"} {
		if i := slices.IndexFunc(s.Models, func(m HostModel) bool { return FoldName(m.Name) == folded }); i >= 0 {
			return s.Models[i], true
		}
	}
	return HostModel{}, false
}

// HostMatch finds the model of a host that a name means: as the document says,
// or, where it names no models, as the host calls it.
func (p *Provider) HostMatch(s HostStatus, name string) (HostModel, bool) {
	theirs := name
	if len(p.Models) > 0 {
		var ok bool
		if theirs, _, ok = p.Match(name); !ok {
			return HostModel{}, false
		}
	} else if CheckName(name) != nil {
		return HostModel{}, false
	}
	return s.Model(theirs)
}

// HostNames are the names that requests may ask a host's models by.
func (p *Provider) HostNames(s HostStatus) []string {
	var out []string
	add := func(name string) {
		if CheckName(name) == nil && !slices.ContainsFunc(out, func(o string) bool { return FoldName(o) == FoldName(name) }) {
			out = append(out, name)
		}
	}
	for _, m := range p.Models {
		if _, ok := p.HostMatch(s, m.Pattern); ok { // a pattern with '*' is no name
			add(m.Pattern)
		}
	}
	for _, m := range s.Models {
		if got, ok := p.HostMatch(s, m.Name); ok && got.Name == m.Name {
			add(m.Name)
		}
	}
	return out
}
