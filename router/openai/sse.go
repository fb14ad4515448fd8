package openai

import "bytes"

// DoneFrame is the terminator of chat and completions streams.
const DoneFrame = "data: [DONE]\n\n"

// KeepAlive is a comment that clients skip and proxies count as traffic.
const KeepAlive = ": keep-alive\n\n"

// prefixBytes is as much of a line as tells its kind. The longest is
// `data: {"type":"response.incomplete"`.
const prefixBytes = 40

// Tracker follows the bytes of an event stream without changing or keeping
// them: it knows where events end, whether the terminator came, and whether
// the engine reported an error of its own. Lines end with \n, \r or \r\n. The
// zero value is ready.
type Tracker struct {
	line    [prefixBytes]byte // start of the unfinished line
	length  int               // bytes of the unfinished line, capped at prefixBytes+1
	cr      bool              // the last byte was \r: a \n now belongs to it
	pending bool              // the unfinished event has a whole line
	ids     bool
	done    bool
	failing bool // the unfinished event is an error
	failed  bool
	ending  bool // the unfinished event is the last of its kind of stream
	ended   bool
}

// Feed takes the next bytes and returns how many of them end with a finished
// event; -1 when no event ends in p.
func (t *Tracker) Feed(p []byte) int {
	boundary := -1
	plain := bytes.IndexByte(p, '\r') < 0 // one look for all lines
	for i := 0; i < len(p); {
		if t.cr && p[i] == '\n' {
			t.cr = false
			i++
			if t.idle() {
				boundary = i
			}
			continue
		}
		t.cr = false
		rest := p[i:]
		end := bytes.IndexByte(rest, '\n')
		if !plain {
			end = lineEnd(rest)
		}
		if end < 0 {
			t.keep(rest)
			break
		}
		i += end + 1
		t.cr = p[i-1] == '\r'
		t.take(rest[:end])
		if t.idle() {
			boundary = i
		}
	}
	return boundary
}

// lineEnd finds the first \n or \r. Event data is JSON, in which both are
// escaped, so that the second search stays within one line.
func lineEnd(p []byte) int {
	end := bytes.IndexByte(p, '\n')
	if end >= 0 {
		p = p[:end]
	}
	if cr := bytes.IndexByte(p, '\r'); cr >= 0 {
		return cr
	}
	return end
}

// take finishes a line with its last bytes.
func (t *Tracker) take(end []byte) {
	if t.length == 0 {
		t.finish(end[:min(len(end), prefixBytes)], len(end) <= prefixBytes)
		return
	}
	t.keep(end)
	t.finishLine()
}

func (t *Tracker) keep(p []byte) {
	if t.length < prefixBytes {
		copy(t.line[t.length:], p)
	}
	t.length = min(t.length+len(p), prefixBytes+1)
}

func (t *Tracker) finishLine() {
	line, whole := t.line[:min(t.length, prefixBytes)], t.length <= prefixBytes
	t.length = 0
	t.finish(line, whole)
}

// finish reads the beginning of a line, or all of it.
func (t *Tracker) finish(line []byte, whole bool) {
	if len(line) == 0 {
		t.pending = false
		t.failed = t.failed || t.failing
		t.ended = t.ended || t.ending
		return
	}
	if line[0] == ':' {
		return
	}
	t.pending = true
	switch {
	case bytes.HasPrefix(line, []byte("data:")):
		t.data(bytes.TrimPrefix(line[len("data:"):], []byte(" ")), whole)
	case bytes.HasPrefix(line, []byte("id:")):
		t.ids = true
	case bytes.HasPrefix(line, []byte("event:")):
		if whole {
			t.event(bytes.TrimPrefix(line[len("event:"):], []byte(" ")))
		}
	}
}

// event takes an event's name: of Messages and Responses the last ones count.
func (t *Tracker) event(name []byte) {
	switch string(name) {
	case "error":
		t.failing = true
	case "response.failed":
		t.failing, t.ending = true, true
	case "response.completed", "response.incomplete", "message_stop":
		t.ending = true
	}
}

func (t *Tracker) data(text []byte, whole bool) {
	switch {
	case whole && string(text) == "[DONE]":
		t.done = true
	case bytes.HasPrefix(text, []byte(`{"error"`)):
		t.failing = true
	case bytes.HasPrefix(text, []byte(`{"type":"`)):
		// A name before it may be missing.
		if kind, _, ok := bytes.Cut(text[len(`{"type":"`):], []byte(`"`)); ok {
			t.event(kind)
		}
	}
}

func (t *Tracker) idle() bool { return t.length == 0 && !t.pending }

// Boundary reports that a frame may be added here without touching an event.
func (t *Tracker) Boundary() bool { return t.idle() }

// Done reports that the terminator came as a whole line. The same text within
// an event's data does not count.
func (t *Tracker) Done() bool { return t.done }

// Ended reports that the stream came to the end that its dialect has.
func (t *Tracker) Ended(d Dialect) bool {
	switch d {
	case Chat:
		return t.done
	case Responses, Messages:
		return t.ended
	}
	return true
}

// End tells that no more bytes come: an unfinished line is taken as a line.
func (t *Tracker) End() {
	if t.length > 0 {
		t.finishLine()
	}
	// Of an event without its blank line the line that tells is enough here.
	t.ended = t.ended || t.ending
}

// Failed reports that a whole error event came.
func (t *Tracker) Failed() bool { return t.failed }

// HasIDs reports that the stream uses event IDs: from then on a comment's
// blank line makes some clients see an empty event.
func (t *Tracker) HasIDs() bool { return t.ids }

// Completion is what ends the event at hand so that another may follow; empty
// at a boundary.
func (t *Tracker) Completion() string {
	switch {
	case t.idle():
		return ""
	case t.length > 0 || t.cr:
		return "\n\n" // after \r the first \n still belongs to the same line end
	}
	return "\n"
}
