package anthropic

import "encoding/json"

type wire struct {
	Model       string          `json:"model"`
	MaxTokens   *int64          `json:"max_tokens"`
	System      content         `json:"system"`
	Messages    []turn          `json:"messages"`
	Tools       []tool          `json:"tools"`
	ToolChoice  *choice         `json:"tool_choice"`
	Stop        json.RawMessage `json:"stop_sequences"`
	Temperature json.RawMessage `json:"temperature"`
	TopP        json.RawMessage `json:"top_p"`
	TopK        json.RawMessage `json:"top_k"`
	Stream      *bool           `json:"stream"`
	Thinking    *struct {
		Type string `json:"type"`
	} `json:"thinking"`
	Metadata *struct {
		User json.RawMessage `json:"user_id"`
	} `json:"metadata"`
	Format *format `json:"output_format"`
	Config *struct {
		Format *format `json:"format"`
	} `json:"output_config"`
}

type format struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

type turn struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
	Strict      json.RawMessage `json:"strict"`
}

type choice struct {
	Type   string `json:"type"`
	Name   string `json:"name"`
	Serial bool   `json:"disable_parallel_tool_use"`
}

// content is a list of blocks; a text alone is a list of one.
type content []block

type block struct {
	Type   string          `json:"type"`
	Text   string          `json:"text"`
	Source *source         `json:"source"`
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	CallID string          `json:"tool_use_id"`
	// Content is of a tool's result: read when it is used, as nobody bounds how
	// deep it is nested.
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error"`
}

type source struct {
	Type  string `json:"type"`
	Media string `json:"media_type"`
	Data  string `json:"data"`
	URL   string `json:"url"`
}

// UnmarshalJSON takes a text or a list of blocks.
func (c *content) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
		*c = content{{Type: "text", Text: text}}
		return nil
	}
	var blocks []block
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return err
	}
	*c = blocks
	return nil
}
