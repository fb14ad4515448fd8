package openai

import (
	"fmt"
	"net/http"
	"slices"
)

// What a replica may lack, by the names of mesh/catalog's abilities.
const (
	lacksTools    = "tools"
	lacksSchema   = "schema"
	lacksImages   = "images"
	lacksAudio    = "audio"
	lacksLogprobs = "logprobs"
	lacksChoices  = "choices"
)

// Missing names what of a request a replica that lacks some abilities cannot
// do; nil: it can do all. Engines would ignore it, or fail with a 5xx.
func Missing[A ~string](r *Request, lacks []A) *Error {
	has := func(name string) bool { return !slices.Contains(lacks, A(name)) }
	switch {
	case r.Images > 0 && !has(lacksImages):
		return r.cannot(r.promptField(), "read images")
	case r.Audio > 0 && !has(lacksAudio):
		return r.cannot(r.promptField(), "listen to audio")
	case r.N.N > 1 && !has(lacksChoices):
		return r.cannot("n", "give more than one answer to a prompt")
	case r.BestOf.N > 1 && !has(lacksChoices):
		return r.cannot("best_of", "give more than one answer to a prompt")
	case (r.Logprobs || r.TopLogprobs.N > 0) && !has(lacksLogprobs):
		return r.cannot("logprobs", "tell log probabilities")
	case r.Format != "" && !has(lacksSchema):
		return r.cannot("response_format", "keep to a JSON schema")
	case r.Tools && r.ToolChoice.Kind != ToolsNone && !has(lacksTools) && !(r.MustCall() && has(lacksSchema)):
		return r.cannot("tools", "call tools: its chat template knows none")
	}
	return nil
}

// MustCall reports that the answer has to be a tool call, which an engine that
// keeps to schemas can be made to give although its template knows no tools.
func (r *Request) MustCall() bool {
	return r.Tools && (r.ToolChoice.Kind == ToolsRequired || r.ToolChoice.Kind == ToolNamed)
}

func (r *Request) promptField() string {
	if r.find("messages") != nil {
		return "messages"
	}
	return "input"
}

func (r *Request) cannot(param, what string) *Error {
	return &Error{
		Status: http.StatusBadRequest, Type: TypeInvalidRequest, Code: CodeUnsupported, Param: param,
		Message: fmt.Sprintf("the model %q cannot %s", r.Model, what),
	}
}
