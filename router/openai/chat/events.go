package chat

import (
	"bytes"
	"encoding/json"
	"errors"

	"llmgw/router/openai"
)

// maxEvent bounds one event of an engine's stream: a choice with log
// probabilities has some kilobytes.
const maxEvent = 8 << 20

// errLargeEvent ends a stream whose event does not end.
var errLargeEvent = errors.New("the engine sent an event over 8 MiB")

// Reader reads a stream of chat chunks from bytes of any cuts. The zero value
// is ready.
type Reader struct {
	// Comment is called for each comment between events, which says that the
	// stream lives; nil: nobody cares.
	Comment func()

	line []byte // the unfinished line
	data []byte // of the unfinished event
	some bool   // the event has data
	cr   bool
	done bool
	err  error
}

// Feed takes the next bytes and calls use with each whole chunk. What use gets
// is its own.
func (r *Reader) Feed(p []byte, use func(*Answer)) {
	for len(p) > 0 && r.err == nil && !r.done {
		if r.cr {
			r.cr = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			r.keep(p)
			return
		}
		r.keep(p[:end])
		r.cr = p[end] == '\r'
		p = p[end+1:]
		line := r.line
		r.line = r.line[:0]
		r.take(line, use)
	}
}

func (r *Reader) keep(p []byte) {
	if len(r.line)+len(r.data)+len(p) > maxEvent {
		r.err = errLargeEvent
		return
	}
	r.line = append(r.line, p...)
}

func (r *Reader) take(line []byte, use func(*Answer)) {
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		if r.some {
			r.data = append(r.data, '\n')
		}
		r.data, r.some = append(r.data, bytes.TrimPrefix(data, []byte(" "))...), true
		return
	}
	if len(line) > 0 || !r.some {
		if r.Comment != nil && !r.some && len(line) > 0 && line[0] == ':' {
			r.Comment()
		}
		return
	}
	data := r.data
	r.data, r.some = r.data[:0], false
	if string(data) == "[DONE]" {
		r.done = true
		return
	}
	a := Answer{Raw: data}
	if err := json.Unmarshal(data, &a); err != nil {
		// One event that is no JSON costs itself, not the stream; types that
		// are odd have left their fields empty.
		var odd *json.UnmarshalTypeError
		if !errors.As(err, &odd) {
			return
		}
	}
	use(&a)
}

// End tells that no more bytes come: an event without its blank line counts.
func (r *Reader) End(use func(*Answer)) {
	if r.err != nil || r.done {
		return
	}
	line := r.line
	r.line = nil
	r.take(line, use)
	r.take(nil, use)
}

// Done reports that the terminator came.
func (r *Reader) Done() bool { return r.done }

// Failed gives the error that a chunk is, if it is one.
func (a *Answer) Failed() (*openai.Error, bool) {
	if len(a.Error) == 0 || string(a.Error) == "null" {
		return nil, false
	}
	doc := append(append([]byte(`{"error":`), a.Error...), '}')
	if e, ok := openai.ReadError(200, doc); ok {
		return e, true
	}
	return NoAnswer("the engine failed in the middle of its answer"), true
}

// Decode reads a whole answer; an error document gives its error.
func Decode(body []byte) (*Answer, *openai.Error) {
	if e, ok := openai.ReadError(200, body); ok {
		return nil, e
	}
	a := Answer{Raw: body}
	err := json.Unmarshal(body, &a)
	var odd *json.UnmarshalTypeError
	if err != nil && !errors.As(err, &odd) || len(a.Choices) == 0 {
		return nil, NoAnswer("the engine's answer is no chat completion")
	}
	return &a, nil
}

// Calls puts tool calls together from their pieces. The zero value is ready.
type Calls struct {
	list  []ToolCall
	index []Number
	args  [][]byte
}

// Add takes a piece and gives the number of its call; fresh: the call began
// with it. Pieces without an index belong to the call that is at hand, unless
// they bring a new ID.
func (c *Calls) Add(d *CallDelta) (at int, fresh bool) {
	at = len(c.list) - 1
	switch {
	case d.Index != nil:
		for at = len(c.index) - 1; at >= 0 && c.index[at] != *d.Index; at-- {
		}
	case at >= 0 && d.ID != "" && string(d.ID) != c.list[at].ID:
		at = -1
	}
	if at < 0 {
		at, fresh = len(c.list), true
		number := Number(at)
		if d.Index != nil {
			number = *d.Index
		}
		c.list, c.index, c.args = append(c.list, ToolCall{Type: "function"}), append(c.index, number), append(c.args, nil)
	}
	call := &c.list[at]
	if call.ID == "" {
		call.ID = string(d.ID)
	}
	if call.Function.Name == "" {
		call.Function.Name = string(d.Function.Name)
	}
	c.args[at] = append(c.args[at], d.Function.Arguments...)
	return at, fresh
}

// Len is the number of calls so far.
func (c *Calls) Len() int { return len(c.list) }

// Call gives a call as far as it came.
func (c *Calls) Call(at int) ToolCall {
	call := c.list[at]
	call.Function.Arguments = string(c.args[at])
	return call
}
