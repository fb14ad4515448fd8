package openai

// maxGrab bounds one object that is kept while its end has not come. A usage
// object has a few hundred bytes.
const maxGrab = 4 << 10

// grab cuts the object behind a key out of bytes that come in any cuts.
type grab struct {
	depth  int
	text   bool   // within a string
	escape bool   // behind a backslash
	over   bool   // larger than maxGrab: not kept, but followed to its end
	part   []byte // of an object that a cut divides
	object []byte // what was grabbed; empty: the value is none, or is too large
}

// take goes on through the value behind a key and gives how many bytes of p
// belong to it. The object is valid until p changes or take is called again.
func (g *grab) take(p []byte) (n int, ended bool) {
	if g.depth == 0 {
		start := valueStart(p)
		if start == len(p) {
			return start, false
		}
		g.object, g.part, g.over = nil, g.part[:0], false
		if p[start] != '{' {
			return start, true
		}
		p, n = p[start:], start
	}
	length, ended := g.walk(p)
	g.keep(p[:length], ended)
	return n + length, ended
}

func valueStart(p []byte) int {
	for i, c := range p {
		switch c {
		case ':', ' ', '\t', '\r', '\n':
		default:
			return i
		}
	}
	return len(p)
}

// walk goes on to the object's end.
func (g *grab) walk(p []byte) (n int, ended bool) {
	for i, c := range p {
		switch {
		case g.escape:
			g.escape = false
		case g.text && c == '\\':
			g.escape = true
		case c == '"':
			g.text = !g.text
		case g.text:
		case c == '{':
			g.depth++
		case c == '}':
			if g.depth--; g.depth == 0 {
				return i + 1, true
			}
		}
	}
	return len(p), false
}

func (g *grab) keep(p []byte, ended bool) {
	switch {
	case g.over || len(g.part)+len(p) > maxGrab:
		g.over, g.part = true, g.part[:0]
	case ended && len(g.part) == 0:
		g.object = p
	default:
		if g.part = append(g.part, p...); ended {
			g.object = g.part
		}
	}
}
