package openai

import (
	"bytes"
	"fmt"
	"strconv"
)

// Request is what the head needs to know of a request's body, whatever API it
// is of. A field that is absent or null leaves the zero value.
type Request struct {
	Model  string
	Stream bool

	MaxTokens           Count // max_tokens
	MaxCompletionTokens Count // max_completion_tokens
	MaxOutputTokens     Count // max_output_tokens, of Responses
	NPredict            Count // n_predict, which llama.cpp heeds on all routes
	N                   Count // n: answers to one prompt
	BestOf              Count // best_of

	IncludeUsage  bool // stream_options.include_usage is true
	Tools         bool // tools or functions, at least one
	ToolChoice    ToolChoice
	ParallelTools Flag // parallel_tool_calls
	Format        Format
	Logprobs      bool // logprobs are asked for
	TopLogprobs   Count

	Images int // parts of messages, also of tools' results
	Audio  int
	Files  int // documents and videos

	Store            Flag
	PreviousResponse string
	Background       Flag
	EncodingFormat   string // of embeddings; empty: floats
	KeepAlive        bool   // Ollama's keep_alive is there
	NumCtx           Count  // Ollama's options.num_ctx

	// Inputs is the number of texts, or token lists, of input or prompt; 0:
	// neither is there.
	Inputs int
	// TextBytes is the raw size of what the engine reads, media left out.
	TextBytes int

	body       []byte
	open       int // behind the outermost bracket
	fields     []field
	mediaBytes int
}

// field is where one member of the outermost object stands.
type field struct {
	name             []byte // without quotes and escapes
	from, value, end int
}

// Count is a whole number of a body.
type Count struct {
	N   int64
	Set bool
}

// Flag is a truth value of a body whose absence means something.
type Flag struct{ On, Set bool }

// ToolChoiceKind says how free a model is to call tools.
type ToolChoiceKind string

// Kinds of tool choice; empty: nothing is said, which means auto.
const (
	ToolsNone     ToolChoiceKind = "none"
	ToolsAuto     ToolChoiceKind = "auto"
	ToolsRequired ToolChoiceKind = "required" // any of the tools
	ToolNamed     ToolChoiceKind = "named"
)

// ToolChoice is tool_choice in the forms of all APIs.
type ToolChoice struct {
	Kind ToolChoiceKind
	Name string // where Kind is ToolNamed
}

// Format is the form that an answer must have.
type Format string

// Formats; empty: free text.
const (
	FormatObject Format = "json_object"
	FormatSchema Format = "json_schema"
)

// Field gives the raw value of a member of the outermost object, of doubled
// ones the last; nil: absent or null.
func (r *Request) Field(name string) []byte {
	f := r.find(name)
	if f == nil || string(r.body[f.value:f.end]) == "null" {
		return nil
	}
	return r.body[f.value:f.end]
}

func (r *Request) find(name string) *field {
	for i := len(r.fields) - 1; i >= 0; i-- {
		if string(r.fields[i].name) == name {
			return &r.fields[i]
		}
	}
	return nil
}

// note takes over one field; of doubled ones the last counts.
func (r *Request) note(name string, raw []byte, commas int) error {
	null := string(raw) == "null"
	switch name {
	case "model":
		return readModel(raw, r)
	case "stream":
		return readBool(name, raw, &r.Stream)
	case "max_tokens":
		return readCount(name, raw, &r.MaxTokens)
	case "max_completion_tokens":
		return readCount(name, raw, &r.MaxCompletionTokens)
	case "max_output_tokens":
		return readCount(name, raw, &r.MaxOutputTokens)
	case "n_predict":
		return readCount(name, raw, &r.NPredict)
	case "n":
		return readCount(name, raw, &r.N)
	case "best_of":
		return readCount(name, raw, &r.BestOf)
	case "tools", "functions":
		r.Tools = raw[0] == '[' && len(bytes.TrimSpace(raw[1:len(raw)-1])) > 0
	case "logprobs":
		r.Logprobs = !null && string(raw) != "false"
	case "parallel_tool_calls":
		r.ParallelTools = flagOf(raw)
	case "store":
		r.Store = flagOf(raw)
	case "background":
		r.Background = flagOf(raw)
	case "keep_alive":
		r.KeepAlive = !null
	case "previous_response_id":
		r.PreviousResponse = textOf(raw)
	case "encoding_format":
		r.EncodingFormat = textOf(raw)
	case "input", "prompt":
		r.Inputs = inputsOf(raw, commas)
	default:
		r.nested(name, raw)
	}
	return nil
}

// nested reads fields whose values are small objects. What is of an odd type
// there is for the engine to refuse.
func (r *Request) nested(name string, raw []byte) {
	switch name {
	case "stream_options":
		r.IncludeUsage = string(member(raw, "include_usage")) == "true"
	case "tool_choice":
		r.ToolChoice = toolChoiceOf(raw)
	case "response_format", "output_format":
		r.Format = formatOf(raw)
	case "text", "output_config":
		if format := member(raw, "format"); format != nil {
			r.Format = formatOf(format)
		}
	case "top_logprobs":
		// An odd value is for the engine to refuse.
		_ = readCount(name, raw, &r.TopLogprobs)
	case "options":
		_ = readCount("options.num_ctx", orNullRaw(member(raw, "num_ctx")), &r.NumCtx)
	}
}

func orNullRaw(raw []byte) []byte {
	if raw == nil {
		return []byte("null")
	}
	return raw
}

// Doubled reports that a member of the outermost object is there more than once:
// who reads it elsewhere may take another than the last.
func (r *Request) Doubled(name string) bool {
	n := 0
	for i := range r.fields {
		if string(r.fields[i].name) == name {
			n++
		}
	}
	return n > 1
}

// finish derives what needs the whole body.
func (r *Request) finish(media bool) {
	if media {
		r.countMedia(r.Field("messages"))
		r.countMedia(r.Field("input"))
	}
	for _, name := range []string{"messages", "input", "prompt", "system", "instructions", "tools", "functions", "documents", "query"} {
		r.TextBytes += len(r.Field(name))
	}
	r.TextBytes -= r.mediaBytes
}

func readModel(raw []byte, req *Request) error {
	req.Model = ""
	switch {
	case string(raw) == "null":
		return nil
	case raw[0] != '"':
		return &FieldError{Param: "model", Want: "a string"}
	case len(raw) > maxModelBytes:
		return &FieldError{Param: "model", Want: fmt.Sprintf("at most %d bytes long", maxModelBytes)}
	}
	req.Model = string(plain(raw))
	return nil
}

func readBool(name string, raw []byte, to *bool) error {
	switch string(raw) {
	case "true":
		*to = true
	case "false", "null":
		*to = false
	default:
		return &FieldError{Param: name, Want: "true or false"}
	}
	return nil
}

// maxNumber bounds the spelling of a number, in bytes: what is read of it must be
// what an engine reads.
const maxNumber = 64

// readCount takes whole numbers however they are spelled. What an engine might
// read as a number in spite of its type is refused: limits depend on it.
func readCount(name string, raw []byte, to *Count) error {
	*to = Count{}
	if string(raw) == "null" {
		return nil
	}
	if len(raw) > maxNumber {
		return &FieldError{Param: name, Want: "a whole number"}
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(string(raw), 64)
		const exact = 1 << 53
		if n = int64(f); ferr != nil || f < -exact || f > exact || float64(n) != f {
			return &FieldError{Param: name, Want: "a whole number"}
		}
	}
	*to = Count{N: n, Set: true}
	return nil
}

func flagOf(raw []byte) Flag {
	return Flag{On: string(raw) == "true", Set: string(raw) == "true" || string(raw) == "false"}
}

// inputsOf counts what input or prompt holds: a text, a list of texts, a token
// list or a list of token lists.
func inputsOf(raw []byte, commas int) int {
	if raw[0] != '[' {
		if string(raw) == "null" {
			return 0
		}
		return 1
	}
	switch inner := bytes.TrimLeft(raw[1:], " \t\r\n"); {
	case inner[0] == ']':
		return 0
	case inner[0] >= '0' && inner[0] <= '9':
		return 1
	}
	return commas + 1
}

func toolChoiceOf(raw []byte) ToolChoice {
	kind := textOf(raw)
	if raw[0] == '{' {
		kind = textOf(member(raw, "type"))
	}
	switch kind {
	case "none", "auto", "required":
		return ToolChoice{Kind: ToolChoiceKind(kind)}
	case "any": // Messages
		return ToolChoice{Kind: ToolsRequired}
	case "function", "tool", "custom":
		name := textOf(member(member(raw, "function"), "name"))
		if name == "" {
			name = textOf(member(raw, "name"))
		}
		return ToolChoice{Kind: ToolNamed, Name: name}
	case "allowed_tools":
		allowed := member(raw, "allowed_tools")
		if allowed == nil {
			allowed = raw
		}
		if textOf(member(allowed, "mode")) == "required" {
			return ToolChoice{Kind: ToolsRequired}
		}
		return ToolChoice{Kind: ToolsAuto}
	}
	return ToolChoice{}
}

func formatOf(raw []byte) Format {
	switch kind := Format(textOf(member(raw, "type"))); kind {
	case FormatObject, FormatSchema:
		return kind
	}
	return ""
}
