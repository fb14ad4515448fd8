package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"llmgw/router/openai"
)

// Sink takes an answer. Begin comes once, before Write, unless Committed says
// that a head of status 200 went out already. Write hands the bytes on before
// it returns. Errors mean that nobody takes the answer any more.
type Sink interface {
	Committed() bool
	Begin(status int, header http.Header, length int64) error
	Write(p []byte) error
}

// Answer is what became of an exchange's answer.
type Answer struct {
	Status    int
	FirstByte time.Time // zero: no byte of the body came
	Bytes     int64     // of the body, from the engine
	// Began is set when the sink was given anything: no other attempt then.
	Began bool
	// Sound is set when what the sink has ends in form: the whole answer, or
	// a stream that ends with an error.
	Sound bool
	// Err is why the answer is not whole: ErrClientGone, the end of the
	// context or *BrokenError.
	Err error
}

// Options of one Pump.
type Options struct {
	// Dialect is the form of the engine's streams and errors.
	Dialect openai.Dialect
	// Mend puts errors of engines into the form of the dialect Errors, each in its
	// own words.
	Mend   bool
	Errors openai.Dialect
	// Whole is set when the client wants the answer in one piece. One that was
	// told 200 while it waited can then be failed only by cutting it off.
	Whole bool
	// Failure makes the error that a broken stream ends with; Origin goes into
	// each error.
	Failure func(err error) *openai.Error
	Origin  openai.Origin
	// Now is the clock of Answer.FirstByte.
	Now func() time.Time
	// First is called with the first byte of the body; nil: nobody cares.
	First func()
	// Ending is called once before the end of a stream goes out: who reads it may
	// ask again at once. Nil: nobody cares.
	Ending func()
	// Meter is fed with the body as it comes from the engine; nil: none.
	Meter *openai.UsageMeter
	// Filter takes out of a stream what the engine was asked for on our own
	// account; nil: the bytes stay as they are.
	Filter *openai.UsageFilter
	// Watchdog ends a stream that has run away, with a chunk of its usage where
	// Usage is set; nil: none does. It needs Meter.
	Watchdog *openai.Watchdog
	Usage    bool
}

// IsEventStream reports that a content type is that of server-sent events.
func IsEventStream(h http.Header) bool {
	value := h.Get("Content-Type")
	if value == "text/event-stream" {
		return true
	}
	kind, _, err := mime.ParseMediaType(value)
	return err == nil && strings.EqualFold(kind, "text/event-stream")
}

// Pump copies the answer of x to out, bytes unchanged and one Write for all
// the bytes in hand. The head goes out with the first bytes of the body, so
// that an engine which dies before them can still be replaced. A stream that
// breaks later is ended by an error and an end, as its dialect has them.
func Pump(x *Exchange, out Sink, o Options) Answer {
	p := pump{x: x, out: out, o: o, answer: Answer{Status: x.Status}}
	buf := copies.Get().(*[]byte)
	defer copies.Put(buf)
	p.run((*buf)[:copyBytes])
	return p.answer
}

type pump struct {
	x      *Exchange
	out    Sink
	o      Options
	answer Answer
	track  openai.Tracker
	state  openai.ResponseState
	told   bool // that the end goes out
	held   bool // the start of an event is held back
	torn   bool // the client has the start of an event that was too large to hold
}

func (p *pump) run(buf []byte) {
	n, err := p.x.Next(buf, nil)
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		p.answer.Err = err
		return
	}
	p.got(buf[:n])
	stream := IsEventStream(p.x.Header)
	CleanResponse(p.x.Header)
	switch {
	case p.out.Committed() && p.o.Whole:
		p.lateWhole(buf, n, err)
	case p.out.Committed() && (!stream || p.x.Status != http.StatusOK):
		p.late(buf, n, err)
	case stream:
		p.events(buf, n, err)
	case p.o.Mend && isError(p.x.Status, buf[:n]):
		p.mend(buf, n, err)
	default:
		p.plain(buf, n, err)
	}
}

func (p *pump) got(b []byte) {
	if p.answer.FirstByte.IsZero() && len(b) > 0 {
		p.answer.FirstByte = p.o.Now()
		if p.o.First != nil {
			p.o.First()
		}
	}
	p.answer.Bytes += int64(len(b))
	if p.o.Meter != nil {
		p.o.Meter.Feed(b)
	}
}

// begin sends the head, if none went out while the client waited.
func (p *pump) begin(length int64) bool {
	if !p.out.Committed() {
		if err := p.out.Begin(p.x.Status, p.x.Header, length); err != nil {
			p.answer.Err = errors.Join(ErrClientGone, err)
			return false
		}
	}
	p.answer.Began = true
	return true
}

func (p *pump) write(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if err := p.out.Write(b); err != nil {
		p.answer.Err = errors.Join(ErrClientGone, err)
		return false
	}
	return true
}

// plain copies a body that is no event stream; n and err are its first read.
func (p *pump) plain(buf []byte, n int, err error) {
	if !p.begin(p.x.Length) {
		return
	}
	for {
		if !p.write(buf[:n]) {
			return
		}
		if errors.Is(err, io.EOF) {
			p.answer.Sound = true
			return
		}
		if err != nil {
			p.answer.Err = err
			return
		}
		n, err = p.x.Next(buf, nil)
		p.got(buf[:n])
	}
}

// events copies an event stream. The start of an event whose end has not come
// is held back, so that what breaks off never reaches a client as half an
// event, unless it is larger than the buffer.
func (p *pump) events(buf []byte, n int, err error) {
	p.x.Header.Set("Cache-Control", "no-cache")
	p.x.Header.Set("X-Accel-Buffering", "no")
	if !p.begin(-1) {
		return
	}
	held, comment := 0, p.comment
	together := p.x.gather()
	defer together.end()
	for {
		whole := p.whole(buf, held, n)
		held += n
		out := buf[:whole]
		away := p.o.Watchdog != nil && p.o.Watchdog.Feed(out)
		if p.o.Dialect == openai.Responses {
			p.state.Feed(out)
		}
		if p.o.Filter != nil {
			out = p.o.Filter.Feed(out)
		}
		p.tellEnd()
		if !p.write(out) || away && p.runaway() {
			return
		}
		held = copy(buf, buf[whole:held])
		if errors.Is(err, io.EOF) {
			p.end(buf[:held])
			return
		}
		if err != nil {
			p.breakOff(buf[:held], err)
			return
		}
		p.held = held > 0
		together.before(p.idle(n))
		n, err = p.x.Next(buf[held:], comment)
		together.after()
		p.got(buf[held : held+n])
	}
}

// tellEnd tells that what goes out next ends the stream.
func (p *pump) tellEnd() {
	if !p.told && p.o.Ending != nil && p.o.Dialect != openai.Plain && p.track.Ended(p.o.Dialect) {
		p.told = true
		p.o.Ending()
	}
}

// idle reports that nothing is in hand that could go out now: all of the last
// read, of n bytes, went out, and it was not so long that more is there.
func (p *pump) idle(n int) bool {
	return n < fullRead && !p.held && p.x.br.Buffered() == 0 && !p.track.Ended(p.o.Dialect)
}

// runaway ends a stream that only repeats itself, as if it had met its bound.
// Closing the exchange ends the engine's work.
func (p *pump) runaway() bool {
	end, ok := p.o.Watchdog.End(p.o.Meter, p.o.Usage)
	if !ok || p.torn {
		return false
	}
	p.answer.Sound = p.write(end)
	return true
}

// whole says how much of the buffer, which has n new bytes behind the held
// ones, goes out now.
func (p *pump) whole(buf []byte, held, n int) int {
	if end := p.track.Feed(buf[held : held+n]); end >= 0 {
		p.torn = false
		return held + end
	}
	if held+n < len(buf) {
		return 0
	}
	p.torn = true
	return held + n
}

// comment keeps a silent stream open where a comment does no harm.
func (p *pump) comment(time.Duration) error {
	if p.held || !p.track.Boundary() || p.track.HasIDs() {
		return nil
	}
	if !p.write([]byte(p.o.Dialect.KeepAlive())) {
		return p.answer.Err
	}
	return nil
}

// errNoTerminator is an engine that ended its stream in order but too early.
var errNoTerminator = errors.New("the engine ended the stream before its end mark")

// end handles a stream whose body is whole.
func (p *pump) end(rest []byte) {
	p.track.End()
	if p.track.Ended(p.o.Dialect) || p.x.Status != http.StatusOK {
		p.answer.Sound = p.write(rest)
		return
	}
	p.answer.Err = &BrokenError{StageAnswer, errNoTerminator}
	p.fail(p.answer.Err)
}

func (p *pump) breakOff(rest []byte, err error) {
	if p.track.Ended(p.o.Dialect) && p.o.Dialect != openai.Plain {
		// What was promised is here; the engine's way of closing is no
		// concern of the client.
		p.answer.Sound = p.write(append(rest, p.track.Completion()...))
		return
	}
	p.answer.Err = err
	if p.x.ctx.Err() == nil && !errors.Is(err, ErrClientGone) {
		p.fail(err)
	}
}

// fail ends the client's stream so that it sees an error and an end. What was
// held back is dropped.
func (p *pump) fail(err error) {
	var b bytes.Buffer
	if p.torn {
		b.WriteString("\n\n")
	}
	if !p.track.Failed() {
		b.Write(p.o.Dialect.StreamError(p.o.Failure(err), p.o.Origin, &p.state))
	} else {
		b.WriteString(p.o.Dialect.Terminator())
	}
	p.answer.Sound = p.out.Write(b.Bytes()) == nil
}

// lateBytes bounds an engine's error that is read whole.
const lateBytes = 64 << 10

// rest reads an answer that is an error to its end.
func (p *pump) rest(buf []byte, n int, err error) ([]byte, error) {
	body := bytes.Clone(buf[:n])
	for err == nil && len(body) < lateBytes {
		n, err = p.x.Next(buf, nil)
		p.got(buf[:n])
		body = append(body, buf[:n]...)
	}
	return body, err
}

// late turns an answer that is no stream into the end of a stream, as the
// client was told 200 while it waited.
func (p *pump) late(buf []byte, n int, err error) {
	p.answer.Began = true
	body, err := p.rest(buf, n, err)
	e, ok := openai.ReadError(p.x.Status, body)
	if !errors.Is(err, io.EOF) || !ok {
		p.answer.Err = &BrokenError{StageAnswer, fmt.Errorf("the engine answered with status %d", p.x.Status)}
		p.fail(p.answer.Err)
		return
	}
	p.answer.Status = e.Status
	p.answer.Sound = p.write(p.o.Dialect.StreamError(e, p.o.Origin, &p.state))
}

// isError reports an answer that is an error by its status, or by how it
// begins: some engines tell their errors with status 200.
func isError(status int, start []byte) bool {
	if status >= http.StatusBadRequest {
		return true
	}
	start = bytes.TrimLeft(start, " \r\n\t")
	return bytes.HasPrefix(start, []byte(`{"error"`)) || bytes.HasPrefix(start, []byte(`{"object":"error"`))
}

// mend passes an engine's error on in the form that clients of the dialect
// read.
func (p *pump) mend(buf []byte, n int, err error) {
	body, err := p.rest(buf, n, err)
	if err == nil || !errors.Is(err, io.EOF) {
		// Too long for an error, or cut: nothing of it is of use.
		p.answer.Err = &BrokenError{StageAnswer, fmt.Errorf("the engine answered with status %d and no readable error", p.x.Status)}
		return
	}
	status, mended, changed := p.o.Errors.MendError(p.x.Status, body, p.o.Origin)
	if changed {
		p.x.Header.Set("Content-Type", "application/json")
		p.x.Header.Del("Content-Encoding")
		p.x.Status, p.answer.Status, body = status, status, mended
	}
	if p.begin(int64(len(body))) {
		p.answer.Sound = p.write(body)
	}
}

// lateWhole sends what the client has been told to come; an error cannot be told
// any more.
func (p *pump) lateWhole(buf []byte, n int, err error) {
	p.answer.Began = true
	if p.x.Status != http.StatusOK {
		p.answer.Err = &BrokenError{StageAnswer, fmt.Errorf("the engine answered with status %d", p.x.Status)}
		return
	}
	p.plain(buf, n, err)
}
