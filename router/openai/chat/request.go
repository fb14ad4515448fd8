package chat

import "encoding/json"

// Request is the body of a chat completions request. Raw values pass as the
// client spelled them.
type Request struct {
	Model             string          `json:"model"`
	Messages          []Message       `json:"messages"`
	Tools             []Tool          `json:"tools,omitempty"`
	ToolChoice        any             `json:"tool_choice,omitempty"`
	ParallelToolCalls json.RawMessage `json:"parallel_tool_calls,omitempty"`
	ResponseFormat    any             `json:"response_format,omitempty"`
	Stream            bool            `json:"stream,omitempty"`
	StreamOptions     *StreamOptions  `json:"stream_options,omitempty"`
	MaxTokens         *int64          `json:"max_tokens,omitempty"`
	Temperature       json.RawMessage `json:"temperature,omitempty"`
	TopP              json.RawMessage `json:"top_p,omitempty"`
	TopK              json.RawMessage `json:"top_k,omitempty"`
	MinP              json.RawMessage `json:"min_p,omitempty"`
	Seed              json.RawMessage `json:"seed,omitempty"`
	Stop              json.RawMessage `json:"stop,omitempty"`
	RepeatPenalty     json.RawMessage `json:"repeat_penalty,omitempty"`
	PresencePenalty   json.RawMessage `json:"presence_penalty,omitempty"`
	FrequencyPenalty  json.RawMessage `json:"frequency_penalty,omitempty"`
	Logprobs          json.RawMessage `json:"logprobs,omitempty"`
	TopLogprobs       json.RawMessage `json:"top_logprobs,omitempty"`
	ReasoningEffort   json.RawMessage `json:"reasoning_effort,omitempty"`
	TemplateArguments map[string]any  `json:"chat_template_kwargs,omitempty"`
	User              json.RawMessage `json:"user,omitempty"`
	CacheKey          json.RawMessage `json:"prompt_cache_key,omitempty"`
}

// StreamOptions asks for the usage at the end of a stream.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// Message is one turn. Content is a string, []Part or nil.
type Message struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"`
	Reasoning  string     `json:"reasoning_content,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

// Part is a piece of a message.
type Part struct {
	Type       string          `json:"type"`
	Text       *string         `json:"text,omitempty"`
	ImageURL   *ImageURL       `json:"image_url,omitempty"`
	InputAudio json.RawMessage `json:"input_audio,omitempty"`
	File       json.RawMessage `json:"file,omitempty"`
}

// ImageURL names a picture, mostly as a data URL.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

// TextPart makes a part of text.
func TextPart(text string) Part { return Part{Type: "text", Text: &text} }

// ImagePart makes a part of a picture.
func ImagePart(url string) Part { return Part{Type: "image_url", ImageURL: &ImageURL{URL: url}} }

// Content gives parts in the simplest form that says the same: engines without
// a projector take nothing but a string.
func Content(parts []Part) any {
	text := ""
	for i, p := range parts {
		if p.Text == nil {
			return parts
		}
		if i > 0 {
			text += "\n"
		}
		text += *p.Text
	}
	return text
}

// Tool is a function that the model may call.
type Tool struct {
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function describes a tool; Parameters is a JSON schema.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      json.RawMessage `json:"strict,omitempty"`
}

// ToolCall is a call that the model made. Arguments is JSON as text.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function CallFunction `json:"function"`
}

// CallFunction names the function of a call.
type CallFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// NamedTool is the tool_choice of one function.
func NamedTool(name string) any {
	return map[string]any{"type": "function", "function": map[string]string{"name": name}}
}

// SchemaFormat is the response_format of a JSON schema.
func SchemaFormat(name string, schema json.RawMessage, strict bool) any {
	return map[string]any{
		"type":        "json_schema",
		"json_schema": map[string]any{"name": name, "schema": schema, "strict": strict},
	}
}

// ObjectFormat is the response_format of any JSON object.
func ObjectFormat() any { return map[string]string{"type": "json_object"} }

// Encode gives the request's bytes.
func (r *Request) Encode() ([]byte, error) { return json.Marshal(r) }

// Given drops a null.
func Given(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}
