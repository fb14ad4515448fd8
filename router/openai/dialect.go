package openai

import (
	"net/http"
	"strconv"
	"time"
)

// Dialect is the form that a route's errors and streams have.
type Dialect uint8

// Dialects.
const (
	Chat      Dialect = iota // chat and completions: streams end with [DONE]
	Plain                    // the other routes of OpenAI's: streams just end
	Responses                // streams end with response.completed and the like
	Messages                 // Anthropic's: streams end with message_stop
	Ollama                   // streams are lines of JSON
)

// Terminator is what ends a stream after its last event; empty: nothing does.
func (d Dialect) Terminator() string {
	if d == Chat {
		return DoneFrame
	}
	return ""
}

// ContentType of a stream.
func (d Dialect) ContentType() string {
	if d == Ollama {
		return "application/x-ndjson"
	}
	return "text/event-stream"
}

// KeepAlive is what a silent stream may be kept open with between two events.
// Messages have an event for it, which resets clients' timers too. It is empty
// for Ollama, whose clients take each line for a piece of the answer.
func (d Dialect) KeepAlive() string {
	switch d {
	case Messages:
		return "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	case Ollama:
		return ""
	}
	return KeepAlive
}

// Comment is a keep-alive that says in words what is waited for; text must be
// one line.
func (d Dialect) Comment(text string) string {
	switch d {
	case Messages, Ollama:
		return d.KeepAlive()
	}
	return ": " + text + "\n\n"
}

// JSONKeepAlive may be sent before and between the tokens of a JSON document
// that is not ready.
const JSONKeepAlive = " "

// EncodeError gives the body that e has in this dialect, without a line end.
func (d Dialect) EncodeError(e *Error, o Origin) []byte {
	switch d {
	case Messages:
		return encode(messagesError{
			Type: "error", Error: messagesDetail{messagesType(e), e.Message}, RequestID: o.RequestID, LLMGW: detail(e, o),
		})
	case Ollama:
		return encode(ollamaError{e.Message})
	}
	return e.Encode(o)
}

// StreamError gives the bytes that end a stream at a boundary of its events so
// that the client sees e and an end. seen is what a Responses stream said of
// itself so far; nil: nothing came of it.
func (d Dialect) StreamError(e *Error, o Origin, seen *ResponseState) []byte {
	switch d {
	case Chat:
		return append(e.Frame(o), DoneFrame...)
	case Responses:
		return EventFrame("response.failed", encode(failedResponse(e, o, seen)))
	case Messages:
		return EventFrame("error", d.EncodeError(e, o))
	case Ollama:
		return append(d.EncodeError(e, o), '\n')
	}
	return e.Frame(o)
}

// Status is the HTTP status of e in this dialect.
func (d Dialect) Status(e *Error) int {
	if d == Messages && messagesType(e) == "overloaded_error" {
		return 529
	}
	return e.Status
}

// WriteError answers with e. Nothing may have been written to w before.
func (d Dialect) WriteError(w http.ResponseWriter, e *Error, o Origin) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if e.RetryAfter > 0 {
		seconds := (e.RetryAfter + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	if e.NoRetry {
		h.Set("X-Should-Retry", "false")
	}
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="llmgw"`)
	}
	body := append(d.EncodeError(e, o), '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(d.Status(e))
	// A client that left before its error was written needs no second one.
	_, _ = w.Write(body)
}

// EventFrame makes a named event of one line of JSON.
func EventFrame(name string, line []byte) []byte {
	frame := make([]byte, 0, len(name)+len(line)+20)
	frame = append(append(frame, "event: "...), name...)
	frame = append(append(frame, "\ndata: "...), line...)
	return append(frame, "\n\n"...)
}
