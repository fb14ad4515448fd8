package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// inlineBody is sent before the answer is awaited. It is less than any
	// stream's window, so that the write cannot wait for a reader that has
	// refused already and reads no more.
	inlineBody = 64 << 10
	// waitTick is how often the wait hook may change its mind.
	waitTick = time.Second
	// headGrace is how long the rest of an answer's head may take after its
	// first byte.
	headGrace = 30 * time.Second
)

// Wait is asked each second while no byte came back. An error ends the wait.
type Wait func(waited time.Duration) error

// Exchange is one request and its answer over one connection.
type Exchange struct {
	Status int
	Header http.Header
	Length int64 // of the body; -1 unknown

	ctx     context.Context
	conn    Conn
	br      *bufio.Reader
	limits  Limits
	resp    *http.Response
	sent    chan error // nil: sent before the answer was awaited
	unwatch func() bool
	wait    Wait
	flows   bool      // a byte of the body came
	ended   bool      // the body was read to its end
	framed  bool      // the reader is within the body's framing
	armed   time.Time // the read deadline that holds
}

// Start sends call and waits for the head of its answer. It owns conn from
// here on; on error conn is reset already. Errors are ctx's, the wait hook's
// or *BrokenError.
func Start(ctx context.Context, conn Conn, call *Call, limits Limits, wait Wait) (*Exchange, error) {
	x := &Exchange{ctx: ctx, conn: conn, limits: limits, wait: wait}
	x.br = newReader((*source)(x))
	x.unwatch = context.AfterFunc(ctx, func() { _ = conn.Reset() })
	if err := x.start(call); err != nil {
		x.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return x, nil
}

func (x *Exchange) start(call *Call) error {
	sendErr := x.send(call)
	if sendErr != nil {
		// Who refuses early may have answered before it stopped reading.
		_ = x.conn.SetReadDeadline(time.Now().Add(waitTick))
		if x.readHead() != nil {
			return &BrokenError{StageSend, sendErr}
		}
		return nil
	}
	var hook *hookError
	if err := x.await(); errors.As(err, &hook) {
		return hook.err
	} else if err != nil {
		return &BrokenError{StageFirstByte, err}
	}
	_ = x.conn.SetReadDeadline(time.Now().Add(headGrace))
	if err := x.readHead(); err != nil {
		return &BrokenError{StageFirstByte, err}
	}
	return nil
}

// send writes the request; a long one by a goroutine of its own.
func (x *Exchange) send(call *Call) error {
	message := call.message()
	if len(call.Body) <= inlineBody {
		return x.write(append(message, call.Body...))
	}
	if err := x.write(message); err != nil {
		return err
	}
	x.sent = make(chan error, 1)
	go func() { x.sent <- x.writeLong(call.Body) }()
	return nil
}

// writeLong renews the deadline for each piece: a slow link is not a dead one.
func (x *Exchange) writeLong(body []byte) error {
	for len(body) > 0 {
		n := min(len(body), 4*inlineBody)
		if err := x.write(body[:n]); err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

func (x *Exchange) write(p []byte) error {
	if err := x.conn.SetWriteDeadline(time.Now().Add(x.limits.Write)); err != nil {
		return err
	}
	_, err := x.conn.Write(p)
	return err
}

// await returns when the first byte of the answer is there.
func (x *Exchange) await() error {
	err := x.peek(waitTick, x.limits.FirstByte, x.wait)
	if err == nil || errors.Is(err, io.EOF) {
		return nil // reading the head tells what an end here means
	}
	return err
}

// peek waits until a byte can be read, calling tick all the while. io.EOF is
// an end of the connection; errors of tick come back as they are.
func (x *Exchange) peek(every, limit time.Duration, tick Wait) error {
	began := time.Now()
	for now := began; ; now = time.Now() {
		x.deadline(now, min(every, limit))
		_, err := x.br.Peek(1)
		if err == nil {
			return nil
		}
		waited := time.Since(began)
		if !IsTimeout(err) || waited >= limit || time.Until(x.armed) > every/4 {
			return err // one long before its deadline is the connection's own
		}
		if tick == nil {
			continue
		}
		if err := tick(waited); err != nil {
			return &hookError{err}
		}
	}
}

// hookError tells what a hook wants from what a connection does.
type hookError struct{ err error }

func (e *hookError) Error() string { return e.err.Error() }

func (x *Exchange) readHead() error {
	x.armed = time.Time{}
	for {
		resp, err := http.ReadResponse(x.br, nil)
		if err != nil {
			return unexpected(err)
		}
		if resp.StatusCode < http.StatusOK {
			continue // interim answers are for the connection, not for the client
		}
		x.resp = resp
		x.Status, x.Header, x.Length = resp.StatusCode, resp.Header, resp.ContentLength
		return nil
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Next reads what is there of the answer's body, at least one byte. While
// nothing comes, idle is called each KeepAlive; nil is allowed. io.EOF ends a
// whole body; all other errors are ctx's, idle's or *BrokenError.
func (x *Exchange) Next(p []byte, idle Wait) (int, error) {
	if err := x.ready(idle); err != nil {
		return 0, err
	}
	x.framed = true
	n, err := x.resp.Body.Read(p)
	x.framed = false
	x.flows = x.flows || n > 0
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		x.ended = true
		return n, io.EOF
	}
	return n, x.broken(err)
}

// ready waits for bytes below the body's framing, where the wait can be taken
// up again after a deadline. Until the first byte the engine has as long as
// for its head.
func (x *Exchange) ready(idle Wait) error {
	if x.br.Buffered() > 0 || x.resp.ContentLength == 0 || x.ended {
		return nil
	}
	every, limit, tick := waitTick, x.limits.FirstByte, x.wait
	if x.flows {
		every, limit, tick = x.limits.KeepAlive, x.limits.Idle, idle
	}
	err := x.peek(every, limit, tick)
	var hook *hookError
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil // the framing knows what an end here means
	case errors.As(err, &hook):
		return hook.err
	}
	return x.broken(err)
}

// source is what the exchange's buffer reads from. Within the framing of a
// body, which cannot be taken up again after an error, it waits out the idle
// limit by itself.
type source Exchange

func (s *source) Read(p []byte) (int, error) {
	x := (*Exchange)(s)
	n, err := x.conn.Read(p)
	if !x.framed || n > 0 || !IsTimeout(err) {
		return n, err
	}
	x.armed = time.Now().Add(x.limits.Idle)
	_ = x.conn.SetReadDeadline(x.armed)
	return x.conn.Read(p)
}

// deadline arms the read deadline, not for each token but when half of it is
// used up: setting it costs as much as a small write.
func (x *Exchange) deadline(now time.Time, wait time.Duration) {
	if left := x.armed.Sub(now); left > wait/2 && left <= wait {
		return
	}
	x.armed = now.Add(wait)
	_ = x.conn.SetReadDeadline(x.armed)
}

func (x *Exchange) broken(err error) error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	return &BrokenError{StageAnswer, unexpected(err)}
}

// Close frees the connection: in order when the answer was read to its end,
// by Reset otherwise. When it returns, nobody reads the call's body any more.
func (x *Exchange) Close() {
	watched := x.unwatch()
	whole := watched && x.ended && x.allSent()
	if !whole {
		_ = x.conn.Reset()
	}
	if x.sent != nil {
		<-x.sent
		x.sent = nil
	}
	reusable := whole && x.br.Buffered() == 0 && !x.resp.Close
	freeReader(x.br)
	if !whole {
		return
	}
	if k, ok := x.conn.(keeper); ok && reusable {
		k.keep()
		return
	}
	_ = x.conn.Close()
}

// keeper is a connection that can carry a further exchange.
type keeper interface{ keep() }

// allSent reports that the whole request was taken, without waiting.
func (x *Exchange) allSent() bool {
	if x.sent == nil {
		return true
	}
	select {
	case err := <-x.sent:
		x.sent = nil
		return err == nil
	default:
		return false
	}
}
