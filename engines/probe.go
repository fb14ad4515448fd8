package engines

import (
	"encoding/json"
	"net/http"
	"strings"

	"llmgw/engines/kvevents"
	"llmgw/mesh/catalog"
)

// Health is what an engine says of itself.
type Health int

// Health values, from worst to best.
const (
	HealthUnknown Health = iota // an answer that this engine does not give
	HealthBroken                // it says that it cannot serve
	HealthLoading               // it answers and still loads
	HealthOK
)

func (h Health) String() string {
	return [...]string{"unknown", "broken", "loading", "ok"}[h]
}

// Probe tells how to ask a running engine. Paths begin with a slash; the
// per-run key goes with each request.
type Probe struct {
	HealthPath  string
	ModelsPath  string
	PropsPath   string // answers only to the right key
	MetricsPath string
	// Health reads an answer of HealthPath. A 200 alone is never enough: some
	// engines answer 200 while they load.
	Health func(status int, body []byte) Health
	// Models reads the names that an answer of ModelsPath serves.
	Models func(body []byte) ([]string, error)
	// Props reads an answer of PropsPath; zero fields: the engine does not tell.
	Props func(body []byte) (Props, error)
	// Load reads an answer of MetricsPath.
	Load func(body []byte) Load
	// Events are the sockets in its directory at which an engine publishes what its
	// KV cache holds; nil: it does not.
	Events func(runDir string) kvevents.Source
	// Token is the request that makes the engine compute once.
	Token func(s catalog.Shard) TokenRequest
}

// Props is what an engine says of its limits.
type Props struct {
	Context int    // tokens of one request
	Slots   int    // requests at once
	Lacks   string // abilities that the loaded model has not, with commas; what is not told is not here
}

// TokenRequest is a POST whose good answer proves that the engine computes.
type TokenRequest struct {
	Path  string
	Body  []byte
	Check func(status int, body []byte) error
}

// llamaHealth reads /health as llama-server and our simulation give it.
func llamaHealth(status int, body []byte) Health {
	var answer struct {
		Status string `json:"status"`
		Error  struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return HealthUnknown
	}
	switch {
	case status == http.StatusOK && answer.Status == "ok":
		return HealthOK
	case status == http.StatusServiceUnavailable && strings.Contains(strings.ToLower(answer.Error.Message), "loading"):
		return HealthLoading
	case status >= http.StatusInternalServerError:
		return HealthBroken
	}
	return HealthUnknown
}

// openAIModels reads the IDs of an OpenAI model list.
func openAIModels(body []byte) ([]string, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list.Data))
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}

// llamaProps reads /props as llama-server gives it.
func llamaProps(body []byte) (Props, error) {
	var answer struct {
		TotalSlots int `json:"total_slots"`
		Defaults   struct {
			NCtx int `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Modalities struct {
			Vision *bool `json:"vision"`
			Audio  *bool `json:"audio"`
		} `json:"modalities"`
		Template struct {
			Tools *bool `json:"supports_tools"`
		} `json:"chat_template_caps"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Props{}, err
	}
	var lacks []string
	for _, has := range []struct {
		told    *bool
		ability catalog.Ability
	}{
		{answer.Modalities.Vision, catalog.AbilityImages},
		{answer.Modalities.Audio, catalog.AbilityAudio},
		{answer.Template.Tools, catalog.AbilityTools},
	} {
		if has.told != nil && !*has.told {
			lacks = append(lacks, string(has.ability))
		}
	}
	return Props{Context: answer.Defaults.NCtx, Slots: answer.TotalSlots, Lacks: strings.Join(lacks, ",")}, nil
}
