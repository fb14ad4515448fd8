package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Codes of errors that engines word in many ways.
const (
	CodeTooLong     = "context_length_exceeded"
	CodeUnsupported = "unsupported_by_model"
)

// tooLong are parts of what engines say, in small letters, when a prompt, or a
// prompt and its answer, do not fit into their context.
var tooLong = []string{
	"exceeds the available context size",         // llama.cpp
	"context size has been exceeded",             // llama.cpp, in the middle of an answer
	"input is too large to process",              // llama.cpp, embeddings
	"larger than the max context size",           // llama.cpp, embeddings
	"maximum context length",                     // vLLM, SGLang
	"longer than the maximum model length",       // vLLM
	"longer than the model's context length",     // SGLang
	"max_tokens must be at least 1, got -",       // vLLM: nothing is left for the answer
	"exceeds the maximum allowed length",         // SGLang
	"`inputs` must have less than",               // TGI, TEI
	"`inputs` tokens + `max_new_tokens` must be", // TGI
	"should not exceed max_seq_len",              // TensorRT-LLM
	"exceeds the context length",                 // Ollama
	"exceeds maximum context length",             // Ollama
	"exceeds the context window",
	"exceed context window",           // llama-cpp-python
	"greater than the context length", // LM Studio
	"prompt is too long",              // Anthropic
}

// unsupported are parts of what engines say, mostly with a 5xx, of requests
// that the model they serve can never answer.
var unsupported = []string{
	"image input is not supported", "audio input is not supported", // llama.cpp
	"tools param requires --jinja", "this server does not support", // llama.cpp
	"does not support tools", "does not support image", // Ollama
	"is not a multimodal model", "at most 0 image", // vLLM
	"requires --enable-auto-tool-choice", // vLLM
	"does not support completions", "does not support chat", "does not support embeddings",
}

// ReadError reads the error of an engine's answer in any of the forms that
// engines have. Prompts that are too long and requests that the model cannot
// answer get status 400 and a code of their own, whatever the engine said.
// With status 200 only a document that is an error and nothing else is read as
// one. False: it is no error, or none that can be read.
func ReadError(status int, body []byte) (*Error, bool) {
	e := Error{Status: status}
	if !e.read(bytes.TrimSpace(body)) {
		return nil, false
	}
	if e.Status < 400 || e.Status > 599 {
		e.Status = http.StatusBadGateway
	}
	e.classify()
	return &e, true
}

// read takes the fields of an error document.
func (e *Error) read(body []byte) bool {
	var failure, result bool
	for f := fieldsOf(body); f.next(); {
		switch string(f.name) {
		case "error":
			failure = e.detail(f.value) || failure
		case "message": // beside object: "error"
			e.Message = textOr(f.value, e.Message)
		case "detail": // FastAPI
			e.Message = textOr(f.value, string(f.value))
			failure = true
		case "object":
			failure = failure || textOf(f.value) == "error"
		case "error_type": // TGI, TEI
			e.Type = textOf(f.value)
		case "type", "code", "param":
			e.field(string(f.name), f.value)
		case "choices", "data", "output", "results", "content", "embedding":
			result = string(f.value) != "null"
		}
	}
	return failure && !result && e.Message != ""
}

// detail reads the value of "error".
func (e *Error) detail(value []byte) bool {
	switch value[0] {
	case '"':
		e.Message = textOr(value, "")
		return e.Message != ""
	case '{':
		for f := fieldsOf(value); f.next(); {
			e.field(string(f.name), f.value)
		}
		return true
	}
	return false
}

func (e *Error) field(name string, value []byte) {
	switch name {
	case "message":
		e.Message = textOr(value, e.Message)
	case "type":
		if kind := textOf(value); kind != "error" {
			e.Type = kind
		}
	case "param":
		e.Param = textOf(value)
	case "code":
		if n, ok := number(value); ok && n >= 400 && n <= 599 {
			if e.Status < 400 {
				e.Status = int(n)
			}
			return
		}
		e.Code = textOf(value)
	}
}

// textOr decodes a raw JSON string of any length; what is none gives other.
func textOr(raw []byte, other string) string {
	var text string
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return other
	}
	return text
}

func (e *Error) classify() {
	said := strings.ToLower(e.Message)
	switch {
	case e.Code == CodeTooLong, e.Type == "exceed_context_size_error", contains(said, tooLong):
		e.Status, e.Type, e.Code = http.StatusBadRequest, TypeInvalidRequest, CodeTooLong
	case contains(said, unsupported):
		e.Status, e.Type, e.Code = http.StatusBadRequest, TypeInvalidRequest, CodeUnsupported
	case e.Type == "" && e.Status < 500:
		e.Type = TypeInvalidRequest
	case e.Type == "":
		e.Type = TypeServer
	}
}

func contains(said string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(said, part) {
			return true
		}
	}
	return false
}

// maxShown bounds what of an answer that is no JSON goes into a message.
const maxShown = 200

// MendError makes the error of an engine's answer one of the dialect. An error
// body that has the dialect's form already stays as it is, details and all,
// unless its code is made uniform; so does an answer that is no error. ok
// reports that status and body are new.
func (d Dialect) MendError(status int, body []byte, o Origin) (newStatus int, newBody []byte, ok bool) {
	e, read := ReadError(status, body)
	switch {
	case !read && status < 400:
		return status, body, false
	case !read:
		e = &Error{Status: status, Type: TypeServer, Code: "engine_error", Message: unreadable(status, body)}
		if status < 500 {
			e.Type = TypeInvalidRequest
		}
	case e.Status == status && e.Code != CodeTooLong && e.Code != CodeUnsupported && d.hasForm(body):
		return status, body, false
	}
	return d.Status(e), d.EncodeError(e, o), true
}

func unreadable(status int, body []byte) string {
	text := strings.ToValidUTF8(strings.TrimSpace(string(body[:min(len(body), maxShown)])), "")
	if text == "" || strings.HasPrefix(text, "<") {
		return fmt.Sprintf("the engine answered with status %d", status)
	}
	return fmt.Sprintf("the engine answered with status %d: %s", status, text)
}

// hasForm reports that an error body is one of the dialect.
func (d Dialect) hasForm(body []byte) bool {
	failure := member(body, "error")
	if len(failure) == 0 {
		return false
	}
	if d == Ollama {
		return failure[0] == '"'
	}
	if failure[0] != '{' || member(failure, "message") == nil {
		return false
	}
	return d != Messages || textOf(member(body, "type")) == "error"
}
