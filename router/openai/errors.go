package openai

import (
	"net/http"
	"time"
)

// Error types, as OpenAI's clients know them.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeAuthentication = "authentication_error"
	TypePermission     = "permission_error"
	TypeRateLimit      = "rate_limit_error"
	TypeServer         = "server_error"
	TypeUnavailable    = "service_unavailable"
)

// Error is an answer that is not what the client asked for.
type Error struct {
	Status     int
	Type       string
	Code       string
	Param      string // the body field at fault; empty: none
	Message    string
	Hint       string        // what to type or do; empty: nothing to do
	RetryAfter time.Duration // 0: no header; rounded up to whole seconds
	NoRetry    bool          // clients that retry by themselves are told not to
}

func (e *Error) Error() string { return e.Message }

// Origin says who answered which request; it goes into each error object.
type Origin struct {
	Node      string
	RequestID string
}

type errorBody struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
	LLMGW errorDetail `json:"llmgw"`
}

// errorDetail is what our own tools show beside an error.
type errorDetail struct {
	Node      string `json:"node"`
	Hint      string `json:"hint,omitempty"`
	RequestID string `json:"request_id"`
}

func detail(e *Error, o Origin) errorDetail { return errorDetail{o.Node, e.Hint, o.RequestID} }

// Encode gives the JSON error object, without a line end.
func (e *Error) Encode(o Origin) []byte {
	var b errorBody
	b.Error.Message, b.Error.Type = e.Message, e.Type
	b.Error.Param, b.Error.Code = orNull(e.Param), orNull(e.Code)
	b.LLMGW = detail(e, o)
	return encode(b)
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// WriteError answers with e in OpenAI's form.
func WriteError(w http.ResponseWriter, e *Error, o Origin) { Chat.WriteError(w, e, o) }

// Frame gives e as the event that a broken stream ends with.
func (e *Error) Frame(o Origin) []byte { return DataFrame(e.Encode(o)) }

// DataFrame wraps one line of JSON as an event.
func DataFrame(line []byte) []byte {
	frame := make([]byte, 0, len(line)+8)
	frame = append(frame, "data: "...)
	frame = append(frame, line...)
	return append(frame, "\n\n"...)
}
