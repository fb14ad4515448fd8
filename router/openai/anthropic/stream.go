package anthropic

import (
	"encoding/json"
	"strconv"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Answer turns the answer of a chat completion into a message, as it comes or
// whole.
//
// A message has one block after the other, while chat completions may mix the
// pieces of several tool calls: the first call is passed on as it comes, the
// others, and text behind it, once the answer is whole.
type Answer struct {
	chat.Stream
	id, model string
	thinking  bool
	calls     chat.Calls
	usage     *chat.Usage
	pieces    int64
	reason    string // as the engine said it
	sequence  string // the stop sequence that was met
	late      []byte // text behind the first call
	begun     bool
	kind      string // of the open block; empty: none is open
	index     int    // of the open block, or of the next one
}

// NewAnswer begins an answer to r; id is the message's, as "msg_1".
func NewAnswer(r *Request, id string) *Answer {
	a := &Answer{id: id, model: r.Model, thinking: r.Thinking}
	a.Into(chat.Form{
		Chunk: a.chunk, End: a.finish,
		Error: func(e *openai.Error, o openai.Origin) []byte { return openai.Messages.StreamError(e, o, nil) },
		Alive: func() []byte { return []byte(openai.Messages.KeepAlive()) },
	})
	return a
}

func (a *Answer) emit(name string, v any) {
	a.Out = append(a.Out, openai.EventFrame(name, chat.Encode(v))...)
}

type startEvent struct {
	Type    string    `json:"type"`
	Message *document `json:"message"`
}

type blockEvent struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Block any    `json:"content_block,omitempty"`
	Delta any    `json:"delta,omitempty"`
}

func (a *Answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	a.emit("message_start", startEvent{"message_start", a.document()})
}

func (a *Answer) document() *document {
	return &document{ID: a.id, Type: "message", Role: "assistant", Model: a.model, Content: []any{}}
}

func (a *Answer) open(kind string, block any) {
	a.kind = kind
	a.emit("content_block_start", blockEvent{Type: "content_block_start", Index: a.index, Block: block})
}

func (a *Answer) delta(delta any) {
	a.emit("content_block_delta", blockEvent{Type: "content_block_delta", Index: a.index, Delta: delta})
}

func (a *Answer) close() {
	if a.kind == "" {
		return
	}
	a.emit("content_block_stop", blockEvent{Type: "content_block_stop", Index: a.index})
	a.kind = ""
	a.index++
}

func (a *Answer) chunk(c *chat.Answer) {
	if a.Broke(c) {
		return
	}
	a.begin()
	if c.Usage != nil {
		a.usage = c.Usage
	}
	for i := range c.Choices {
		if choice := &c.Choices[i]; choice.Index == 0 {
			a.piece(&choice.Delta)
			a.stopped(choice)
		}
	}
}

func (a *Answer) stopped(c *chat.Choice) {
	if c.FinishReason != "" {
		a.reason, a.sequence = string(c.FinishReason), string(c.StopReason)
	}
}

func (a *Answer) piece(d *chat.Delta) {
	if thought := d.Thinking(); thought != "" {
		a.pieces++
		a.think(thought)
	}
	if text := string(d.Content) + string(d.Refusal); text != "" {
		a.pieces++
		a.text(text)
	}
	for i := range d.ToolCalls {
		a.pieces++
		a.call(&d.ToolCalls[i])
	}
}

func (a *Answer) think(thought string) {
	if !a.thinking || a.kind == "tool_use" {
		return
	}
	if a.kind != "thinking" {
		a.close()
		a.open("thinking", thinkingBlock{Type: "thinking"})
	}
	a.delta(map[string]string{"type": "thinking_delta", "thinking": thought})
}

func (a *Answer) text(text string) {
	if a.kind == "tool_use" {
		a.late = append(a.late, text...)
		return
	}
	if a.kind != "text" {
		a.close()
		a.open("text", textBlock{Type: "text"})
	}
	a.delta(map[string]string{"type": "text_delta", "text": text})
}

// call passes on the pieces of the first call. Its name comes with its first
// piece; until then nothing can be said of it.
func (a *Answer) call(d *chat.CallDelta) {
	at, _ := a.calls.Add(d)
	if at != 0 {
		return
	}
	arguments := string(d.Function.Arguments)
	if a.kind != "tool_use" {
		call := a.calls.Call(0)
		if call.Function.Name == "" {
			return
		}
		a.close()
		a.open("tool_use", toolBlock{"tool_use", a.callID(0, call), call.Function.Name, json.RawMessage("{}")})
		arguments = call.Function.Arguments
	}
	if arguments != "" {
		a.delta(map[string]string{"type": "input_json_delta", "partial_json": arguments})
	}
}

// callID makes up an ID where the engine gave none: results refer to it.
func (a *Answer) callID(at int, call chat.ToolCall) string {
	if call.ID != "" {
		return call.ID
	}
	return "toolu_" + a.id + "_" + strconv.Itoa(at)
}

type deltaEvent struct {
	Type  string    `json:"type"`
	Delta deltaStop `json:"delta"`
	Usage usage     `json:"usage"`
}

type deltaStop struct {
	Reason   string  `json:"stop_reason"`
	Sequence *string `json:"stop_sequence"`
}

func (a *Answer) finish() {
	a.begin()
	first := 0
	if a.kind == "tool_use" {
		first = 1
	}
	a.close()
	for at := first; at < a.calls.Len(); at++ {
		call := a.calls.Call(at)
		a.open("tool_use", toolBlock{"tool_use", a.callID(at, call), call.Function.Name, json.RawMessage("{}")})
		a.delta(map[string]string{"type": "input_json_delta", "partial_json": call.Function.Arguments})
		a.close()
	}
	if len(a.late) > 0 {
		a.text(string(a.late))
		a.close()
	}
	counted := usageOf(a.usage)
	if a.usage == nil {
		counted.Output = a.pieces
	}
	reason, sequence := a.stop()
	a.emit("message_delta", deltaEvent{"message_delta", deltaStop{reason, sequence}, counted})
	a.emit("message_stop", map[string]string{"type": "message_stop"})
}

// stop gives the reason for the answer's end in the terms of Messages.
func (a *Answer) stop() (reason string, sequence *string) {
	switch {
	case a.reason == "length":
		return "max_tokens", nil
	case a.reason == "content_filter":
		return "refusal", nil
	case a.calls.Len() > 0:
		return "tool_use", nil
	case a.sequence != "":
		return "stop_sequence", &a.sequence
	}
	return "end_turn", nil
}

// Whole turns a whole chat completion into a message.
func (a *Answer) Whole(body []byte) ([]byte, *openai.Error) {
	c, e := chat.Decode(body)
	if e != nil {
		return nil, e
	}
	d, choice := a.document(), &c.Choices[0]
	m := &choice.Message
	if thought := m.Thinking(); thought != "" && a.thinking {
		d.Content = append(d.Content, thinkingBlock{Type: "thinking", Thinking: thought})
	}
	if text := string(m.Content) + string(m.Refusal); text != "" {
		d.Content = append(d.Content, textBlock{"text", text})
	}
	for i := range m.ToolCalls {
		n := chat.Number(i) // they are whole and in order
		m.ToolCalls[i].Index = &n
		at, _ := a.calls.Add(&m.ToolCalls[i])
		call := a.calls.Call(at)
		d.Content = append(d.Content, toolBlock{"tool_use", a.callID(at, call), call.Function.Name, chat.Object(call.Function.Arguments)})
	}
	a.stopped(choice)
	reason, sequence := a.stop()
	d.StopReason, d.StopSequence, d.Usage = &reason, sequence, usageOf(c.Usage)
	return chat.Encode(d), nil
}

// Counted answers /v1/messages/count_tokens.
func Counted(tokens uint64) []byte { return chat.Encode(map[string]uint64{"input_tokens": tokens}) }
