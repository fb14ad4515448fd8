package responses

import (
	"encoding/json"
	"fmt"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// item is one item of an input.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   parts           `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Output    parts           `json:"output"`
	Summary   json.RawMessage `json:"summary"`
}

// parts are those of a message or of what a tool gave; a text alone is a list
// of one.
type parts []part

type part struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Refusal string          `json:"refusal"`
	Image   string          `json:"image_url"`
	Detail  string          `json:"detail"`
	Audio   json.RawMessage `json:"input_audio"`
}

// UnmarshalJSON takes a text or a list of parts.
func (p *parts) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
		*p = parts{{Type: "input_text", Text: text}}
		return nil
	}
	var list []part
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	*p = list
	return nil
}

// messages translates instructions and items. What stands before the first
// turn becomes one system message: many templates take no second one.
func (w *wire) messages(c *chat.Request, items []json.RawMessage) *openai.Error {
	system := ""
	if w.Instructions != nil {
		system = *w.Instructions
	}
	leading := true
	for i, raw := range items {
		var it item
		if err := json.Unmarshal(raw, &it); err != nil {
			return chat.Invalid("input", fmt.Sprintf("input[%d]: %v", i, err))
		}
		if leading && it.isSystem() {
			text, _, e := it.Content.split(i)
			if e != nil {
				return e
			}
			if system != "" {
				system += "\n\n"
			}
			system += text
			continue
		}
		if leading = false; len(c.Messages) == 0 && system != "" {
			c.Messages = append(c.Messages, chat.Message{Role: "system", Content: system})
		}
		if e := it.append(c, i); e != nil {
			return e
		}
	}
	if len(c.Messages) == 0 && system != "" {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Content: system})
	}
	if len(c.Messages) == 0 {
		return chat.Invalid("input", "input is required")
	}
	return nil
}

func (it *item) isSystem() bool {
	return (it.Type == "" || it.Type == "message") && (it.Role == "system" || it.Role == "developer")
}

func (it *item) append(c *chat.Request, at int) *openai.Error {
	switch it.Type {
	case "", "message":
		return it.message(c, at)
	case "function_call":
		it.call(c, it.Arguments)
	case "custom_tool_call":
		arguments, e := marshal(map[string]string{"input": it.Input})
		if e != nil {
			return e
		}
		it.call(c, string(arguments))
	case "function_call_output", "custom_tool_call_output":
		text, media, e := it.Output.split(at)
		if e != nil {
			return e
		}
		c.Messages = append(c.Messages, chat.Message{Role: "tool", ToolCallID: it.CallID, Content: text})
		if len(media) > 0 {
			c.Messages = append(c.Messages, chat.Message{Role: "user", Content: media})
		}
	case "reasoning":
		// Thoughts of earlier turns are no part of a chat.
	default:
		return chat.Invalid("input", fmt.Sprintf("input[%d]: items of type %q are not supported by this model's engine", at, it.Type))
	}
	return nil
}

// call adds a call to the assistant's turn that is at hand: chat completions
// have all calls of a turn in one message.
func (it *item) call(c *chat.Request, arguments string) {
	last := len(c.Messages) - 1
	if last < 0 || c.Messages[last].Role != "assistant" {
		c.Messages = append(c.Messages, chat.Message{Role: "assistant"})
		last++
	}
	m := &c.Messages[last]
	m.ToolCalls = append(m.ToolCalls, chat.ToolCall{
		ID: it.CallID, Type: "function", Function: chat.CallFunction{Name: it.Name, Arguments: arguments},
	})
}

func (it *item) message(c *chat.Request, at int) *openai.Error {
	role := it.Role
	switch role {
	case "developer":
		role = "system"
	case "user", "assistant", "system":
	default:
		return chat.Invalid("input", fmt.Sprintf("input[%d].role must be user, assistant, system or developer", at))
	}
	list := make([]chat.Part, 0, len(it.Content))
	for i := range it.Content {
		p, e := it.Content[i].chat(at)
		if e != nil {
			return e
		}
		list = append(list, p)
	}
	c.Messages = append(c.Messages, chat.Message{Role: role, Content: chat.Content(list)})
	return nil
}

// split divides what a tool gave: engines take text alone from a tool.
func (p parts) split(at int) (text string, media []chat.Part, e *openai.Error) {
	for i := range p {
		one, e := p[i].chat(at)
		if e != nil {
			return "", nil, e
		}
		switch {
		case one.Text == nil:
			media = append(media, one)
		case text == "":
			text = *one.Text
		default:
			text += "\n" + *one.Text
		}
	}
	return text, media, nil
}

func (p *part) chat(at int) (chat.Part, *openai.Error) {
	switch p.Type {
	case "input_text", "output_text", "text":
		return chat.TextPart(p.Text), nil
	case "refusal":
		return chat.TextPart(p.Refusal), nil
	case "input_image":
		if p.Image == "" {
			return chat.Part{}, chat.Invalid("input", fmt.Sprintf("input[%d]: an image needs an image_url", at))
		}
		image := chat.ImagePart(p.Image)
		if p.Detail != "auto" {
			image.ImageURL.Detail = p.Detail
		}
		return image, nil
	case "input_audio":
		return chat.Part{Type: "input_audio", InputAudio: p.Audio}, nil
	}
	return chat.Part{}, chat.Invalid("input", fmt.Sprintf("input[%d]: content of type %q is not supported by this model's engine", at, p.Type))
}
