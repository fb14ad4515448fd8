package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// request is what the simulated engine reads of a generation request.
type request struct {
	Messages      []message       `json:"messages"`
	Prompt        json.RawMessage `json:"prompt"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           *int `json:"max_tokens"`
	MaxCompletionTokens *int `json:"max_completion_tokens"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// readJSON reads a body or answers why it cannot. It reads to the end: only then
// does the server notice that a client leaves.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyCap))
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err == nil {
		return true
	}
	status := http.StatusBadRequest
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	fail(w, status, "invalid_request_error", "parse error: "+err.Error())
	return false
}

// bytesPerToken stands in for a tokeniser.
const bytesPerToken = 4

func countTokens(sizeBytes int) int { return (sizeBytes + bytesPerToken - 1) / bytesPerToken }

// promptBytes is the size of what the model would read.
func (q request) promptBytes() int {
	n := len(q.Prompt)
	for _, m := range q.Messages {
		n += len(m.Content)
	}
	return n
}

// plan says how long an answer is and why it ends there.
type plan struct {
	prompt, tokens int
	finish         string
}

// contextError is a prompt that does not fit.
type contextError struct{ prompt, context int }

func (e contextError) Error() string {
	return fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it", e.prompt, e.context)
}

// plan decides the answer's length: what the model file says, what the request
// allows, and what the context leaves.
func (s *Server) plan(q request) (plan, error) {
	p := plan{prompt: countTokens(q.promptBytes()), tokens: s.cfg.Params.Tokens, finish: "stop"}
	for _, limit := range []*int{q.MaxTokens, q.MaxCompletionTokens} {
		if limit != nil && *limit >= 0 && *limit < p.tokens {
			p.tokens, p.finish = *limit, "length"
		}
	}
	if c := s.cfg.Context; c > 0 {
		if p.prompt >= c {
			return p, contextError{p.prompt, c}
		}
		if left := c - p.prompt; left < p.tokens {
			p.tokens, p.finish = left, "length"
		}
	}
	return p, nil
}
