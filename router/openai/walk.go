package openai

// fields walks the members of one JSON object. It stops at what is no JSON.
type fields struct {
	s           scanner
	name, value []byte // of the member at hand; name without quotes and escapes
	from, start int    // of the member and of its value, within what is walked
	opened      bool
}

func fieldsOf(object []byte) fields { return fields{s: scanner{b: object}} }

func (f *fields) next() bool {
	s := &f.s
	s.space()
	switch {
	case !f.opened:
		if f.opened = s.take('{'); !f.opened {
			return false
		}
	case !s.take(','):
		return false
	}
	s.space()
	f.from = s.i
	key, err := s.key()
	if err != nil {
		return false
	}
	s.space()
	f.start = s.i
	if s.value() != nil {
		return false
	}
	f.name, f.value = plain(key), s.b[f.start:s.i]
	return true
}

// elements walks the elements of one JSON list in the same way.
type elements struct {
	s      scanner
	value  []byte
	opened bool
}

func elementsIn(list []byte) elements { return elements{s: scanner{b: list}} }

func (e *elements) next() bool {
	s := &e.s
	s.space()
	switch {
	case !e.opened:
		if e.opened = s.take('['); !e.opened {
			return false
		}
		if s.space(); s.take(']') {
			return false
		}
	case !s.take(','):
		return false
	}
	s.space()
	start := s.i
	if s.value() != nil {
		return false
	}
	e.value = s.b[start:s.i]
	return true
}

// member gives the raw value of an object's member, of doubled ones the last;
// nil: absent, null or no object.
func member(object []byte, name string) []byte {
	var found []byte
	for f := fieldsOf(object); f.next(); {
		if string(f.name) == name {
			found = f.value
		}
	}
	if string(found) == "null" {
		return nil
	}
	return found
}

// textOf gives the value of a raw JSON string; empty: it is none, or is longer
// than anything that the head compares.
func textOf(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' || len(raw) > maxModelBytes {
		return ""
	}
	return string(plain(raw))
}
