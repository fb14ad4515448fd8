package responses

import (
	"encoding/json"

	"llmgw/router/openai/chat"
)

// document is a response. What the client asked for stands in it as it was
// spelled.
type document struct {
	ID           string          `json:"id"`
	Object       string          `json:"object"`
	CreatedAt    int64           `json:"created_at"`
	Status       string          `json:"status"`
	Background   bool            `json:"background"`
	Error        *failure        `json:"error"`
	Incomplete   *incomplete     `json:"incomplete_details"`
	Instructions json.RawMessage `json:"instructions"`
	MaxOutput    json.RawMessage `json:"max_output_tokens"`
	Model        string          `json:"model"`
	Output       []any           `json:"output"`
	Parallel     json.RawMessage `json:"parallel_tool_calls"`
	Previous     json.RawMessage `json:"previous_response_id"`
	Reasoning    json.RawMessage `json:"reasoning"`
	Store        bool            `json:"store"`
	Temperature  json.RawMessage `json:"temperature"`
	Text         json.RawMessage `json:"text"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Tools        json.RawMessage `json:"tools"`
	TopP         json.RawMessage `json:"top_p"`
	Truncation   json.RawMessage `json:"truncation"`
	Usage        *usage          `json:"usage"`
	User         json.RawMessage `json:"user"`
	Metadata     json.RawMessage `json:"metadata"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

// usage has all counters: clients require them.
type usage struct {
	Input   int64 `json:"input_tokens"`
	InputOf struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output   int64 `json:"output_tokens"`
	OutputOf struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

// usageOf counts pieces where the engine told nothing.
func usageOf(u *chat.Usage, pieces int64) *usage {
	out := &usage{Output: pieces}
	if u != nil {
		out.Input, out.Output = int64(max(u.Prompt, 0)), int64(max(u.Completion, 0))
		out.InputOf.Cached = int64(max(u.Details.Cached, 0))
		out.OutputOf.Reasoning = int64(max(u.Out.Reasoning, 0))
	}
	out.Total = out.Input + out.Output
	return out
}

func (a *Answer) document(status string) *document {
	echo := func(name, other string) json.RawMessage {
		if raw := chat.Given(a.r.echo[name]); len(raw) > 0 {
			return raw
		}
		return json.RawMessage(other)
	}
	d := &document{
		ID: a.id, Object: "response", CreatedAt: a.created, Status: status, Model: a.r.Model, Store: a.r.Store, Output: []any{},
		Instructions: echo("instructions", "null"), MaxOutput: echo("max_output_tokens", "null"), Parallel: echo("parallel_tool_calls", "true"),
		Previous: echo("previous_response_id", "null"), Reasoning: echo("reasoning", `{"effort":null,"summary":null}`),
		Temperature: echo("temperature", "null"), Text: echo("text", `{"format":{"type":"text"}}`), ToolChoice: echo("tool_choice", `"auto"`),
		Tools: echo("tools", "[]"), TopP: echo("top_p", "null"), Truncation: echo("truncation", `"disabled"`), User: echo("user", "null"),
		Metadata: echo("metadata", "{}"),
	}
	for _, o := range a.items {
		d.Output = append(d.Output, a.item(o, "completed"))
	}
	return d
}

// Kinds of output.
const (
	kindReasoning = "reasoning"
	kindMessage   = "message"
	kindCall      = "function_call"
	kindCustom    = "custom_tool_call"
)

// output is one item of the response.
type output struct {
	kind  string
	id    string
	index int
	text  []byte // of a message or of reasoning
	call  int
	open  bool
}

type textContent struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
	Logprobs    []any  `json:"logprobs"`
}

type reasoningContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (o *output) content() any {
	if o.kind == kindReasoning {
		return reasoningContent{"reasoning_text", string(o.text)}
	}
	return textContent{"output_text", string(o.text), []any{}, []any{}}
}

type messageItem struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

type reasoningItem struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Summary []any  `json:"summary"`
	Content []any  `json:"content"`
}

type callItem struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type customItem struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`
	CallID string `json:"call_id"`
	Name   string `json:"name"`
	Input  string `json:"input"`
}

// item gives an output as it is so far; of one in progress nothing but its
// names.
func (a *Answer) item(o *output, status string) any {
	begun := status == "in_progress"
	content := []any{}
	if !begun && (o.kind == kindMessage || o.kind == kindReasoning) {
		content = append(content, o.content())
	}
	switch o.kind {
	case kindMessage:
		return messageItem{o.id, o.kind, status, "assistant", content}
	case kindReasoning:
		return reasoningItem{o.id, o.kind, status, []any{}, content}
	}
	call := a.calls.Call(o.call)
	if call.ID == "" {
		call.ID = "call_" + o.id
	}
	arguments := call.Function.Arguments
	if begun {
		arguments = ""
	}
	if o.kind == kindCustom {
		return customItem{o.id, o.kind, status, call.ID, call.Function.Name, freeInput(arguments)}
	}
	return callItem{o.id, o.kind, status, call.ID, call.Function.Name, arguments}
}

// freeInput takes the text of a free-form tool out of a function's arguments.
func freeInput(arguments string) string {
	var w struct {
		Input *string `json:"input"`
	}
	if json.Unmarshal([]byte(arguments), &w) != nil || w.Input == nil {
		return arguments
	}
	return *w.Input
}
