package router

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"llmgw/router/keys"
	"llmgw/router/openai"
	"llmgw/router/relay"
)

// All that a client can be told beside an answer stands in this file.

const keyHint = "llmgw keys new NAME (on any box of the mesh)"

func unknownRoute(path string) *openai.Error {
	return &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: "unknown_url",
		Message: fmt.Sprintf("there is no endpoint %s", clip(path)),
		Hint:    "endpoints: /v1/models, /v1/chat/completions, /v1/completions, /v1/embeddings",
	}
}

// notServing needs no Retry-After: only a person ends that state.
func notServing(why error) *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "node_not_serving",
		Message: why.Error(), Hint: "llmgw status on that box; another box of the mesh answers",
	}
}

func wrongMethod(method string, r route) *openai.Error {
	return &openai.Error{
		Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest, Code: "method_not_allowed",
		Message: fmt.Sprintf("%s is not supported here: use %s", clip(method), r.allowed()),
	}
}

func noKey() *openai.Error {
	return &openai.Error{
		Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: "invalid_api_key",
		Message: "no API key was given: send it as \"Authorization: Bearer llmgw-sk-...\"", Hint: keyHint,
	}
}

// badKey tells an unknown key from one that could not be checked.
func badKey(err error) *openai.Error {
	e := &openai.Error{
		Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: "invalid_api_key",
		Message: "the API key is unknown or revoked", Hint: keyHint,
	}
	var ration *keys.RationError
	switch {
	case errors.As(err, &ration):
		return &openai.Error{
			Status: http.StatusTooManyRequests, Type: openai.TypeRateLimit, Code: "too_many_wrong_keys",
			Message: err.Error(), Hint: keyHint, RetryAfter: ration.RetryAfter,
		}
	case errors.Is(err, keys.ErrExpired):
		e.Message, e.Code = "the API key has expired", "expired_api_key"
	case errors.Is(err, keys.ErrMalformed):
		e.Message = "the API key is malformed: keys of this mesh start with " + keys.Prefix + " and have 77 characters"
	case !errors.Is(err, keys.ErrUnknown):
		return &openai.Error{
			Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "keys_unavailable",
			Message: "API keys cannot be checked now", RetryAfter: time.Second,
		}
	}
	return e
}

func noModelRight(view ModelView) *openai.Error {
	return &openai.Error{
		Status: http.StatusForbidden, Type: openai.TypePermission, Code: "model_not_allowed", Param: "model",
		Message: fmt.Sprintf("this API key may not use the model %q", view.Model.Name),
		Hint:    "GET /v1/models lists those that it may use",
	}
}

func noNodeRight(view ModelView) *openai.Error {
	return &openai.Error{
		Status: http.StatusForbidden, Type: openai.TypePermission, Code: "node_not_allowed", Param: "model",
		Message: fmt.Sprintf("no node that this API key may use has the model %q ready", view.Model.Name),
		Hint:    "llmgw keys ls shows which labels a node must have for the key",
	}
}

func noScope(scope string) *openai.Error {
	return &openai.Error{
		Status: http.StatusForbidden, Type: openai.TypePermission, Code: "insufficient_scope",
		Message: fmt.Sprintf("this API key lacks the scope %q", scope),
		Hint:    "llmgw keys new NAME --scope " + scope,
	}
}

func tooLarge(limit int64) *openai.Error {
	return &openai.Error{
		Status: http.StatusRequestEntityTooLarge, Type: openai.TypeInvalidRequest, Code: "request_too_large",
		Message: fmt.Sprintf("the body is larger than %d bytes", limit),
	}
}

func noBudget() *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "overloaded",
		Message: "this box holds as many request bodies as it may; try again", RetryAfter: time.Second,
	}
}

func slowBody() *openai.Error {
	return &openai.Error{
		Status: http.StatusRequestTimeout, Type: openai.TypeInvalidRequest, Code: "request_timeout",
		Message: "the body did not arrive in time",
	}
}

func badEncoding(err error) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: "invalid_encoding",
		Message: fmt.Sprintf("the body cannot be decompressed: %v", err),
	}
}

func cutBody(err error) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: "incomplete_body",
		Message: fmt.Sprintf("the body broke off: %v", err),
	}
}

func wrongMedia(what string) *openai.Error {
	return &openai.Error{
		Status: http.StatusUnsupportedMediaType, Type: openai.TypeInvalidRequest, Code: "unsupported_media_type",
		Message: clip(what) + " is not supported here: send JSON, plain, with gzip or with zstd",
	}
}

func wantsForm(kind string) *openai.Error {
	e := wrongMedia("Content-Type " + kind)
	e.Message = fmt.Sprintf("Content-Type %q is not supported here: send a form, multipart/form-data", clip(kind))
	return e
}

// doubledModel refuses what one reader may take for one model and another for
// another: rights and prices depend on it.
func doubledModel() *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: "doubled_model", Param: "model",
		Message: `the body names "model" more than once`,
	}
}

func noBackground() *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeUnsupported, Param: "background",
		Message: "background responses are not supported: leave out background, and stream the answer if it takes long",
	}
}

// badForm says where a form is broken.
func badForm(err error) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: "invalid_multipart", Message: err.Error(),
	}
}

// badJSON says where a body is broken, or which field is wrong.
func badJSON(err error) *openai.Error {
	e := &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: "invalid_json", Message: err.Error(),
	}
	var field *openai.FieldError
	if errors.As(err, &field) {
		e.Code, e.Param = "invalid_type", field.Param
	}
	return e
}

func noModel() *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: "missing_model", Param: "model",
		Message: `the body names no "model"`, Hint: "GET /v1/models lists what there is",
	}
}

// maxNamed bounds how many names an error lists.
const maxNamed = 20

func unknownModel(name string, there []string) *openai.Error {
	e := &openai.Error{
		Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("the model %q does not exist; there is: %s", clip(name), shortList(there)),
		Hint:    "llmgw models",
	}
	if len(there) == 0 {
		e.Message = fmt.Sprintf("the model %q does not exist: this mesh has no models yet", clip(name))
		e.Hint = pullHint
	}
	return e
}

const pullHint = "llmgw pull SOURCE --as NAME, then llmgw load NAME"

func shortList(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// loadRetry is how long a client may wait before it asks again for a model
// that somebody must load.
const loadRetry = 10 * time.Second

func notLoaded(view ModelView) *openai.Error {
	e := &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "model_not_loaded", Param: "model",
		Message: fmt.Sprintf("the model %q is not loaded: type llmgw load %[1]s", view.Model.Name),
		Hint:    "llmgw load " + view.Model.Name, RetryAfter: loadRetry,
	}
	if view.Problem != "" {
		e.Message = fmt.Sprintf("the model %q is not ready: %s", view.Model.Name, view.Problem)
		e.Hint = "llmgw ps"
	}
	return e
}

// stillLoading is the end of a wait that was as long as it may be.
func stillLoading(view ModelView, stage string) *openai.Error {
	e := notLoaded(view)
	e.Message = fmt.Sprintf("the model %q is still not ready (%s)", view.Model.Name, stage)
	e.Hint = "llmgw ps"
	return e
}

func stopped(view ModelView) *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "model_stopped", Param: "model",
		Message: fmt.Sprintf("the model %q is stopped", view.Model.Name),
		Hint:    "llmgw start " + view.Model.Name, RetryAfter: loadRetry,
	}
}

// unserved is the end of a request that no replica took. What a holder said
// stays inside the mesh.
func unserved(view ModelView, last error) *openai.Error {
	var refusal *relay.Refusal
	if errors.As(last, &refusal) && refusal.Kind != relay.RefusedEngine {
		return refused(view, refusal)
	}
	if lost := (*holderError)(nil); errors.As(last, &lost) {
		return holderLost(view.Model.Name, lost.replica)
	}
	if relay.IsTimeout(last) {
		return &openai.Error{
			Status: http.StatusGatewayTimeout, Type: openai.TypeServer, Code: "engine_timeout",
			Message: fmt.Sprintf("the model %q did not answer in time", view.Model.Name),
		}
	}
	return &openai.Error{
		Status: http.StatusBadGateway, Type: openai.TypeServer, Code: "engine_failed",
		Message: fmt.Sprintf("the engine of %q failed before it answered", view.Model.Name),
		Hint:    "llmgw ps", RetryAfter: time.Second,
	}
}

func refused(view ModelView, refusal *relay.Refusal) *openai.Error {
	if refusal.Kind == relay.RefusedBusy {
		return &openai.Error{
			Status: http.StatusTooManyRequests, Type: openai.TypeRateLimit, Code: "rate_limit_exceeded",
			Message:    fmt.Sprintf("all replicas of %q are busy: try again in 1 s", view.Model.Name),
			RetryAfter: time.Second,
		}
	}
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "model_moving", Param: "model",
		Message: fmt.Sprintf("the model %q changes its place: try again", view.Model.Name), RetryAfter: time.Second,
	}
}

// holderError is a relay to another box that broke off without a word of it:
// the box is gone or cut off, and its engine may well be alive.
type holderError struct {
	replica Replica
	err     error
}

func (e *holderError) Error() string { return fmt.Sprintf("relay to %s: %v", e.replica.Node, e.err) }
func (e *holderError) Unwrap() error { return e.err }

func holderLost(model string, replica Replica) *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "node_unreachable",
		Message: fmt.Sprintf("box %s, which serves %q, does not answer: try again", replica.Node, model),
		Hint:    "llmgw nodes", RetryAfter: time.Second,
	}
}

// brokeOff is the frame that a stream ends with when its engine died.
func brokeOff(model string) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadGateway, Type: openai.TypeServer, Code: "engine_failed",
		Message: fmt.Sprintf("the engine of %q failed before the answer was whole", model),
		Hint:    "llmgw ps",
	}
}

// clip bounds what of a client's text is repeated to it.
func clip(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
