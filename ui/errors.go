package ui

import (
	"context"
	"errors"
	"net/http"
	"syscall"
)

// Kind sorts the failures of admin operations; it decides the HTTP status.
type Kind int

// Kinds of failure. The zero Kind is a fault of ours.
const (
	Internal     Kind = iota
	BadInput          // 400: the request cannot be meant
	Unauthorized      // 401: no session, or a link that is used up
	Forbidden         // 403: known, and not allowed
	NotFound          // 404
	Conflict          // 409: not in this state
	Unreachable       // 502: another box or a package client did not answer
	Unavailable       // 503: try again later
	NoSpace           // 507: disk or memory
)

// answer is what a Kind looks like to a client.
type answer struct {
	status    int
	kind      string // error.type
	otherwise string // error.code when the error brings none
}

// answers maps every Kind to its HTTP answer; nothing else in the admin API
// chooses a status.
var answers = map[Kind]answer{
	Internal:     {http.StatusInternalServerError, "server_error", "internal"},
	BadInput:     {http.StatusBadRequest, "invalid_request_error", "bad_input"},
	Unauthorized: {http.StatusUnauthorized, "authentication_error", "no_session"},
	Forbidden:    {http.StatusForbidden, "permission_error", "forbidden"},
	NotFound:     {http.StatusNotFound, "invalid_request_error", "not_found"},
	Conflict:     {http.StatusConflict, "conflict_error", "conflict"},
	Unreachable:  {http.StatusBadGateway, "server_error", "unreachable"},
	Unavailable:  {http.StatusServiceUnavailable, "server_error", "unavailable"},
	NoSpace:      {http.StatusInsufficientStorage, "server_error", "no_space"},
}

// Error is a failure that a Backend explains: what failed, where, why and what
// to do.
type Error struct {
	Kind Kind
	// Code is a stable word for programs, such as "token_expired"; empty takes
	// the Kind's own.
	Code    string
	Message string // what failed, where and why; empty: the text of Err
	Hint    string // what to do: one command or one sentence
	Err     error  // cause, may be nil
}

func (e *Error) Error() string {
	if e.Message == "" && e.Err != nil {
		return e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// APIError is a refusal as it travels: what a Client returns for every answer
// that is not a success.
type APIError struct {
	Status    int // HTTP status; 0 when it came at the end of a progress stream
	Message   string
	Type      string
	Code      string
	Hint      string
	Node      string // name of the node that answered
	RequestID string
}

func (e *APIError) Error() string { return e.Message }

// errorBody is the JSON of an APIError, in the shape that OpenAI clients read.
type errorBody struct {
	Error errorFields `json:"error"`
	LLMGW errorOrigin `json:"llmgw"`
}

type errorFields struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    string `json:"code"`
}

type errorOrigin struct {
	Node      string `json:"node"`
	Hint      string `json:"hint"`
	RequestID string `json:"request_id"`
}

func (e *APIError) body() errorBody {
	return errorBody{
		Error: errorFields{Message: e.Message, Type: e.Type, Code: e.Code},
		LLMGW: errorOrigin{Node: e.Node, Hint: e.Hint, RequestID: e.RequestID},
	}
}

func (b errorBody) apiError(status int) *APIError {
	return &APIError{
		Status: status, Message: b.Error.Message, Type: b.Error.Type, Code: b.Error.Code,
		Hint: b.LLMGW.Hint, Node: b.LLMGW.Node, RequestID: b.LLMGW.RequestID,
	}
}

// toAPIError turns what a handler returned into what the client gets. Node and
// RequestID are filled where the error has none of its own: an error that came
// from another box keeps that box's name.
func toAPIError(err error, node, requestID string) *APIError {
	var out APIError
	if api := (*APIError)(nil); errors.As(err, &api) && api.Status >= 400 {
		out = *api
	} else {
		out = explain(err)
	}
	if out.Node == "" {
		out.Node = node
	}
	if out.RequestID == "" {
		out.RequestID = requestID
	}
	return &out
}

func explain(err error) APIError {
	e := (*Error)(nil)
	if !errors.As(err, &e) {
		e = unexplained(err)
	}
	a, ok := answers[e.Kind]
	if !ok {
		a = answers[Internal]
	}
	out := APIError{Status: a.status, Type: a.kind, Code: e.Code, Message: e.Error(), Hint: e.Hint}
	if out.Code == "" {
		out.Code = a.otherwise
	}
	return out
}

// unexplained sorts errors that brought no Kind. An admin is shown the cause
// verbatim: these routes are not open to strangers.
func unexplained(err error) *Error {
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge):
		return &Error{Kind: BadInput, Code: "body_too_large", Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Kind: Unavailable, Code: "cancelled", Err: err}
	case errors.Is(err, syscall.ENOSPC):
		return &Error{Kind: NoSpace, Err: err, Hint: "free some space on this box's disk, or ask another box of the mesh"}
	default:
		return &Error{Kind: Internal, Err: err, Hint: "see the daemon's log for this request ID"}
	}
}
