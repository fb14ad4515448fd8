package relay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Conn carries one exchange. Close ends a finished one; Reset aborts it so
// that the other side fails at once, in reading and in writing.
type Conn interface {
	io.Reader
	io.Writer
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
	Reset() error
}

// Limits are the times after which a silent side counts as gone. There is no
// absolute deadline: a long answer is not a broken one.
type Limits struct {
	Connect   time.Duration // to reach an engine
	FirstByte time.Duration // prompts of a million tokens take minutes
	Idle      time.Duration // between two reads of an answer
	Write     time.Duration // for one flush that the other side does not take
	KeepAlive time.Duration // of silence until a comment is sent
}

// DefaultLimits holds for the mesh. Proxies cut streams that are silent for
// 60 s, hence a comment each 15.
func DefaultLimits() Limits {
	return Limits{
		Connect:   5 * time.Second,
		FirstByte: 5 * time.Minute,
		Idle:      60 * time.Second,
		Write:     30 * time.Second,
		KeepAlive: 15 * time.Second,
	}
}

// Stage says how far an exchange came.
type Stage string

// Stages in order.
const (
	StageConnect   Stage = "connect"
	StageSend      Stage = "send"
	StageFirstByte Stage = "first byte"
	StageAnswer    Stage = "answer"
)

// BrokenError is an exchange that failed for no fault of the client.
type BrokenError struct {
	Stage Stage
	Err   error
}

func (e *BrokenError) Error() string { return fmt.Sprintf("%s: %v", e.Stage, e.Err) }
func (e *BrokenError) Unwrap() error { return e.Err }

// IsTimeout reports a deadline that struck. Mesh streams have an error of their
// own for it, not the standard library's.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// ErrClientGone reports that the side which asked does not take the answer.
var ErrClientGone = errors.New("client left")

// bufferBytes holds what an engine writes for a few dozen tokens; one read
// takes all of it.
const bufferBytes = 16 << 10

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferBytes) }}

func newReader(r io.Reader) *bufio.Reader {
	br := readers.Get().(*bufio.Reader)
	br.Reset(r)
	return br
}

func freeReader(br *bufio.Reader) {
	br.Reset(nil)
	readers.Put(br)
}

const (
	// copyBytes is the most that one Write of an answer carries.
	copyBytes = 2 * bufferBytes
	// frameBytes is room for a chunk's framing around it.
	frameBytes = 32
)

var copies = sync.Pool{New: func() any { b := make([]byte, copyBytes+frameBytes); return &b }}
