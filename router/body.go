package router

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"llmgw/router/openai"
	"llmgw/router/relay"
)

var (
	errBodyTooLarge = errors.New("body is over the limit")
	errNoBudget     = errors.New("this node holds too many bodies")
)

const (
	// firstPiece is allocated for a body of unknown length.
	firstPiece = 16 << 10
	// trustedPiece is allocated on a client's word for the length, and then each time
	// trustedGrowth as much as came: a header is not enough to fill the budget, and
	// little of a long body is copied.
	trustedPiece  = 1 << 20
	trustedGrowth = 8
)

// fill reads all of src, counted against the limit and the budget while it
// reads. expect is the announced length, -1 unknown. The caller gives held
// back to the budget, also on error.
func (r *Router) fill(src io.Reader, expect int64) (body []byte, held int64, err error) {
	limit := r.cfg.BodyLimit
	if expect > limit {
		return nil, 0, errBodyTooLarge
	}
	size := min(int64(firstPiece), limit+1)
	if expect >= 0 {
		size = min(expect+1, trustedPiece) // the extra byte shows the end
	}
	for {
		if !r.bodies.take(size - held) {
			return nil, held, errNoBudget
		}
		held = size
		body = append(make([]byte, 0, size), body...)
		done, err := readFull(src, &body)
		if err != nil || done {
			return body, held, err
		}
		if int64(len(body)) > limit {
			return nil, held, errBodyTooLarge
		}
		if expect >= held {
			size = min(trustedGrowth*size, expect+1)
		} else {
			size = min(2*size, limit+1)
		}
	}
}

// readFull reads until body's capacity is used or src ends.
func readFull(src io.Reader, body *[]byte) (done bool, err error) {
	b := *body
	for len(b) < cap(b) {
		n, err := src.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		*body = b
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// read takes the whole body into memory. Nothing is sent on before: a server
// closes the inbound body when the answer starts, and what is held can be sent
// again.
func (t *request) read() *openai.Error {
	if e := t.checkType(); e != nil {
		return e
	}
	limits := t.out.limits
	var src io.Reader = &patientReader{t: t, wait: limits.Idle}
	expect := t.req.ContentLength
	if expect > t.r.cfg.BodyLimit {
		return tooLarge(t.r.cfg.BodyLimit)
	}
	if encoding := t.encoding(); encoding != "" {
		unpacked, err := unpack(encoding, src)
		if err != nil {
			return t.readError(err)
		}
		defer unpacked.Close()
		src, expect = unpacked, -1
	}
	body, held, err := t.r.fill(src, expect)
	t.body, t.held = body, held
	if err != nil {
		return t.readError(err)
	}
	t.whole = true
	// The connection is watched for the client's leaving from here on, and an
	// old deadline would look like that.
	_ = t.out.rc.SetReadDeadline(time.Time{})
	return nil
}

// encoding is how the body is compressed; empty: it is not.
func (t *request) encoding() string {
	encoding := strings.ToLower(t.req.Header.Get("Content-Encoding"))
	if encoding == "identity" {
		return ""
	}
	return encoding
}

// zstdWindow is what a client may have the decoder keep: the most that RFC 9659
// allows for a body.
const zstdWindow = 8 << 20

// unpacking reads a compressed body.
type unpacking struct {
	io.Reader
	src *watchedReader
	end func()
}

// watchedReader keeps the error of the connection apart from those of a decoder.
type watchedReader struct {
	io.Reader
	err error
}

func (w *watchedReader) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

var errNotPacked = errors.New("it is not what Content-Encoding says")

// unpack begins to decompress src. Errors: errNotPacked, or the connection's own.
func unpack(encoding string, src io.Reader) (*unpacking, error) {
	u := &unpacking{src: &watchedReader{Reader: src}, end: func() {}}
	var err error
	if encoding == "gzip" {
		u.Reader, err = gzip.NewReader(u.src)
	} else {
		var d *zstd.Decoder
		d, err = zstd.NewReader(u.src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err == nil {
			u.Reader, u.end = d, d.Close
		}
	}
	if err != nil {
		return nil, u.mark(err)
	}
	return u, nil
}

func (u *unpacking) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	return n, u.mark(err)
}

func (u *unpacking) Close() { u.end() }

// mark tells what is wrong with the compression from what is with the connection.
func (u *unpacking) mark(err error) error {
	switch {
	case u.src.err != nil:
		return u.src.err
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return err
	}
	return fmt.Errorf("%w: %w", errNotPacked, err)
}

func (t *request) readError(err error) *openai.Error {
	switch {
	case errors.Is(err, errBodyTooLarge):
		return tooLarge(t.r.cfg.BodyLimit)
	case errors.Is(err, errNoBudget):
		return noBudget()
	case relay.IsTimeout(err):
		return slowBody()
	case errors.Is(err, errNotPacked):
		return badEncoding(err)
	}
	t.gone()
	return cutBody(err)
}

// checkType refuses what cannot be JSON. A missing or a form's type is let
// through: it is what curl sends by default.
func (t *request) checkType() *openai.Error {
	kind, _, err := mime.ParseMediaType(t.req.Header.Get("Content-Type"))
	isForm := err == nil && strings.HasPrefix(kind, "multipart/")
	switch {
	case isForm && !t.route.form:
		return wrongMedia("Content-Type " + kind)
	case !isForm && t.route.form:
		return wantsForm(kind)
	}
	switch encoding := t.encoding(); encoding {
	case "", "gzip", "zstd":
		return nil
	default:
		return wrongMedia("Content-Encoding " + encoding)
	}
}

// patientReader reads the body with a deadline that moves with each read.
type patientReader struct {
	t     *request
	wait  time.Duration
	armed time.Time
}

func (p *patientReader) Read(b []byte) (int, error) {
	if now := time.Now(); p.armed.Sub(now) < p.wait/2 {
		p.armed = now.Add(p.wait)
		_ = p.t.out.rc.SetReadDeadline(p.armed)
	}
	return p.t.req.Body.Read(b)
}

// jsonHeader is what an engine gets of the client's headers.
func jsonHeader(clean http.Header, id string) http.Header {
	if !strings.HasPrefix(clean.Get("Content-Type"), "application/json") {
		clean.Set("Content-Type", "application/json")
	}
	clean.Set("X-Request-Id", id)
	return clean
}
