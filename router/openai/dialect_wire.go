package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
)

type messagesDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type messagesError struct {
	Type      string         `json:"type"`
	Error     messagesDetail `json:"error"`
	RequestID string         `json:"request_id"`
	LLMGW     errorDetail    `json:"llmgw"`
}

type ollamaError struct {
	Error string `json:"error"`
}

// messagesType gives the error types that Anthropic's clients know.
func messagesType(e *Error) string {
	switch e.Status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return "timeout_error"
	case 529:
		return "overloaded_error"
	}
	switch {
	case e.Status == http.StatusServiceUnavailable && e.Code == "overloaded":
		return "overloaded_error"
	case e.Status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}

// ResponseState follows what a Responses stream says of itself, so that it can
// be ended in its own terms. The zero value is ready.
type ResponseState struct {
	ID       string // of the response; empty: not told yet
	Sequence int    // of the next event
}

// Feed takes the bytes of one read. What a cut divides is missed; nearly every
// event tells it again.
func (s *ResponseState) Feed(p []byte) {
	const number, id = `"sequence_number":`, `"id":"resp`
	if at := bytes.LastIndex(p, []byte(number)); at >= 0 {
		rest := bytes.TrimLeft(p[at+len(number):], " ")
		n := 0
		for len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9' && n < 1<<40 {
			n = 10*n + int(rest[0]-'0')
			rest = rest[1:]
		}
		s.Sequence = max(s.Sequence, n+1)
	}
	if s.ID != "" {
		return
	}
	if _, rest, ok := bytes.Cut(p, []byte(id)); ok {
		if tail, _, ok := bytes.Cut(rest[:min(len(rest), 128)], []byte(`"`)); ok {
			s.ID = "resp" + string(tail)
		}
	}
}

type failedEvent struct {
	Type     string         `json:"type"`
	Sequence int            `json:"sequence_number"`
	Response failedDocument `json:"response"`
}

// failedDocument has what SDKs require of a response.
type failedDocument struct {
	ID        string          `json:"id"`
	Object    string          `json:"object"`
	CreatedAt int64           `json:"created_at"`
	Status    string          `json:"status"`
	Error     failedDetail    `json:"error"`
	Details   json.RawMessage `json:"incomplete_details"`
	Model     string          `json:"model"`
	Output    []struct{}      `json:"output"`
	Parallel  bool            `json:"parallel_tool_calls"`
	Choice    string          `json:"tool_choice"`
	Tools     []struct{}      `json:"tools"`
	Usage     json.RawMessage `json:"usage"`
	LLMGW     errorDetail     `json:"llmgw"`
}

type failedDetail struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func failedResponse(e *Error, o Origin, seen *ResponseState) failedEvent {
	if seen == nil {
		seen = &ResponseState{}
	}
	id := seen.ID
	if id == "" {
		id = "resp_" + o.RequestID
	}
	code := e.Code
	if code == "" {
		code = "server_error"
	}
	return failedEvent{Type: "response.failed", Sequence: seen.Sequence, Response: failedDocument{
		ID: id, Object: "response", Status: "failed", Error: failedDetail{code, e.Message},
		Output: []struct{}{}, Tools: []struct{}{}, Parallel: true, Choice: "auto", LLMGW: detail(e, o),
	}}
}

// encode is for values that cannot fail to encode.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
