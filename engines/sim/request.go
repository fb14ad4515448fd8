package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
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

// promptBytes is what the model would read.
func (q request) promptBytes() []byte {
	text := q.Prompt
	for _, m := range q.Messages {
		text = append(text, m.Content...)
	}
	return text
}

// plan says how long an answer is and why it ends there.
type plan struct {
	text           []byte // the prompt
	prompt, tokens int
	cached         int // of prompt
	finish         string
}

// first is the time until the first token: what is not cached has to be computed.
func (p plan) first(params Params) time.Duration {
	d := params.first()
	if params.PrefillTPS > 0 {
		d += time.Duration(p.prompt-p.cached) * time.Second / time.Duration(params.PrefillTPS)
	}
	return d
}

// contextError is a prompt that does not fit.
type contextError struct{ prompt, context int }

func (e contextError) Error() string {
	return fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it", e.prompt, e.context)
}

// plan decides the answer's length: what the model file says, what the request
// allows, and what the context leaves.
func (s *Server) plan(q request) (plan, error) {
	p := plan{text: q.promptBytes(), tokens: s.cfg.Params.Tokens, finish: "stop"}
	p.prompt = countTokens(len(p.text))
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
