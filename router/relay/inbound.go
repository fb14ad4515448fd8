package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	// headBytes bounds a request's head; no client's may be that long.
	headBytes = 1 << 20
	// headTime is how long a head may take: it comes in one piece.
	headTime = 30 * time.Second
	// lingerTime is how long a refused sender may go on sending.
	lingerTime = 5 * time.Second
)

// Inbound is a request that another node sent us.
type Inbound struct {
	Hop    Hop
	Path   string
	Method string
	Header http.Header // cleaned
	Length int64
	Peer   string

	stream Stream
	br     *bufio.Reader
	limit  *io.LimitedReader
	req    *http.Request
	watch  chan struct{}
	began  bool
	chunks bool
	armed  time.Time
	write  time.Duration
}

// Accept reads the head of a request from s. On error s is reset.
func Accept(s Stream, limits Limits) (*Inbound, error) {
	in := &Inbound{stream: s, Peer: s.Peer(), write: limits.Write}
	in.limit = &io.LimitedReader{R: s, N: headBytes}
	in.br = newReader(in.limit)
	if err := in.readHead(); err != nil {
		in.Abort()
		return nil, fmt.Errorf("accept relay from %s: %w", in.Peer, err)
	}
	return in, nil
}

func (in *Inbound) readHead() error {
	if err := in.stream.SetReadDeadline(time.Now().Add(headTime)); err != nil {
		return err
	}
	req, err := http.ReadRequest(in.br)
	if err != nil {
		return err
	}
	in.req, in.Method, in.Path, in.Length = req, req.Method, req.URL.Path, req.ContentLength
	hop, err := readHop(req.Header)
	if err != nil {
		return err
	}
	if in.Length < 0 {
		return errors.New("the body has no length")
	}
	in.Hop, in.Header = hop, CleanRequest(req.Header)
	return nil
}

// Body reads the request's body; each read renews the idle limit.
func (in *Inbound) Body(idle time.Duration) io.Reader {
	in.limit.N = in.Length
	return &idleReader{in: in, idle: idle}
}

type idleReader struct {
	in   *Inbound
	idle time.Duration
}

func (r *idleReader) Read(p []byte) (int, error) {
	if err := r.in.stream.SetReadDeadline(time.Now().Add(r.idle)); err != nil {
		return 0, err
	}
	return r.in.req.Body.Read(p)
}

// Watch ends the returned context when the sender goes away. The body must
// have been read: a request is all that a sender sends before the answer.
func (in *Inbound) Watch(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	// The past deadline of the body must not end the watch.
	_ = in.stream.SetReadDeadline(time.Time{})
	in.watch = make(chan struct{})
	go func() {
		defer close(in.watch)
		var one [1]byte
		// Whatever comes here, an end, a reset or a stray byte, the other side
		// no longer keeps to the exchange.
		_, _ = in.stream.Read(one[:])
		cancel(ErrClientGone)
	}()
	return ctx, cancel
}

// Begin sends the head of the answer.
func (in *Inbound) Begin(status int, header http.Header, length int64) error {
	in.began = true
	in.chunks = length < 0
	b := make([]byte, 0, 512)
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	b = append(b, "\r\nConnection: close\r\n"...)
	if in.chunks {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	} else {
		b = appendField(b, "Content-Length", strconv.FormatInt(length, 10))
	}
	for name, values := range header {
		for _, v := range values {
			b = appendField(b, name, v)
		}
	}
	return in.send(append(b, "\r\n"...))
}

// Write sends bytes of the answer, in one piece with their framing.
func (in *Inbound) Write(p []byte) error {
	if !in.chunks {
		return in.send(p)
	}
	if len(p) == 0 {
		return nil // an empty chunk would end the body
	}
	buf := copies.Get().(*[]byte)
	defer copies.Put(buf)
	b := strconv.AppendInt((*buf)[:0], int64(len(p)), 16)
	b = append(b, "\r\n"...)
	b = append(b, p...)
	return in.send(append(b, "\r\n"...))
}

func (in *Inbound) send(p []byte) error {
	if now := time.Now(); in.armed.Sub(now) < in.write/2 {
		in.armed = now.Add(in.write)
		if err := in.stream.SetWriteDeadline(in.armed); err != nil {
			return err
		}
	}
	_, err := in.stream.Write(p)
	return err
}

// Committed reports that the head of the answer was sent: no refusal any more.
func (in *Inbound) Committed() bool { return in.began }

// Finish ends a whole answer.
func (in *Inbound) Finish() error {
	if in.chunks {
		if err := in.send([]byte("0\r\n\r\n")); err != nil {
			in.Abort()
			return fmt.Errorf("end answer: %w", err)
		}
	}
	err := in.stream.Close()
	in.free()
	if err != nil {
		return fmt.Errorf("end answer: %w", err)
	}
	return nil
}

// Abort tells the sender by a reset that no whole answer comes.
func (in *Inbound) Abort() {
	_ = in.stream.Reset()
	in.free()
}

// Refuse answers with r. The sender may still be sending its body: what comes
// is thrown away for a while, as a reset would overtake the answer.
func (in *Inbound) Refuse(r *Refusal) {
	header := http.Header{HeaderRefusal: {string(r.Kind)}, "Content-Type": {"text/plain"}}
	detail := r.Detail[:min(len(r.Detail), refusalBytes)]
	err := in.Begin(r.Status(), header, int64(len(detail)))
	if err == nil {
		err = in.send([]byte(detail))
	}
	if err == nil {
		err = in.stream.CloseWrite()
	}
	if err != nil {
		in.Abort()
		return
	}
	in.linger()
	in.free()
}

func (in *Inbound) linger() {
	_ = in.stream.SetReadDeadline(time.Now().Add(lingerTime))
	if in.watch != nil {
		<-in.watch
	} else {
		_, _ = io.Copy(io.Discard, in.stream)
	}
	// After the sender's end there is nothing to lose; without one, the
	// deadline has passed.
	_ = in.stream.Reset()
}

// free gives the reader back. The watch reads the stream, not the reader.
func (in *Inbound) free() {
	if in.br != nil {
		freeReader(in.br)
		in.br = nil
	}
}
