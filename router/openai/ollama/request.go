package ollama

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
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
		return nil, invalid("suffix", "suffix is not supported: the model's own chat template is always used")
	}
	if w.Raw != nil && *w.Raw {
		return nil, invalid("raw", "raw is not supported: the model's own chat template is always used")
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
		return nil, invalid("", err.Error())
	}
	if w.Model == "" {
		return nil, invalid("model", "model is required")
	}
	return &w, nil
}

func invalid(param, message string) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: "invalid_request", Param: param, Message: message,
	}
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
		return invalid("", err.Error())
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
				return invalid("options.num_predict", "num_predict must be a whole number")
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
		return invalid("format", `format must be "json" or a JSON schema`)
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

// translate gives the turns of a chat. Ollama's tool calls have no IDs of
// their own: results belong to the calls before them, by name or in order.
func translate(turns []message) ([]chat.Message, *openai.Error) {
	out := make([]chat.Message, 0, len(turns))
	var open []chat.ToolCall
	made := 0
	for i := range turns {
		t := &turns[i]
		content, e := contentOf(t)
		if e != nil {
			return nil, e
		}
		m := chat.Message{Role: t.Role, Content: content, Reasoning: t.Thinking}
		for _, call := range t.ToolCalls {
			made++
			id := call.ID
			if id == "" {
				id = fmt.Sprintf("call_%d", made)
			}
			arguments := string(call.Function.Arguments)
			if arguments == "" || arguments == "null" {
				arguments = "{}"
			}
			one := chat.ToolCall{ID: id, Type: "function", Function: chat.CallFunction{Name: call.Function.Name, Arguments: arguments}}
			m.ToolCalls = append(m.ToolCalls, one)
			open = append(open, one)
		}
		if t.Role == "tool" {
			m.ToolCallID, open = answered(t, open)
		}
		out = append(out, m)
	}
	return out, nil
}

// answered finds the call that a result is of.
func answered(t *message, open []chat.ToolCall) (id string, rest []chat.ToolCall) {
	if t.CallID != "" {
		return t.CallID, open
	}
	at := slices.IndexFunc(open, func(c chat.ToolCall) bool { return c.Function.Name == t.ToolName })
	if at < 0 && len(open) > 0 {
		at = 0
	}
	if at < 0 {
		return "call_0", open
	}
	id = open[at].ID
	return id, slices.Delete(open, at, at+1)
}

func contentOf(t *message) (any, *openai.Error) {
	if len(t.Images) == 0 {
		return t.Content, nil
	}
	var parts []chat.Part
	if t.Content != "" {
		parts = append(parts, chat.TextPart(t.Content))
	}
	for _, image := range t.Images {
		kind := imageType(image)
		if kind == "" {
			return nil, invalid("images", "images must be base64 of PNG, JPEG, GIF or WebP")
		}
		parts = append(parts, chat.ImagePart("data:"+kind+";base64,"+image))
	}
	return parts, nil
}

// imageType knows a picture by its first bytes; empty: it is none.
func imageType(text string) string {
	head, err := base64.StdEncoding.DecodeString(text[:min(len(text), 24)])
	if err != nil {
		return ""
	}
	kind := http.DetectContentType(head)
	if !strings.HasPrefix(kind, "image/") {
		return ""
	}
	return kind
}
