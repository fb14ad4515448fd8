package openai

// ModelList answers GET /v1/models.
type ModelList struct {
	Object string      `json:"object"` // "list"
	Data   []Model     `json:"data"`
	LLMGW  *ListDetail `json:"llmgw,omitempty"`
}

// ListDetail says what is missing when the list is short.
type ListDetail struct {
	Node string `json:"node"`
	Hint string `json:"hint"`
}

// Model is one entry of the list.
type Model struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"` // "model"
	Created int64        `json:"created"`
	OwnedBy string       `json:"owned_by"`
	LLMGW   *ModelDetail `json:"llmgw,omitempty"`
}

// ModelDetail is what our own tools show beside a model.
type ModelDetail struct {
	State    string   `json:"state"` // "ready", "not_loaded" or "stopped"
	Replicas int      `json:"replicas"`
	Aliases  []string `json:"aliases,omitempty"`
	// Context is the tokens of one request, MaxOutput those of an answer; 0: not known,
	// or not bounded.
	Context   int64    `json:"context,omitempty"`
	MaxOutput int64    `json:"max_output_tokens,omitempty"`
	Nodes     []string `json:"nodes,omitempty"` // that have it ready
	Problem   string   `json:"problem,omitempty"`
	Hint      string   `json:"hint,omitempty"`
}
