package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Request is a translated request.
type Request struct {
	Model    string
	Stream   bool
	Thinking bool   // the client wants to see the model's thoughts
	Body     []byte // for /v1/chat/completions
	// Notes name what of the request has no effect, for a header.
	Notes []string
}

// Translate makes a chat completions request of the body of /v1/messages or of
// /v1/messages/count_tokens, which need not bound its answer.
func Translate(body []byte, counting bool) (*Request, *openai.Error) {
	var w wire
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, chat.Invalid("", err.Error())
	}
	switch {
	case w.Model == "":
		return nil, chat.Invalid("model", "model: field required")
	case len(w.Messages) == 0:
		return nil, chat.Invalid("messages", "messages: at least one message is required")
	case !counting && w.MaxTokens == nil:
		return nil, chat.Invalid("max_tokens", "max_tokens: field required")
	case !counting && *w.MaxTokens < 1:
		return nil, chat.Invalid("max_tokens", "max_tokens: must be at least 1")
	}
	r := &Request{Model: w.Model, Stream: w.Stream != nil && *w.Stream && !counting}
	c, e := w.request(r)
	if e != nil {
		return nil, e
	}
	out, err := c.Encode()
	if err != nil {
		return nil, chat.Invalid("", err.Error())
	}
	r.Body = out
	return r, nil
}

func (w *wire) request(r *Request) (*chat.Request, *openai.Error) {
	c := &chat.Request{
		Model: w.Model, MaxTokens: w.MaxTokens, Stream: r.Stream, Stop: chat.Given(w.Stop),
		Temperature: chat.Given(w.Temperature), TopP: chat.Given(w.TopP), TopK: chat.Given(w.TopK),
	}
	if r.Stream {
		c.StreamOptions = &chat.StreamOptions{IncludeUsage: true}
	}
	if w.Metadata != nil {
		c.User = chat.Given(w.Metadata.User)
	}
	if w.Thinking != nil && w.Thinking.Type != "disabled" {
		r.Thinking = true
		r.Notes = append(r.Notes, "thinking budget ignored")
	}
	if e := w.messages(c); e != nil {
		return nil, e
	}
	if e := w.tools(c); e != nil {
		return nil, e
	}
	f := w.Format
	if f == nil && w.Config != nil {
		f = w.Config.Format
	}
	if f != nil && f.Type == "json_schema" && len(f.Schema) > 0 {
		c.ResponseFormat = chat.SchemaFormat("response", f.Schema, true)
	}
	return c, nil
}

func (w *wire) messages(c *chat.Request) *openai.Error {
	if system := w.System.text(); system != "" {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Content: system})
	}
	for i := range w.Messages {
		t := &w.Messages[i]
		var e *openai.Error
		switch t.Role {
		case "assistant":
			e = t.assistant(c, i)
		case "user":
			e = t.user(c, i)
		case "system":
			c.Messages = append(c.Messages, chat.Message{Role: "system", Content: t.Content.text()})
		default:
			e = chat.Invalid("messages", fmt.Sprintf("messages.%d.role: must be user or assistant", i))
		}
		if e != nil {
			return e
		}
	}
	return nil
}

// text gives the texts of a list of blocks.
func (c content) text() string {
	var texts []string
	for i := range c {
		if c[i].Type == "text" {
			texts = append(texts, c[i].Text)
		}
	}
	return strings.Join(texts, "\n")
}

// user gives results of tools as messages of their own, before what the user
// said with them.
func (t *turn) user(c *chat.Request, at int) *openai.Error {
	var parts []chat.Part
	for i := range t.Content {
		b := &t.Content[i]
		if b.Type != "tool_result" {
			p, e := b.part(at)
			if e != nil {
				return e
			}
			parts = append(parts, p)
			continue
		}
		text, images, e := b.result(at)
		if e != nil {
			return e
		}
		c.Messages = append(c.Messages, chat.Message{Role: "tool", ToolCallID: b.CallID, Content: text})
		parts = append(parts, images...)
	}
	if len(parts) > 0 {
		c.Messages = append(c.Messages, chat.Message{Role: "user", Content: chat.Content(parts)})
	}
	return nil
}

// result divides what a tool gave: engines take text alone from a tool.
func (b *block) result(at int) (string, []chat.Part, *openai.Error) {
	var given content
	if len(chat.Given(b.Content)) > 0 {
		if err := json.Unmarshal(b.Content, &given); err != nil {
			return "", nil, chat.Invalid("messages", fmt.Sprintf("messages.%d: content of a tool_result: %v", at, err))
		}
	}
	var images []chat.Part
	for i := range given {
		if given[i].Type == "text" {
			continue
		}
		p, e := given[i].part(at)
		if e != nil {
			return "", nil, e
		}
		images = append(images, p)
	}
	text := given.text()
	if b.IsError {
		text = strings.TrimSuffix("Error: "+text, ": ")
	}
	return text, images, nil
}

// part gives a block of a user's message.
func (b *block) part(at int) (chat.Part, *openai.Error) {
	switch b.Type {
	case "text":
		return chat.TextPart(b.Text), nil
	case "image":
		if s := b.Source; s != nil && s.Type == "url" && s.URL != "" {
			return chat.ImagePart(s.URL), nil
		} else if s != nil && s.Type == "base64" && s.Data != "" {
			return chat.ImagePart("data:" + s.Media + ";base64," + s.Data), nil
		}
		return chat.Part{}, chat.Invalid("messages", fmt.Sprintf("messages.%d: an image needs a source of type base64 or url", at))
	}
	return chat.Part{}, chat.Invalid("messages", fmt.Sprintf("messages.%d: content of type %q is not supported by this model's engine", at, b.Type))
}

func (t *turn) assistant(c *chat.Request, at int) *openai.Error {
	m := chat.Message{Role: "assistant"}
	for i := range t.Content {
		b := &t.Content[i]
		switch b.Type {
		case "text", "thinking", "redacted_thinking":
		case "tool_use":
			m.ToolCalls = append(m.ToolCalls, chat.ToolCall{
				ID: b.ID, Type: "function", Function: chat.CallFunction{Name: b.Name, Arguments: compact(b.Input)},
			})
		default:
			return chat.Invalid("messages", fmt.Sprintf("messages.%d: content of type %q is not supported by this model's engine", at, b.Type))
		}
	}
	if text := t.Content.text(); text != "" || len(m.ToolCalls) == 0 {
		m.Content = text
	}
	c.Messages = append(c.Messages, m)
	return nil
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(chat.Given(raw)) == 0 || json.Compact(&b, raw) != nil {
		return "{}"
	}
	return b.String()
}

func (w *wire) tools(c *chat.Request) *openai.Error {
	for i := range w.Tools {
		t := &w.Tools[i]
		if t.Type != "" && t.Type != "custom" {
			return chat.Invalid("tools", fmt.Sprintf("tools.%d: tools of type %q run at Anthropic only", i, t.Type))
		}
		c.Tools = append(c.Tools, chat.Tool{Type: "function", Function: chat.Function{
			Name: t.Name, Description: t.Description, Parameters: chat.Given(t.Schema), Strict: chat.Given(t.Strict),
		}})
	}
	if w.ToolChoice == nil {
		return nil
	}
	switch w.ToolChoice.Type {
	case "auto", "none":
		c.ToolChoice = w.ToolChoice.Type
	case "any":
		c.ToolChoice = "required"
	case "tool":
		c.ToolChoice = chat.NamedTool(w.ToolChoice.Name)
	default:
		return chat.Invalid("tool_choice", "tool_choice.type: must be auto, any, tool or none")
	}
	if w.ToolChoice.Serial {
		c.ParallelToolCalls = json.RawMessage("false")
	}
	return nil
}
