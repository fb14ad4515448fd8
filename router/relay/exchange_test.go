package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func readBody(t *testing.T, x *Exchange) string {
	t.Helper()
	var b strings.Builder
	buf := make([]byte, 64)
	for {
		n, err := x.Next(buf, nil)
		b.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatalf("read body: %v", err)
		}
	}
}

func TestExchangeReadsAnswersOfAllFramings(t *testing.T) {
	cases := map[string]struct {
		answer []string
		status int
		body   string
	}{
		"length":         {[]string{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hel", "lo"}, 200, "hello"},
		"chunks":         {[]string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nhel\r\n2\r\nl", "o\r\n0\r\n\r\n"}, 200, "hello"},
		"until the end":  {[]string{"HTTP/1.0 200 OK\r\n\r\nhel", "lo"}, 200, "hello"},
		"interim answer": {[]string{"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"}, 200, "hi"},
		"no body":        {[]string{"HTTP/1.1 204 No Content\r\n\r\n"}, 204, ""},
		"empty body":     {[]string{"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"}, 500, ""},
		"byte by byte":   {strings.Split("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", ""), 200, "hi"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pipe()
			engine(t, theirs, func(_ *http.Request, w io.Writer) { say(w, c.answer...) })
			x, err := Start(t.Context(), ours, call("{}"), quick(), nil)
			if err != nil {
				t.Fatalf("start: %v", err)
			}
			if got := readBody(t, x); got != c.body || x.Status != c.status {
				t.Errorf("status %d, body %q", x.Status, got)
			}
			x.Close()
			if *ours.how != "closed" {
				t.Errorf("connection was %s", *ours.how)
			}
		})
	}
}

func TestExchangeSendsTheRequestUnchanged(t *testing.T) {
	for name, body := range map[string]string{"short": `{"a":1}`, "long": strings.Repeat("x", 3*inlineBody+7)} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pipe()
			seen := make(chan *http.Request, 1)
			engine(t, theirs, func(req *http.Request, w io.Writer) {
				seen <- req
				say(w, "HTTP/1.1 204 No Content\r\n\r\n")
			})
			c := call(body)
			c.Extra = []string{"Authorization", "Bearer k"}
			x, err := Start(t.Context(), ours, c, quick(), nil)
			if err != nil {
				t.Fatalf("start: %v", err)
			}
			readBody(t, x)
			x.Close()
			req := <-seen
			got, _ := io.ReadAll(req.Body)
			if string(got) != body || req.URL.Path != c.Path || req.Host != "engine" || req.Header.Get("Authorization") != "Bearer k" {
				t.Errorf("%d bytes, path %q, host %q, header %v", len(got), req.URL.Path, req.Host, req.Header)
			}
		})
	}
}

func TestHeaderValuesCannotBecomeHeaders(t *testing.T) {
	c := call("{}")
	c.Header = http.Header{"X-A": {"1\r\nX-Evil: 1"}, "X-B\r\nX-Evil": {"1"}, "X-C": {"fine"}}
	c.Extra = []string{"X-D", "2\nX-Evil: 1"}
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(c.message()))))
	if err != nil {
		t.Fatalf("read request: %v", err)
	}
	if len(req.Header["X-Evil"]) != 0 || req.Header.Get("X-C") != "fine" {
		t.Errorf("header is %v", req.Header)
	}
}

func TestBrokenAnswersNameTheirStage(t *testing.T) {
	cases := map[string]struct {
		answer string
		want   Stage
	}{
		"nothing":       {"", StageFirstByte},
		"half a head":   {"HTTP/1.1 200 OK\r\nContent-", StageFirstByte},
		"no HTTP":       {"SSH-2.0-x\r\n\r\n", StageFirstByte},
		"short body":    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", StageAnswer},
		"short chunk":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", StageAnswer},
		"no last chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", StageAnswer},
		"bad chunk":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", StageAnswer},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pipe()
			engine(t, theirs, func(_ *http.Request, w io.Writer) { say(w, c.answer) })
			x, err := Start(t.Context(), ours, call("{}"), quick(), nil)
			for buf := make([]byte, 16); err == nil; {
				_, err = x.Next(buf, nil)
			}
			if x != nil {
				x.Close()
			}
			if stageOf(err) != c.want || errors.Is(err, io.EOF) {
				t.Errorf("error is %v, want stage %q", err, c.want)
			}
			if *ours.how != "reset" {
				t.Errorf("connection was %s", *ours.how)
			}
		})
	}
}

func TestEarlyAnswerToALongBodyIsRead(t *testing.T) {
	ours, theirs := pipe()
	go func() {
		br := bufio.NewReader(theirs)
		_, _ = http.ReadRequest(br) // the head alone
		say(theirs, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		_, _ = io.Copy(io.Discard, theirs)
	}()
	x, err := Start(t.Context(), ours, call(strings.Repeat("x", 8<<20)), quick(), nil)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	if x.Status != 413 {
		t.Errorf("status %d", x.Status)
	}
	x.Close() // must not wait for the body to be taken
	if *ours.how == "" {
		t.Error("connection is open")
	}
}

func TestCancelEndsTheExchangeInEachPhase(t *testing.T) {
	reason := errors.New("enough")
	long := strings.Repeat("x", 4*inlineBody)
	cases := map[string]struct {
		body string
		play func(c io.ReadWriter, cancel func())
	}{
		"sending a short body": {"{}", func(_ io.ReadWriter, cancel func()) { cancel() }},
		"sending a long body": {long, func(c io.ReadWriter, cancel func()) {
			_, _ = http.ReadRequest(bufio.NewReaderSize(c, 16))
			cancel()
		}},
		"before the head": {"{}", func(c io.ReadWriter, cancel func()) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			cancel()
		}},
		"within the head": {"{}", func(c io.ReadWriter, cancel func()) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			say(c, "HTTP/1.1 200 OK\r\nConte")
			cancel()
		}},
		"before the first byte": {"{}", func(c io.ReadWriter, cancel func()) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			say(c, sseHead)
			cancel()
		}},
		"in the answer": {"{}", func(c io.ReadWriter, cancel func()) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			say(c, sseHead, "4\r\nabcd\r\n")
			cancel()
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			ours, theirs := pipe()
			left := make(chan struct{})
			go func() {
				defer close(left)
				c.play(theirs, func() { cancel(reason) })
				// The engine's side sees its connection end.
				_, _ = io.Copy(io.Discard, theirs)
			}()
			x, err := Start(ctx, ours, call(c.body), quick(), nil)
			if err == nil {
				err = Pump(x, &sink{}, pumpOptions()).Err
				x.Close()
			}
			if !errors.Is(err, reason) {
				t.Errorf("error is %v", err)
			}
			<-left
			if *ours.how != "reset" {
				t.Errorf("connection was %s", *ours.how)
			}
		})
	}
}

func TestFirstByteMayTakeMinutesAndIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pipe()
		engine(t, theirs, func(_ *http.Request, w io.Writer) {
			time.Sleep(2 * time.Minute)
			say(w, sseHead)
			time.Sleep(2 * time.Minute)
			say(w, "4\r\nabcd\r\n0\r\n\r\n")
		})
		ticks := 0
		x, err := Start(t.Context(), ours, call("{}"), quick(), func(time.Duration) error { ticks++; return nil })
		if err != nil {
			t.Fatalf("start: %v", err)
		}
		if got := readBody(t, x); got != "abcd" {
			t.Errorf("body %q", got)
		}
		x.Close()
		if ticks < 230 || ticks > 240 {
			t.Errorf("%d ticks in four minutes", ticks)
		}
	})
}

func TestSilenceEndsAnExchange(t *testing.T) {
	cases := map[string]struct {
		says  []string
		after time.Duration
		stage Stage
	}{
		"no head":         {nil, 5 * time.Minute, StageFirstByte},
		"half a head":     {[]string{"HTTP/1.1 200 OK\r\n"}, headGrace, StageFirstByte},
		"no body":         {[]string{sseHead}, 5 * time.Minute, StageAnswer},
		"half an answer":  {[]string{sseHead, "1\r\na\r\n"}, time.Minute, StageAnswer},
		"half of a chunk": {[]string{sseHead, "4\r\nab"}, time.Minute, StageAnswer},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := pipe()
				engine(t, theirs, func(_ *http.Request, w io.Writer) {
					say(w, c.says...)
					<-ours.ended
				})
				began := time.Now()
				x, err := Start(t.Context(), ours, call("{}"), quick(), nil)
				for buf := make([]byte, 16); err == nil; {
					_, err = x.Next(buf, nil)
				}
				if x != nil {
					x.Close()
				}
				took := time.Since(began)
				if stageOf(err) != c.stage || took < c.after/2 || took > c.after+time.Second {
					t.Errorf("%v after %v, want stage %q after %v", err, took, c.stage, c.after)
				}
			})
		})
	}
}

func TestWaitHookEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pipe()
		engine(t, theirs, func(*http.Request, io.Writer) { <-ours.ended })
		reason := errors.New("holder is suspect")
		began := time.Now()
		_, err := Start(t.Context(), ours, call("{}"), quick(), func(waited time.Duration) error {
			if waited >= 3*time.Second {
				return reason
			}
			return nil
		})
		if took := time.Since(began); !errors.Is(err, reason) || took > 4*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestReceiverThatTakesNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, _ := pipe()
		began := time.Now()
		_, err := Start(t.Context(), ours, call("{}"), quick(), nil)
		if took := time.Since(began); stageOf(err) != StageSend || took > 35*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// otherTimeout is the error that mesh streams have for a deadline.
type otherTimeout struct{}

func (otherTimeout) Error() string   { return "i/o deadline reached" }
func (otherTimeout) Timeout() bool   { return true }
func (otherTimeout) Temporary() bool { return true }

type otherConn struct{ pipeConn }

func (c otherConn) Read(p []byte) (int, error) {
	n, err := c.pipeConn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = otherTimeout{}
	}
	return n, err
}

func TestDeadlinesOfMeshStreamsAreWaitedOutToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := pipe()
		engine(t, theirs, func(_ *http.Request, w io.Writer) {
			for _, piece := range []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n", "4\r\nb", "cde\r\n", "0\r\n\r\n"} {
				time.Sleep(20 * time.Second)
				say(w, piece)
			}
		})
		x, err := Start(t.Context(), otherConn{ours}, call("{}"), quick(), nil)
		if err != nil {
			t.Fatalf("start: %v", err)
		}
		if got := readBody(t, x); got != "abcde" {
			t.Errorf("body %q", got)
		}
		x.Close()
	})
}
