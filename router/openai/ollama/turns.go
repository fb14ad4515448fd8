package ollama

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"llmgw/router/openai"
	"llmgw/router/openai/chat"
)

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
			return nil, chat.Invalid("images", "images must be base64 of PNG, JPEG, GIF or WebP")
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
