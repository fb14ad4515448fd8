package chat

import (
	"encoding/json"
	"net/http"

	"llmgw/router/openai"
)

// Invalid is a refusal of a request's field; param empty: of the whole of it.
func Invalid(param, message string) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: "invalid_request", Param: param, Message: message,
	}
}

// NoAnswer is the fault of an engine whose answer cannot be read.
func NoAnswer(message string) *openai.Error {
	return &openai.Error{Status: http.StatusBadGateway, Type: openai.TypeServer, Code: "engine_error", Message: message}
}

// Cut is the fault of a stream that ended before its end mark.
func (r *Reader) Cut() *openai.Error {
	e := &openai.Error{
		Status: http.StatusBadGateway, Type: openai.TypeServer, Code: "engine_failed",
		Message: "the engine ended its answer too early",
	}
	if r.err != nil {
		e.Message = r.err.Error()
	}
	return e
}

// Encode is for values that cannot fail to encode: raw values in them were
// checked where they came in.
func Encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
