package anthropic

import (
	"encoding/json"

	"llmgw/router/openai/chat"
)

// usage as Messages count it: input has no cached tokens in it.
type usage struct {
	Input      int64 `json:"input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	Output     int64 `json:"output_tokens"`
}

func usageOf(u *chat.Usage) usage {
	if u == nil {
		return usage{}
	}
	cached := max(0, min(int64(u.Details.Cached), int64(u.Prompt)))
	return usage{Input: int64(max(u.Prompt, 0)) - cached, CacheRead: cached, Output: int64(max(u.Completion, 0))}
}

// document is a message of the model.
type document struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Model        string  `json:"model"`
	Content      []any   `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        usage   `json:"usage"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type toolBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}
