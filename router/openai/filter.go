package openai

import "bytes"

// maxUsageEvent bounds the event that a UsageFilter takes out. An event that
// grows beyond it is none and is passed on as it comes.
const maxUsageEvent = 8 << 10

// UsageFilter takes out of an event stream the chunk that has usage and no
// choices, which the engine was asked for and the client was not told of. All
// other bytes stay as they are. The zero value is ready.
type UsageFilter struct {
	held    []byte // the start of an event
	passing bool   // an event is passed on of which not all was seen
	track   Tracker
	cr      bool // what came last was an event that ended with \r
	dropped bool // and it was taken out
}

// Feed takes the bytes of one read and gives those that go out now: a part of
// p where nothing is taken out or was held. Only the start of an event whose
// end has not come is held. The bytes in p may be moved; what is given is valid
// until the next call.
func (f *UsageFilter) Feed(p []byte) []byte {
	switch {
	case len(p) == 0:
		return nil
	case f.passing:
		return f.whole(p, f.pass(p))
	case len(f.held) > 0:
		f.held = append(f.held, p...)
		if lineEnd(p) < 0 && len(f.held) <= maxUsageEvent {
			return nil
		}
		buf := f.held
		f.held = nil
		return f.whole(buf, 0)
	case f.cr && p[0] == '\n': // the rest of the last event's end
		f.cr = false
		if f.dropped {
			return f.whole(p[1:], 0)
		}
		return f.whole(p, 1)
	}
	return f.whole(p, 0)
}

// End gives what is still held when the stream is over.
func (f *UsageFilter) End() []byte {
	rest := f.held
	f.held = nil
	return rest
}

// pass follows the event that is passed on to its end within p.
func (f *UsageFilter) pass(p []byte) int {
	for i := 0; i < len(p); {
		n := lineEnd(p[i:]) + 1
		if n == 0 {
			n = len(p) - i
		}
		f.track.Feed(p[i : i+n])
		i += n
		if !f.track.Boundary() {
			continue
		}
		f.passing = false
		if p[i-1] == '\r' && i < len(p) && p[i] == '\n' {
			i++
		}
		f.cr, f.dropped = p[i-1] == '\r', false
		return i
	}
	return len(p)
}

// whole gives the whole events of buf that are not taken out. What is before
// from goes out as it is.
func (f *UsageFilter) whole(buf []byte, from int) []byte {
	end := from
	for {
		at := usageAfter(buf, end)
		if at < 0 {
			break
		}
		start, stop := eventAround(buf, end, at)
		if stop < 0 {
			f.keep(buf, end, start)
			return f.rest(buf, start)
		}
		if end = stop; !isUsageOnly(buf[start:stop]) {
			f.keep(buf, start, stop)
			continue
		}
		f.cr, f.dropped = buf[stop-1] == '\r', true
		buf = append(buf[:start], buf[stop:]...)
		end = start
	}
	last := len(buf)
	if !bytes.HasSuffix(buf[end:], []byte("\n\n")) {
		last, _ = eventAround(buf, end, len(buf))
	}
	f.keep(buf, end, last)
	return f.rest(buf, last)
}

// keep notes how the events from start to end, if there are any, ended.
func (f *UsageFilter) keep(buf []byte, start, end int) {
	if end > start {
		f.cr, f.dropped = buf[end-1] == '\r', false
	}
}

// rest holds what is behind the last event, or passes it on if it is too much.
func (f *UsageFilter) rest(buf []byte, end int) []byte {
	rest := buf[end:]
	if len(rest) == 0 || f.passing {
		return buf
	}
	f.cr = false
	if len(rest) > maxUsageEvent {
		f.passing, f.track = true, Tracker{}
		f.track.Feed(rest)
		return buf
	}
	f.held = append(make([]byte, 0, 2*len(rest)), rest...)
	return buf[:end]
}

// usageAfter finds, from i on, a key "usage" with an object behind it; -1:
// none. It goes from g to g, a letter that is rarer in events than quotes are.
func usageAfter(p []byte, i int) int {
	const key, g = `"usage"`, len(`"usa`)
	for next := min(i+g, len(p)); ; next++ {
		at := bytes.IndexByte(p[next:], 'g')
		if at < 0 {
			return -1
		}
		next += at
		start, end := next-g, next-g+len(key)
		if end > len(p) || string(p[start:end]) != key {
			continue
		}
		if v := end + valueStart(p[end:]); v == len(p) || p[v] == '{' {
			return start
		}
	}
}

// eventAround gives the event that at is in, the events being read from i on.
// end is -1 if the event is not whole; at may be behind all.
func eventAround(p []byte, i, at int) (start, end int) {
	for start = i; ; start = end {
		if end = eventEnd(p, start); end < 0 || end > at {
			return start, end
		}
	}
}

// eventEnd gives the end of the event that begins at i, its blank line
// included; -1: it has not come.
func eventEnd(p []byte, i int) int {
	for {
		n := lineEnd(p[i:])
		if n < 0 {
			return -1
		}
		if i += n + 1; p[i-1] == '\r' && i < len(p) && p[i] == '\n' {
			i++
		}
		if n == 0 {
			return i
		}
	}
}

// isUsageOnly reads an event that has a usage object.
func isUsageOnly(event []byte) bool {
	if len(event) > maxUsageEvent {
		return false
	}
	at := bytes.Index(event, []byte("data:"))
	if at < 0 || at > 0 && event[at-1] != '\n' && event[at-1] != '\r' {
		return false
	}
	var none, usage bool
	for f := fieldsOf(event[at+len("data:"):]); f.next(); {
		switch string(f.name) {
		case "choices":
			none = f.value[0] == '[' && len(bytes.TrimSpace(f.value[1:len(f.value)-1])) == 0
		case "usage":
			usage = f.value[0] == '{'
		}
	}
	return none && usage
}
