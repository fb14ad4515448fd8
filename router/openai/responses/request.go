package responses

import (
	"bytes"
	"encoding/json"
	"fmt"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Request is a translated request.
type Request struct {
	Model    string
	Stream   bool
	Store    bool   // the client may ask for the response again; the default
	Previous string // ID of the response that this one goes on from; empty: none
	Body     []byte // for /v1/chat/completions
	// Items are all items of the input, those that came before among them, as
	// a JSON list: with the response's output they are what a next one goes on
	// from.
	Items []byte
	// Notes name what of the request has no effect, for a header.
	Notes []string

	echo   map[string]json.RawMessage // the request's own fields
	custom map[string]bool            // names of free-form tools
}

type wire struct {
	Model        string          `json:"model"`
	Input        json.RawMessage `json:"input"`
	Instructions *string         `json:"instructions"`
	Tools        []tool          `json:"tools"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Parallel     json.RawMessage `json:"parallel_tool_calls"`
	Text         *struct {
		Format *format `json:"format"`
	} `json:"text"`
	MaxOutput   *int64          `json:"max_output_tokens"`
	Temperature json.RawMessage `json:"temperature"`
	TopP        json.RawMessage `json:"top_p"`
	TopLogprobs json.RawMessage `json:"top_logprobs"`
	Stream      *bool           `json:"stream"`
	Store       *bool           `json:"store"`
	Background  *bool           `json:"background"`
	Previous    string          `json:"previous_response_id"`
	Reasoning   *struct {
		Effort json.RawMessage `json:"effort"`
	} `json:"reasoning"`
	User     json.RawMessage `json:"user"`
	CacheKey json.RawMessage `json:"prompt_cache_key"`
}

type format struct {
	Type   string          `json:"type"`
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Strict *bool           `json:"strict"`
}

type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      json.RawMessage `json:"strict"`
	Format      *struct {
		Syntax     string `json:"syntax"`
		Definition string `json:"definition"`
	} `json:"format"`
}

// Translate makes a chat completions request of the body of /v1/responses.
// earlier is a JSON list of the items before, where the request goes on from a
// stored response; nil: none.
func Translate(body, earlier []byte) (*Request, *openai.Error) {
	var w wire
	r := &Request{custom: make(map[string]bool)}
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, chat.Invalid("", err.Error())
	}
	if err := json.Unmarshal(body, &r.echo); err != nil {
		return nil, chat.Invalid("", err.Error())
	}
	switch {
	case w.Model == "":
		return nil, chat.Invalid("model", "model is required")
	case w.Background != nil && *w.Background:
		return nil, chat.Invalid("background", "background responses are not supported by this model's engine")
	}
	r.Model, r.Previous = w.Model, w.Previous
	r.Stream, r.Store = w.Stream != nil && *w.Stream, w.Store == nil || *w.Store
	items, e := w.items(earlier)
	if e != nil {
		return nil, e
	}
	if r.Items, e = marshal(items); e != nil {
		return nil, e
	}
	c, e := w.request(r, items)
	if e != nil {
		return nil, e
	}
	r.Body, e = marshal(c)
	return r, e
}

func marshal(v any) ([]byte, *openai.Error) {
	out, err := json.Marshal(v)
	if err != nil {
		return nil, chat.Invalid("", err.Error())
	}
	return out, nil
}

// items gives what came before and the input as one list.
func (w *wire) items(earlier []byte) ([]json.RawMessage, *openai.Error) {
	items := []json.RawMessage{}
	if len(earlier) > 0 {
		if err := json.Unmarshal(earlier, &items); err != nil {
			return nil, chat.Invalid("previous_response_id", "the stored response cannot be gone on from: "+err.Error())
		}
	}
	input := bytes.TrimSpace(chat.Given(w.Input))
	switch {
	case len(input) == 0:
		return items, nil
	case input[0] == '"':
		return append(items, json.RawMessage(`{"type":"message","role":"user","content":`+string(input)+`}`)), nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(input, &list); err != nil {
		return nil, chat.Invalid("input", "input must be a text or a list of items")
	}
	return append(items, list...), nil
}

func (w *wire) request(r *Request, items []json.RawMessage) (*chat.Request, *openai.Error) {
	c := &chat.Request{
		Model: w.Model, Stream: r.Stream, MaxTokens: w.MaxOutput, Temperature: chat.Given(w.Temperature), TopP: chat.Given(w.TopP),
		User: chat.Given(w.User), CacheKey: chat.Given(w.CacheKey),
	}
	if r.Stream {
		c.StreamOptions = &chat.StreamOptions{IncludeUsage: true}
	}
	if w.Reasoning != nil {
		c.ReasoningEffort = chat.Given(w.Reasoning.Effort)
	}
	if n := string(chat.Given(w.TopLogprobs)); n != "" && n != "0" {
		return nil, chat.Invalid("top_logprobs", "log probabilities are not supported by this model's engine on this route")
	}
	if e := w.messages(c, items); e != nil {
		return nil, e
	}
	if e := w.tools(c, r); e != nil {
		return nil, e
	}
	return c, w.format(c)
}

func (w *wire) format(c *chat.Request) *openai.Error {
	if w.Text == nil || w.Text.Format == nil {
		return nil
	}
	switch f := w.Text.Format; f.Type {
	case "", "text":
	case "json_object":
		c.ResponseFormat = chat.ObjectFormat()
	case "json_schema":
		if len(chat.Given(f.Schema)) == 0 {
			return chat.Invalid("text.format.schema", "text.format.schema is required")
		}
		name := f.Name
		if name == "" {
			name = "response"
		}
		c.ResponseFormat = chat.SchemaFormat(name, f.Schema, f.Strict != nil && *f.Strict)
	default:
		return chat.Invalid("text.format", fmt.Sprintf("text.format of type %q is not known", f.Type))
	}
	return nil
}

// freeForm is the schema of a free-form tool as a function.
const freeForm = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`

func (w *wire) tools(c *chat.Request, r *Request) *openai.Error {
	for i := range w.Tools {
		t := &w.Tools[i]
		f := chat.Function{Name: t.Name, Description: t.Description, Parameters: chat.Given(t.Parameters), Strict: chat.Given(t.Strict)}
		switch t.Type {
		case "function":
		case "custom":
			r.custom[t.Name] = true
			f.Parameters, f.Strict = json.RawMessage(freeForm), nil
			if t.Format != nil && t.Format.Definition != "" {
				f.Description += "\nThe input follows this " + t.Format.Syntax + " grammar:\n" + t.Format.Definition
			}
		default:
			r.Notes = append(r.Notes, "tool "+t.Type+" left out")
			continue
		}
		c.Tools = append(c.Tools, chat.Tool{Type: "function", Function: f})
	}
	if len(chat.Given(w.Parallel)) > 0 && len(c.Tools) > 0 {
		c.ParallelToolCalls = w.Parallel
	}
	return w.choice(c)
}

func (w *wire) choice(c *chat.Request) *openai.Error {
	raw := bytes.TrimSpace(chat.Given(w.ToolChoice))
	if len(raw) == 0 {
		return nil
	}
	var kind string
	var named struct {
		Type string `json:"type"`
		Name string `json:"name"`
		Mode string `json:"mode"`
	}
	if json.Unmarshal(raw, &kind) != nil && json.Unmarshal(raw, &named) != nil {
		return chat.Invalid("tool_choice", "tool_choice must be a text or an object")
	}
	switch {
	case kind == "none" || kind == "auto":
	case kind == "required" || named.Type == "allowed_tools" && named.Mode == "required":
		kind = "required"
		if len(c.Tools) == 0 {
			return chat.Invalid("tool_choice", "a tool call is required, but no tool of a kind that this model's engine can call is given")
		}
	case named.Type == "allowed_tools":
		kind = "auto"
	case named.Type == "function" || named.Type == "custom":
		c.ToolChoice = chat.NamedTool(named.Name)
		return nil
	default:
		return chat.Invalid("tool_choice", fmt.Sprintf("tool_choice %s is not supported by this model's engine", raw[:min(len(raw), 80)]))
	}
	if len(c.Tools) > 0 {
		c.ToolChoice = kind
	}
	return nil
}
