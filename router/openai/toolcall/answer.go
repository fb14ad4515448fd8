package toolcall

import (
	"bytes"
	"encoding/json"
	"fmt"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Answer turns the documents of a chat completion into tool calls, as they
// come or whole. What does not become a call is passed on as text.
type Answer struct {
	chat.Stream
	call    *Call
	choices map[chat.Number]*choice
}

// NewAnswer begins an answer to what was asked for.
func NewAnswer(c *Call) *Answer {
	a := &Answer{call: c, choices: make(map[chat.Number]*choice)}
	a.Into(chat.Form{
		Chunk: a.chunk,
		End:   func() { a.Out = append(a.Out, openai.DoneFrame...) },
		Error: func(e *openai.Error, o openai.Origin) []byte { return openai.Chat.StreamError(e, o, nil) },
		Alive: func() []byte { return []byte(openai.Chat.KeepAlive()) },
	})
	return a
}

// choice is one document in the making.
type choice struct {
	name string
	head []byte // what came before the arguments, while they are not found
	open bool   // the call has begun
	args arguments
}

// delta is what is new in a choice.
type delta struct {
	Role      string      `json:"role,omitempty"`
	Content   *string     `json:"content,omitempty"`
	Reasoning string      `json:"reasoning_content,omitempty"`
	Calls     []callDelta `json:"tool_calls,omitempty"`
}

type callDelta struct {
	Index    int           `json:"index"`
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type,omitempty"`
	Function functionDelta `json:"function"`
}

type functionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type choiceDelta struct {
	Index  int64   `json:"index"`
	Delta  delta   `json:"delta"`
	Finish *string `json:"finish_reason"`
}

// chunk passes a chunk on with its choices made anew. One without choices, such
// as the one with the usage, stays as it is; so does an error.
func (a *Answer) chunk(c *chat.Answer) {
	var doc map[string]json.RawMessage
	if json.Unmarshal(c.Raw, &doc) != nil {
		return
	}
	if len(c.Choices) > 0 {
		list := make([]choiceDelta, len(c.Choices))
		for i := range c.Choices {
			list[i] = a.next(&c.Choices[i])
		}
		doc["choices"] = chat.Encode(list)
	}
	a.Out = append(a.Out, openai.DataFrame(chat.Encode(doc))...)
}

func (a *Answer) next(c *chat.Choice) choiceDelta {
	ch := a.choices[c.Index]
	if ch == nil {
		ch = &choice{name: a.call.name}
		a.choices[c.Index] = ch
	}
	out := choiceDelta{Index: int64(c.Index), Delta: delta{Reasoning: c.Delta.Thinking()}}
	began := ch.open
	if text := ch.take(string(c.Delta.Content)); ch.open && (text != "" || !began) {
		one := callDelta{Function: functionDelta{Arguments: text}}
		if !began {
			out.Delta.Role = "assistant"
			one.ID, one.Type, one.Function.Name = a.call.idOf(int64(c.Index)), "function", ch.name
		}
		out.Delta.Calls = []callDelta{one}
	}
	if c.FinishReason == "" {
		return out
	}
	reason := string(c.FinishReason)
	if !ch.open {
		text := string(ch.head)
		out.Delta.Role, out.Delta.Content = "assistant", &text
	} else if reason == "stop" {
		reason = "tool_calls"
	}
	out.Finish = &reason
	return out
}

func (c *Call) idOf(index int64) string { return fmt.Sprintf("call_%s_%d", c.id, index) }

// take gives what of the next text belongs to the call's arguments.
func (c *choice) take(text string) string {
	if c.open {
		return c.args.take(text)
	}
	c.head = append(c.head, text...)
	if c.name != "" {
		start := bytes.TrimLeft(c.head, " \t\r\n")
		if len(start) == 0 || start[0] != '{' {
			return "" // nothing yet, or no document
		}
		c.open = true
		return c.args.take(string(start))
	}
	name, rest, ok := cutHead(c.head)
	if !ok {
		return ""
	}
	c.name, c.open = name, true
	return c.args.take(string(rest))
}

// cutHead reads {"name":"...","arguments": up to the arguments' first byte.
func cutHead(b []byte) (name string, rest []byte, ok bool) {
	skip := func(parts ...string) bool {
		for _, part := range parts {
			b = bytes.TrimLeft(b, " \t\r\n")
			if b, ok = bytes.CutPrefix(b, []byte(part)); !ok {
				return false
			}
		}
		b = bytes.TrimLeft(b, " \t\r\n")
		return true
	}
	if !skip("{", `"name"`, ":") {
		return "", nil, false
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if d.Decode(&name) != nil {
		return "", nil, false
	}
	b = b[d.InputOffset():]
	if !skip(",", `"arguments"`, ":") || len(b) == 0 {
		return "", nil, false
	}
	return name, b, b[0] == '{'
}

// arguments follows an object to its end.
type arguments struct {
	depth  int
	text   bool
	escape bool
	ended  bool
}

// take gives what of the text is within the object.
func (a *arguments) take(text string) string {
	if a.ended {
		return ""
	}
	for i := range len(text) {
		switch c := text[i]; {
		case a.escape:
			a.escape = false
		case a.text && c == '\\':
			a.escape = true
		case c == '"':
			a.text = !a.text
		case a.text:
		case c == '{':
			a.depth++
		case c == '}':
			if a.depth--; a.depth == 0 {
				a.ended = true
				return text[:i+1]
			}
		}
	}
	return text
}

// Whole turns a whole chat completion's documents into tool calls.
func (a *Answer) Whole(body []byte) ([]byte, *openai.Error) {
	c, e := chat.Decode(body)
	if e != nil {
		return nil, e
	}
	var doc map[string]json.RawMessage
	var list []map[string]json.RawMessage
	if json.Unmarshal(c.Raw, &doc) != nil || json.Unmarshal(doc["choices"], &list) != nil || len(list) != len(c.Choices) {
		return nil, chat.NoAnswer("the engine's answer is no chat completion")
	}
	for i := range c.Choices {
		a.whole(&c.Choices[i], list[i])
	}
	doc["choices"] = chat.Encode(list)
	return chat.Encode(doc), nil
}

func (a *Answer) whole(c *chat.Choice, raw map[string]json.RawMessage) {
	ch := choice{name: a.call.name}
	text := ch.take(string(c.Message.Content))
	var message map[string]json.RawMessage
	if !ch.open || json.Unmarshal(raw["message"], &message) != nil || message == nil {
		return
	}
	message["content"] = json.RawMessage("null")
	message["tool_calls"] = chat.Encode([]chat.ToolCall{{
		ID: a.call.idOf(int64(c.Index)), Type: "function", Function: chat.CallFunction{Name: ch.name, Arguments: text},
	}})
	raw["message"] = chat.Encode(message)
	if c.FinishReason == "stop" {
		raw["finish_reason"] = json.RawMessage(`"tool_calls"`)
	}
}
