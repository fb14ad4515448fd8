package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// API speaks OpenAI's wire format from one box to another's public port, raw:
// what a client library hides is what the tests look at.
type API struct {
	HTTP *http.Client
	Base string // http://host:port
	Key  string // "": no Authorization header
	// Header is sent with each request.
	Header http.Header
}

// API asks box of from inside box b.
func (b *Box) API(of *Box, key string) *API {
	return &API{HTTP: b.Client(), Base: of.URL(), Key: key}
}

// Answer is a response read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

func (a Answer) String() string { return fmt.Sprintf("%d %s", a.Status, a.Body) }

// Error is the OpenAI error object of an answer, with our extension.
type Error struct {
	Error struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    string `json:"code"`
	} `json:"error"`
	LLMGW struct {
		Node      string `json:"node"`
		Hint      string `json:"hint"`
		RequestID string `json:"request_id"`
	} `json:"llmgw"`
}

// Failure reads the answer as an error; zero when it is none.
func (a Answer) Failure() Error {
	var e Error
	_ = json.Unmarshal([]byte(a.Body), &e)
	return e
}

// unknownKey says whether the key was refused: as one that is none, or as one of
// too many such from this address.
func (a Answer) unknownKey() bool {
	return a.Status == http.StatusUnauthorized || a.Failure().Error.Code == "too_many_wrong_keys"
}

// Do sends a request; a nil body sends none, a string goes as it is, anything
// else as JSON. The caller closes the response's body.
func (a *API) Do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var reader io.Reader
	switch v := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(v)
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.Base+path, reader)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.Key != "" {
		req.Header.Set("Authorization", "Bearer "+a.Key)
	}
	for name, values := range a.Header {
		req.Header[name] = values
	}
	resp, err := a.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return resp, nil
}

// Ask sends a request and reads the whole answer, whatever its status.
func (a *API) Ask(ctx context.Context, method, path string, body any) (Answer, error) {
	resp, err := a.Do(ctx, method, path, body)
	if err != nil {
		return Answer{}, err
	}
	answer, err := readAnswer(resp)
	if err != nil {
		return Answer{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return answer, nil
}

// readAnswer reads a response to its end.
func readAnswer(resp *http.Response) (Answer, error) {
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("read answer: %w", err)
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(raw)}, nil
}

// Chat is a chat completion request with one user message.
func Chat(model, text string, stream bool, more map[string]any) map[string]any {
	body := map[string]any{
		"model": model, "stream": stream,
		"messages": []map[string]string{{"role": "user", "content": text}},
	}
	for k, v := range more {
		body[k] = v
	}
	return body
}

// Stream is an open answer of server-sent events.
type Stream struct {
	resp *http.Response
	read *bufio.Reader
}

// Stream sends a request and returns once the answer's headers are here. A
// status other than 200 is an error that carries the body.
func (a *API) Stream(ctx context.Context, path string, body any) (*Stream, error) {
	resp, err := a.Do(ctx, http.MethodPost, path, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		answer, _ := readAnswer(resp)
		return nil, fmt.Errorf("POST %s: %s: %s", path, resp.Status, answer.Body)
	}
	return newStream(resp), nil
}

func newStream(resp *http.Response) *Stream {
	return &Stream{resp: resp, read: bufio.NewReader(resp.Body)}
}

// Next returns the data of the next event. io.EOF is the end of the body, which
// a whole stream reaches only after "[DONE]".
func (s *Stream) Next() (string, error) {
	var data []string
	for {
		line, err := s.read.ReadString('\n')
		if err != nil {
			return "", err
		}
		line = strings.TrimRight(line, "\r\n")
		if rest, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(data, strings.TrimPrefix(rest, " "))
		}
		if line == "" && len(data) > 0 {
			return strings.Join(data, "\n"), nil
		}
	}
}

// Close leaves the stream as a client does that goes away: the connection is
// closed, not reused.
func (s *Stream) Close() { _ = s.resp.Body.Close() }

// Tale is what a stream told until its end.
type Tale struct {
	Chunks  int // events with content
	Text    string
	Finish  string
	Usage   int     // completion tokens, when told
	Failure []Error // error frames
	Done    bool    // [DONE] came, as the last event
}

// Rest reads the stream to its end. The error is that of the transport; a tale
// without Done and without error was cut off.
func (s *Stream) Rest() (Tale, error) {
	var t Tale
	for {
		data, err := s.Next()
		if err == io.EOF {
			return t, nil
		}
		if err != nil {
			return t, fmt.Errorf("read stream: %w", err)
		}
		if t.Done {
			return t, fmt.Errorf("event after [DONE]: %s", data)
		}
		if err := t.add(data); err != nil {
			return t, err
		}
	}
}

func (t *Tale) add(data string) error {
	if data == "[DONE]" {
		t.Done = true
		return nil
	}
	var chunk struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Text         string                   `json:"text"`
			Delta        struct{ Content string } `json:"delta"`
			FinishReason string                   `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal([]byte(data), &chunk); err != nil {
		return fmt.Errorf("event %q is no JSON: %w", data, err)
	}
	if len(chunk.Error) > 0 && string(chunk.Error) != "null" {
		t.Failure = append(t.Failure, Answer{Body: data}.Failure())
	}
	if chunk.Usage.CompletionTokens > 0 {
		t.Usage = chunk.Usage.CompletionTokens
	}
	for _, c := range chunk.Choices {
		if c.Delta.Content+c.Text != "" {
			t.Chunks++
			t.Text += c.Delta.Content + c.Text
		}
		if c.FinishReason != "" {
			t.Finish = c.FinishReason
		}
	}
	return nil
}
