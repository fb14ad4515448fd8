package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// streamLine is one line of a progress stream: a step, or the end with either
// a result or an error.
type streamLine struct {
	Phase  string          `json:"phase"`
	Done   int64           `json:"done"`
	Total  *int64          `json:"total"` // null while unknown
	Result json.RawMessage `json:"result,omitempty"`
	Error  *errorFields    `json:"error,omitempty"`
	LLMGW  errorOrigin     `json:"llmgw"`
}

// follow posts a request whose answer is a progress stream.
func follow[T any](ctx context.Context, c *Client, path string, body any, progress func(Progress)) (T, error) {
	var out T
	resp, err := c.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	result, err := readStream(resp.Body, progress)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return out, err
	}
	if err := json.Unmarshal(result, &out); err != nil {
		return out, fmt.Errorf("read the daemon's answer: %w", err)
	}
	return out, nil
}

// readStream reads steps until the end. A stream that ends without result or
// error was cut: the operation's fate is unknown, and that is said.
func readStream(r io.Reader, progress func(Progress)) (json.RawMessage, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // a result holds one model or engine
	for lines.Scan() {
		var l streamLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("read progress: %w", err)
		}
		switch {
		case l.Error != nil:
			return nil, errorBody{Error: *l.Error, LLMGW: l.LLMGW}.apiError(0)
		case l.Result != nil:
			return l.Result, nil
		case progress != nil:
			progress(l.step())
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read progress: %w", err)
	}
	return nil, errors.New("read progress: the daemon closed the stream before the end; it may have stopped")
}

func (l streamLine) step() Progress {
	p := Progress{Phase: l.Phase, Done: l.Done}
	if l.Total != nil {
		p.Total = *l.Total
	}
	return p
}
