package ollama

import (
	"encoding/json"
	"time"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Reply is one document of /api/chat or /api/generate: a whole answer, a piece
// of a stream, or its last one. Durations are in nanoseconds.
type Reply struct {
	Model      string   `json:"model"`
	CreatedAt  string   `json:"created_at"`
	Message    *Message `json:"message,omitempty"`  // of chat
	Response   *string  `json:"response,omitempty"` // of generate
	Thinking   string   `json:"thinking,omitempty"` // of generate
	Done       bool     `json:"done"`
	DoneReason string   `json:"done_reason,omitempty"`
	*Figures
}

// Figures stand in the last document.
type Figures struct {
	Total        int64  `json:"total_duration"`
	Load         int64  `json:"load_duration"`
	Prompt       uint64 `json:"prompt_eval_count"`
	PromptTime   int64  `json:"prompt_eval_duration"`
	Eval         uint64 `json:"eval_count"`
	EvalDuration int64  `json:"eval_duration"`
}

// Message is the model's turn.
type Message struct {
	Role      string      `json:"role"`
	Content   string      `json:"content"`
	Thinking  string      `json:"thinking,omitempty"`
	ToolCalls []ReplyCall `json:"tool_calls,omitempty"`
}

// ReplyCall is a tool call; its arguments are an object.
type ReplyCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// Answer turns the answer of a chat completion into Ollama's, as it comes or
// whole.
type Answer struct {
	chat.Stream
	model    string
	generate bool
	now      func() time.Time
	began    time.Time
	first    time.Time // of the first piece
	calls    chat.Calls
	reason   string
	usage    *chat.Usage
	timings  *chat.Timings
	pieces   uint64
}

// NewAnswer begins an answer to /api/chat, or to /api/generate. model is the
// name that the client used; the clock is read for the durations.
func NewAnswer(model string, generate bool, now func() time.Time) *Answer {
	a := &Answer{model: model, generate: generate, now: now, began: now()}
	a.Into(chat.Form{
		Chunk: a.chunk, End: a.finish, Alive: a.KeepAlive,
		Error: func(e *openai.Error, _ openai.Origin) []byte {
			return openai.Ollama.StreamError(e, openai.Origin{}, nil)
		},
	})
	return a
}

// KeepAlive is a piece without text: a stream that waits stays open with it.
// Ollama's clients know no comments.
func (a *Answer) KeepAlive() []byte { return a.line(a.reply("", "", nil)) }

func (a *Answer) chunk(c *chat.Answer) {
	if a.Broke(c) {
		return
	}
	a.figures(c)
	for i := range c.Choices {
		if choice := &c.Choices[i]; choice.Index == 0 {
			a.piece(&choice.Delta, string(choice.FinishReason))
		}
	}
}

func (a *Answer) figures(c *chat.Answer) {
	if c.Usage != nil {
		a.usage = c.Usage
	}
	if c.Timings != nil {
		a.timings = c.Timings
	}
}

func (a *Answer) piece(d *chat.Delta, reason string) {
	text, thinking := string(d.Content)+string(d.Refusal), d.Thinking()
	if text != "" || thinking != "" || len(d.ToolCalls) > 0 {
		if a.first.IsZero() {
			a.first = a.now()
		}
		a.pieces++
	}
	for i := range d.ToolCalls {
		a.calls.Add(&d.ToolCalls[i])
	}
	if text != "" || thinking != "" {
		a.Out = append(a.Out, a.line(a.reply(text, thinking, nil))...)
	}
	if reason != "" {
		a.reason = reason
	}
}

// finish writes the tool calls, whose arguments are whole only now, and the
// last line.
func (a *Answer) finish() {
	if a.calls.Len() > 0 {
		a.Out = append(a.Out, a.line(a.reply("", "", &a.calls))...)
	}
	a.Out = append(a.Out, a.line(a.last(a.reply("", "", nil)))...)
}

func (a *Answer) reply(text, thinking string, calls *chat.Calls) *Reply {
	r := &Reply{Model: a.model, CreatedAt: a.now().UTC().Format(time.RFC3339Nano)}
	if a.generate {
		r.Response, r.Thinking = &text, thinking
		return r
	}
	r.Message = &Message{Role: "assistant", Content: text, Thinking: thinking}
	if calls == nil {
		return r
	}
	for at := range calls.Len() {
		call := calls.Call(at)
		one := ReplyCall{ID: call.ID}
		one.Function.Index, one.Function.Name, one.Function.Arguments = at, call.Function.Name, chat.Object(call.Function.Arguments)
		r.Message.ToolCalls = append(r.Message.ToolCalls, one)
	}
	return r
}

// last makes a document the last one.
func (a *Answer) last(r *Reply) *Reply {
	r.Done, r.DoneReason = true, "stop"
	if a.reason == "length" {
		r.DoneReason = "length"
	}
	now := a.now()
	f := &Figures{Total: int64(now.Sub(a.began)), Eval: a.pieces}
	if first := a.first; !first.IsZero() {
		f.PromptTime, f.EvalDuration = int64(first.Sub(a.began)), int64(now.Sub(first))
	}
	if u := a.usage; u != nil {
		f.Prompt, f.Eval = uint64(max(u.Prompt, 0)), uint64(max(u.Completion, 0))
	}
	if t := a.timings; t != nil {
		f.PromptTime, f.EvalDuration = int64(t.PromptMS*1e6), int64(t.PredictedMS*1e6)
	}
	r.Figures = f
	return r
}

func (a *Answer) line(r *Reply) []byte { return append(chat.Encode(r), '\n') }

// Whole turns a whole chat completion into one document.
func (a *Answer) Whole(body []byte) ([]byte, *openai.Error) {
	c, e := chat.Decode(body)
	if e != nil {
		return nil, e
	}
	a.figures(c)
	choice := &c.Choices[0]
	for i := range choice.Message.ToolCalls {
		n := chat.Number(i) // they are whole and in order
		choice.Message.ToolCalls[i].Index = &n
		a.calls.Add(&choice.Message.ToolCalls[i])
	}
	a.reason = string(choice.FinishReason)
	text := string(choice.Message.Content) + string(choice.Message.Refusal)
	r := a.reply(text, choice.Message.Thinking(), &a.calls)
	if a.pieces = 1; text == "" && a.calls.Len() == 0 {
		a.pieces = 0
	}
	return chat.Encode(a.last(r)), nil
}

// Loaded is the answer to a request without a prompt, which has its model
// loaded and nothing else. The stream's one line is the same with a line end.
func Loaded(model string, generate bool, now time.Time) []byte {
	a := NewAnswer(model, generate, func() time.Time { return now })
	r := a.reply("", "", nil)
	r.Done, r.DoneReason = true, "load"
	return chat.Encode(r)
}
