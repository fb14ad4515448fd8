package ollama

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Request is a translated request.
type Request struct {
	Model  string
	Stream bool
	// Body is for /v1/chat/completions or /v1/embeddings. It is nil where the
	// client only wants its model loaded: then Loaded is the answer.
	Body []byte
	// Notes name what of the request has no effect, for a header.
	Notes []string
}

// wire has the fields of /api/chat and /api/generate.
type wire struct {
	Model     string                     `json:"model"`
	Messages  []message                  `json:"messages"`
	Prompt    string                     `json:"prompt"`
	System    string                     `json:"system"`
	Suffix    string                     `json:"suffix"`
	Images    []string                   `json:"images"`
	Template  string                     `json:"template"`
	Context   json.RawMessage            `json:"context"`
	Raw       *bool                      `json:"raw"`
	Tools     []chat.Tool                `json:"tools"`
	Format    json.RawMessage            `json:"format"`
	Options   map[string]json.RawMessage `json:"options"`
	Stream    *bool                      `json:"stream"`
	Think     json.RawMessage            `json:"think"`
	KeepAlive json.RawMessage            `json:"keep_alive"`
}

type message struct {
	Role      string     `json:"role"`
	Content   string     `json:"content"`
	Thinking  string     `json:"thinking"`
	Images    []string   `json:"images"`
	ToolCalls []toolCall `json:"tool_calls"`
	ToolName  string     `json:"tool_name"`
	CallID    string     `json:"tool_call_id"`
}

type toolCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// Chat translates the body of /api/chat. maxContext bounds num_ctx in what is
// reported; 0: it is not known.
func Chat(body []byte, maxContext int64) (*Request, *openai.Error) {
	w, e := decode(body)
	if e != nil {
		return nil, e
	}
	r := w.request(maxContext)
	if len(w.Messages) == 0 {
		return r, nil
	}
	messages, e := translate(w.Messages)
	if e != nil {
		return nil, e
	}
	return r, w.finish(r, messages)
}

// Generate translates the body of /api/generate.
func Generate(body []byte, maxContext int64) (*Request, *openai.Error) {
	w, e := decode(body)
	if e != nil {
		return nil, e
	}
	r := w.request(maxContext)
	if w.Suffix != "" {
		return nil, chat.Invalid("suffix", "suffix is not supported: the model's own chat template is always used")
	}
	if w.Raw != nil && *w.Raw {
		return nil, chat.Invalid("raw", "raw is not supported: the model's own chat template is always used")
	}
	if w.Prompt == "" && len(w.Images) == 0 {
		return r, nil
	}
	var turns []message
	if w.System != "" {
		turns = append(turns, message{Role: "system", Content: w.System})
	}
	messages, e := translate(append(turns, message{Role: "user", Content: w.Prompt, Images: w.Images}))
	if e != nil {
		return nil, e
	}
	return r, w.finish(r, messages)
}

func decode(body []byte) (*wire, *openai.Error) {
	var w wire
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, chat.Invalid("", err.Error())
	}
	if w.Model == "" {
		return nil, chat.Invalid("model", "model is required")
	}
	return &w, nil
}

// request notes what has no effect.
func (w *wire) request(maxContext int64) *Request {
	r := &Request{Model: w.Model, Stream: w.Stream == nil || *w.Stream}
	if len(chat.Given(w.KeepAlive)) > 0 {
		r.note("keep_alive ignored")
	}
	if w.Template != "" {
		r.note("template ignored")
	}
	if len(chat.Given(w.Context)) > 0 {
		r.note("context ignored")
	}
	var context int64
	if raw, ok := w.Options["num_ctx"]; ok && json.Unmarshal(raw, &context) == nil && context > 0 {
		if maxContext > 0 && context > maxContext {
			r.note(fmt.Sprintf("num_ctx clamped to %d", maxContext))
		} else {
			r.note("num_ctx ignored")
		}
	}
	return r
}

func (r *Request) note(text string) { r.Notes = append(r.Notes, text) }

// finish encodes the request.
func (w *wire) finish(r *Request, messages []chat.Message) *openai.Error {
	c := chat.Request{Model: w.Model, Messages: messages, Tools: w.Tools, Stream: r.Stream}
	if c.Stream {
		c.StreamOptions = &chat.StreamOptions{IncludeUsage: true}
	}
	for i := range c.Tools {
		c.Tools[i].Type = "function"
	}
	if e := w.options(&c, r); e != nil {
		return e
	}
	if e := w.format(&c); e != nil {
		return e
	}
	w.think(&c)
	body, err := c.Encode()
	if err != nil {
		return chat.Invalid("", err.Error())
	}
	r.Body = body
	return nil
}

// options takes over those that engines have. What the machine decides, such
// as num_gpu, is noted as ignored.
func (w *wire) options(c *chat.Request, r *Request) *openai.Error {
	same := map[string]*json.RawMessage{
		"temperature": &c.Temperature, "top_p": &c.TopP, "top_k": &c.TopK, "min_p": &c.MinP, "seed": &c.Seed, "stop": &c.Stop,
		"repeat_penalty": &c.RepeatPenalty, "presence_penalty": &c.PresencePenalty, "frequency_penalty": &c.FrequencyPenalty,
	}
	var ignored []string
	for name, raw := range w.Options {
		to, ok := same[name]
		switch {
		case string(raw) == "null" || name == "num_ctx":
		case ok:
			*to = raw
		case name == "num_predict":
			var n int64
			if json.Unmarshal(raw, &n) != nil {
				return chat.Invalid("options.num_predict", "num_predict must be a whole number")
			}
			if n >= 0 { // -1 and -2 mean no bound
				c.MaxTokens = &n
			}
		default:
			ignored = append(ignored, name)
		}
	}
	if slices.Sort(ignored); len(ignored) > 0 {
		r.note(strings.Join(ignored, ", ") + " ignored")
	}
	return nil
}

func (w *wire) format(c *chat.Request) *openai.Error {
	format := bytes.TrimSpace(chat.Given(w.Format))
	switch {
	case len(format) == 0 || string(format) == `""`:
	case string(format) == `"json"`:
		c.ResponseFormat = chat.ObjectFormat()
	case format[0] == '{':
		c.ResponseFormat = chat.SchemaFormat("response", format, true)
	default:
		return chat.Invalid("format", `format must be "json" or a JSON schema`)
	}
	return nil
}

// think switches reasoning on or off, or says how much of it.
func (w *wire) think(c *chat.Request) {
	var on bool
	if think := chat.Given(w.Think); len(think) == 0 {
		return
	} else if json.Unmarshal(think, &on) == nil {
		c.TemplateArguments = map[string]any{"enable_thinking": on}
	} else {
		c.ReasoningEffort = think
	}
}
