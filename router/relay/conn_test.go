package relay

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"llmgw/router/openai"
)

// pipeConn is one end of a connection in memory: a write returns when the
// other end has read it, so that pieces stay pieces. A reset shows as an error
// at both ends, like that of a mesh stream.
type pipeConn struct {
	net.Conn
	ended chan struct{} // closed by Close or Reset
	how   *string
}

func (c pipeConn) finish(how string) error {
	select {
	case <-c.ended:
	default:
		*c.how = how
		close(c.ended)
	}
	return c.Conn.Close()
}

func (c pipeConn) Close() error      { return c.finish("closed") }
func (c pipeConn) Reset() error      { return c.finish("reset") }
func (c pipeConn) CloseWrite() error { return nil }
func (c pipeConn) Peer() string      { return "peer" }

func pipe() (ours pipeConn, theirs net.Conn) {
	a, b := net.Pipe()
	return pipeConn{Conn: a, ended: make(chan struct{}), how: new(string)}, b
}

// engine is a scripted other side: it reads the request, then runs play.
func engine(t *testing.T, c net.Conn, play func(req *http.Request, w io.Writer)) {
	t.Helper()
	go func() {
		defer func() { _ = c.Close() }()
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return // the test ended the exchange before
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		play(req, c)
	}()
}

func say(w io.Writer, pieces ...string) {
	for _, p := range pieces {
		if _, err := io.WriteString(w, p); err != nil {
			return // the other side left, which the test looks at from there
		}
	}
}

// sink notes what it is given.
type sink struct {
	committed bool
	status    int
	header    http.Header
	writes    []string
	fail      error
}

func (s *sink) Committed() bool { return s.committed }

func (s *sink) Begin(status int, header http.Header, _ int64) error {
	s.committed, s.status, s.header = true, status, header.Clone()
	return s.fail
}

func (s *sink) Write(p []byte) error {
	s.writes = append(s.writes, string(p))
	return s.fail
}

func (s *sink) text() string { return strings.Join(s.writes, "") }

// quick are limits for tests in which no time passes.
func quick() Limits { return DefaultLimits() }

func call(body string) *Call {
	return &Call{Path: "/v1/chat/completions", Host: "engine", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
}

func pumpOptions() Options {
	return Options{
		Dialect: openai.Chat, Now: time.Now,
		Failure: func(error) *openai.Error { return &openai.Error{Status: 502, Message: "broke off"} },
	}
}

const (
	brokenFrame = "data: {\"error\":{\"message\":\"broke off\",\"type\":\"\",\"param\":null,\"code\":null},\"llmgw\":{\"node\":\"\",\"request_id\":\"\"}}\n\n"
	doneFrame   = "data: [DONE]\n\n"
	sseHead     = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)

func stageOf(err error) Stage {
	var broken *BrokenError
	if errors.As(err, &broken) {
		return broken.Stage
	}
	return ""
}
