package openai

import "bytes"

// Repetition says when an answer has run away: its last text, Bytes of it or
// more, repeats one piece, of up to maxPeriod bytes, Times or more.
type Repetition struct {
	Bytes int
	Times int
}

// DefaultRepetition is far beyond tables, rulers and lists of zeros.
var DefaultRepetition = Repetition{Bytes: 2048, Times: 8}

const (
	maxPeriod = 1024
	ringBytes = 2 * maxPeriod // a power of two
	gramBytes = 8             // that agree make a period worth following
	gramSlots = 512           // a power of two
)

// Watchdog looks for an answer that does nothing but repeat itself. It follows
// the texts of a stream's deltas, raw, at a few operations a byte: one period
// is a candidate, and as long as each byte is that of one period before, the
// run grows; when it breaks, the last place of the same eight bytes names the
// next candidate. It is for streams with one choice.
type Watchdog struct {
	limit  Repetition
	d      Dialect
	key    string // that texts are behind
	finder finder
	state  textState
	direct bool // the text is the value behind the key itself
	escape bool
	name   [16]byte // of a member of a delta, as far as it fits
	named  int
	ring   [ringBytes]byte
	n      int // bytes of text so far
	period int // 0: no candidate
	run    int
	gram   uint64
	last   [gramSlots]uint32 // where each gram, by its hash, was last
	first  []byte            // the first event, for what ends the stream
	block  int               // of Messages: the one that is open
}

// textState is where within an event the watchdog is.
type textState uint8

const (
	outside   textState = iota
	afterKey            // behind "delta" or "text"
	inObject            // within the delta, outside of its texts
	inName              // within a member's name
	afterName           // behind it
	inText              // within a value
	inLabel             // within a value that is no text of the answer
)

// NewWatchdog makes one for one answer in a dialect.
func NewWatchdog(limit Repetition, d Dialect) *Watchdog { return &Watchdog{limit: limit, d: d} }

const keptEvent = 1024

// Feed takes the next bytes of a stream and reports that it has run away.
func (w *Watchdog) Feed(p []byte) bool {
	if len(w.first) < keptEvent {
		w.first = append(w.first, p[:min(len(p), keptEvent-len(w.first))]...)
	}
	if w.key == "" && !w.choose() {
		return false
	}
	if w.d == Messages {
		w.follow(p)
	}
	for len(p) > 0 {
		if w.state != outside {
			n, away := w.value(p)
			if away {
				return true
			}
			p = p[n:]
			continue
		}
		after := w.finder.next(p, w.key)
		if after < 0 {
			return false
		}
		p, w.state, w.direct = p[after:], afterKey, false
	}
	return false
}

// choose takes the key by the first event, once it tells.
func (w *Watchdog) choose() bool {
	switch {
	case bytes.Contains(w.first, []byte(`"text_completion"`)):
		w.key = keyOfTexts
	case bytes.Contains(w.first, []byte(keyOfDeltas)), len(w.first) == keptEvent:
		w.key = keyOfDeltas
	}
	return w.key != ""
}

const (
	keyOfTexts  = `"text"`
	keyOfDeltas = `"delta"`
)

// follow notes the block of the last event.
func (w *Watchdog) follow(p []byte) {
	const index = `"index":`
	if at := bytes.LastIndex(p, []byte(index)); at >= 0 {
		rest := p[at+len(index):]
		end := 0
		for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
			end++
		}
		if n, ok := number(rest[:end]); ok {
			w.block = int(n)
		}
	}
}

// value goes on within what is behind the key and gives how far it came.
func (w *Watchdog) value(p []byte) (n int, away bool) {
	for i, c := range p {
		switch w.state {
		case outside:
			return i, false
		case inText, inLabel:
			if w.text(c) {
				return i, true
			}
		case inName:
			if c == '"' {
				w.state = afterName
			} else if w.named < len(w.name) {
				w.name[w.named] = c
				w.named++
			}
		default:
			w.between(c)
		}
	}
	return len(p), false
}

// between takes a byte outside of all texts.
func (w *Watchdog) between(c byte) {
	switch w.state {
	case afterKey:
		switch c {
		case ':', ' ':
		case '"':
			w.state, w.direct = inText, true
		case '{':
			w.state = inObject
		default:
			w.state = outside
		}
	case inObject:
		switch c {
		case '"':
			w.state, w.named = inName, 0
		case '}', '\n', '\r':
			w.state = outside
		}
	case afterName:
		switch c {
		case ':', ' ':
		case '"':
			if w.state = inText; label(w.name[:w.named]) {
				w.state = inLabel
			}
		default:
			w.state = inObject // a null, a number, or what is nested
		}
	}
}

// text takes a byte of a text and reports that the answer has run away.
func (w *Watchdog) text(c byte) bool {
	switch {
	case w.escape:
		w.escape = false
	case c == '\\':
		w.escape = true
	case c == '"' || c == '\n':
		if w.state = inObject; w.direct {
			w.state = outside
		}
		return false
	}
	return w.state == inText && w.add(c)
}

func (w *Watchdog) add(c byte) bool {
	if w.period > 0 && w.ring[(w.n-w.period)%ringBytes] == c {
		w.run++
	} else {
		w.period, w.run = 0, 0
	}
	w.ring[w.n%ringBytes] = c
	w.n++
	w.gram = w.gram<<8 | uint64(c)
	if w.period > 0 {
		return w.run >= w.limit.Bytes && w.run+w.period >= w.limit.Times*w.period
	}
	if w.n >= gramBytes {
		w.candidate()
	}
	return false
}

// candidate looks for the last place of the last eight bytes.
func (w *Watchdog) candidate() {
	slot := &w.last[w.gram*0x9e3779b97f4a7c15>>(64-9)]
	at := int(*slot)
	*slot = uint32(w.n)
	if distance := w.n - at; at > 0 && distance > 0 && distance <= maxPeriod {
		w.period, w.run = distance, gramBytes
	}
}
