package openai

import (
	"bytes"
	"slices"
)

// Edit changes one member of a body's outermost object.
type Edit struct {
	name  string
	value []byte // nil: the member goes
	soft  bool   // a value that is there stays
}

// Set gives a member a raw JSON value, in its place or as the last one.
func Set(name string, value []byte) Edit { return Edit{name: name, value: value} }

// Default gives a member a raw JSON value if it is absent or null.
func Default(name string, value []byte) Edit { return Edit{name: name, value: value, soft: true} }

// Remove takes a member out, all of it where it is doubled.
func Remove(name string) Edit { return Edit{name: name} }

// Splice makes a body of that which r is the scan of, with the edits and no
// other byte changed. Of several edits of one member each sees what the one
// before has left. Without an effect the body itself comes back. The result is
// to be scanned anew before it is spliced again.
func Splice(r *Request, edits ...Edit) []byte {
	p := patches{r: r}
	for _, e := range edits {
		p.apply(e)
	}
	if !p.changed {
		return r.body
	}
	return p.build()
}

// patches hold the new values of members; those of fields by their place.
type patches struct {
	r       *Request
	changed bool
	values  map[int][]byte // by index of a field; nil: it goes
	added   []Edit
}

func (p *patches) apply(e Edit) {
	if e.soft && p.set(e.name) {
		return
	}
	if i := slices.IndexFunc(p.added, func(a Edit) bool { return a.name == e.name }); i >= 0 {
		if p.added[i].value = e.value; e.value == nil {
			p.added = slices.Delete(p.added, i, i+1)
		}
		return
	}
	last := -1
	for i, f := range p.r.fields {
		if string(f.name) == e.name && !p.gone(i) {
			if last = i; e.value == nil {
				p.put(i, nil)
			}
		}
	}
	switch {
	case e.value == nil:
	case last >= 0:
		p.put(last, e.value)
	default:
		p.added, p.changed = append(p.added, e), true
	}
}

// set reports whether a member has a value, the edits so far counted.
func (p *patches) set(name string) bool {
	if slices.ContainsFunc(p.added, func(a Edit) bool { return a.name == name && string(a.value) != "null" }) {
		return true
	}
	for i := len(p.r.fields) - 1; i >= 0; i-- {
		if f := p.r.fields[i]; string(f.name) == name && !p.gone(i) {
			value, ok := p.values[i]
			if !ok {
				value = p.r.body[f.value:f.end]
			}
			return string(value) != "null"
		}
	}
	return false
}

func (p *patches) gone(i int) bool {
	value, ok := p.values[i]
	return ok && value == nil
}

func (p *patches) put(i int, value []byte) {
	if p.values == nil {
		p.values = make(map[int][]byte)
	}
	p.values[i], p.changed = value, true
}

// build copies the body, member by member where something changed.
func (p *patches) build() []byte {
	body, fields := p.r.body, p.r.fields
	out := make([]byte, 0, len(body)+p.growth())
	out = append(out, body[:p.r.open]...)
	at := p.r.open // what is before it is copied or left out
	kept := false
	for i, f := range fields {
		if p.gone(i) {
			if at = f.end; !kept && i+1 < len(fields) {
				at = fields[i+1].from // with the comma behind it
			}
			continue
		}
		if value, ok := p.values[i]; ok {
			out = append(append(out, body[at:f.value]...), value...)
			at = f.end
		} else {
			out = append(out, body[at:f.end]...)
			at = f.end
		}
		kept = true
	}
	for _, a := range p.added {
		if kept {
			out = append(out, ',')
		}
		out = append(append(appendText(out, a.name), ':'), a.value...)
		kept = true
	}
	return append(out, body[at:]...)
}

func (p *patches) growth() int {
	n := 0
	for _, value := range p.values {
		n += len(value)
	}
	for _, a := range p.added {
		n += len(a.name) + len(a.value) + 8
	}
	return n
}

// AskUsage makes a body that has the engine tell its usage at the end of a
// stream. A body that asks for it, or for no stream, comes back as it is.
func AskUsage(r *Request) []byte {
	e, ok := UsageEdit(r)
	if !ok {
		return r.body
	}
	return Splice(r, e)
}

// UsageEdit is the edit of AskUsage; false: none is needed.
func UsageEdit(r *Request) (Edit, bool) {
	if !r.Stream || r.IncludeUsage {
		return Edit{}, false
	}
	const asked = `"include_usage":true`
	options := r.Field("stream_options")
	if len(options) > 0 && options[0] != '{' {
		return Edit{}, false // for the engine to refuse
	}
	if len(options) == 0 {
		return Set("stream_options", []byte("{"+asked+"}")), true
	}
	inner := Request{body: options, open: 1}
	for f := fieldsOf(options); f.next(); {
		inner.fields = append(inner.fields, field{bytes.Clone(f.name), f.from, f.start, f.s.i})
	}
	return Set("stream_options", Splice(&inner, Set("include_usage", []byte("true")))), true
}

// appendText appends a JSON string. What is no UTF-8 becomes U+FFFD.
func appendText(out []byte, text string) []byte {
	return append(out, encode(text)...)
}
