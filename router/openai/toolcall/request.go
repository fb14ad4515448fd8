package toolcall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

// Call is what a request asks to be called.
type Call struct {
	// name of the only tool that may be called: the document is its arguments.
	// Empty: several, and the document is {"name":..., "arguments":...}.
	name string
	id   string
}

// BySchema makes of a chat request that must call a tool, and of which r is the
// scan, one that must answer with a document. id is unique to the request. An
// error says what of the tools cannot be read.
func BySchema(r *openai.Request, id string) ([]byte, *Call, *openai.Error) {
	var tools []chat.Tool
	if err := json.Unmarshal(r.Field("tools"), &tools); err != nil {
		return nil, nil, chat.Invalid("tools", "tools must be a list of functions: "+err.Error())
	}
	if r.ToolChoice.Kind == openai.ToolNamed {
		tools = only(tools, r.ToolChoice.Name)
	}
	if len(tools) == 0 {
		return nil, nil, chat.Invalid("tool_choice", fmt.Sprintf("tool_choice names %q, which is not among the tools", r.ToolChoice.Name))
	}
	call := &Call{id: id}
	if len(tools) == 1 {
		call.name = tools[0].Function.Name
	}
	messages, e := instructed(r.Field("messages"), describe(tools))
	if e != nil {
		return nil, nil, e
	}
	format, err := json.Marshal(chat.SchemaFormat("call", schemaOf(tools), true))
	if err != nil {
		return nil, nil, chat.Invalid("tools", err.Error())
	}
	return openai.Splice(r,
		openai.Remove("tools"), openai.Remove("tool_choice"), openai.Remove("parallel_tool_calls"),
		openai.Set("messages", messages), openai.Set("response_format", format),
	), call, nil
}

func only(tools []chat.Tool, name string) []chat.Tool {
	for _, t := range tools {
		if t.Function.Name == name {
			return []chat.Tool{t}
		}
	}
	return nil
}

// schemaOf gives the schema of a call. The order of its properties matters:
// the name comes first, so that a stream can tell it before the arguments.
func schemaOf(tools []chat.Tool) json.RawMessage {
	if len(tools) == 1 {
		return parametersOf(tools[0])
	}
	var b bytes.Buffer
	b.WriteString(`{"anyOf":[`)
	for i, t := range tools {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":"object","properties":{"name":{"const":%s},"arguments":%s},"required":["name","arguments"],"additionalProperties":false}`,
			chat.Encode(t.Function.Name), parametersOf(t))
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func parametersOf(t chat.Tool) json.RawMessage {
	p := chat.Given(t.Function.Parameters)
	if len(p) == 0 || string(p) == "{}" {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return p
}

// describe tells the model, whose template does not, what it may call.
func describe(tools []chat.Tool) string {
	var b strings.Builder
	if len(tools) == 1 {
		b.WriteString("Answer with the arguments of a call to this function, as JSON and nothing else:\n")
	} else {
		b.WriteString(`Answer with a call to one of these functions, as JSON {"name": ..., "arguments": ...} and nothing else:` + "\n")
	}
	for _, t := range tools {
		fmt.Fprintf(&b, "%s: %s\nArguments: %s\n", t.Function.Name, t.Function.Description, parametersOf(t))
	}
	return b.String()
}

// instructed adds a text to the system message that messages begin with, or
// such a message before them. The rest of them keeps its bytes.
func instructed(messages []byte, text string) ([]byte, *openai.Error) {
	inner := bytes.TrimSpace(messages)
	var list []json.RawMessage
	if err := json.Unmarshal(inner, &list); err != nil || len(list) == 0 {
		return nil, chat.Invalid("messages", "messages must be a list with at least one message")
	}
	var first struct {
		Role    string  `json:"role"`
		Content *string `json:"content"`
	}
	if json.Unmarshal(list[0], &first) == nil && first.Role == "system" && first.Content != nil {
		list[0] = systemMessage(*first.Content + "\n\n" + text)
	} else {
		list = append([]json.RawMessage{systemMessage(text)}, list...)
	}
	return append(append([]byte{'['}, bytes.Join(rawOf(list), []byte{','})...), ']'), nil
}

func rawOf(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out
}

func systemMessage(text string) json.RawMessage {
	return json.RawMessage(`{"role":"system","content":` + string(chat.Encode(text)) + `}`)
}
