package openai

import (
	"encoding/json"
	"fmt"
)

const (
	// maxDepth bounds nesting. Tool schemas reach a few dozen levels; engines
	// that parse by recursion overflow their stack far above this.
	maxDepth = 512
	// maxModelBytes bounds the raw text of a model's name.
	maxModelBytes = 1024
)

// Request is what the head needs to know of a request's body.
type Request struct {
	Model  string // empty: absent or null
	Stream bool
}

// SyntaxError says where a body stops being JSON and what would have fitted.
type SyntaxError struct {
	Offset   int    // bytes before the fault
	Expected string // for a person
	Found    string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: expected %s, found %s", e.Offset, e.Expected, e.Found)
}

// FieldError says that a field has the wrong type or size.
type FieldError struct {
	Param string
	Want  string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%q must be %s", e.Param, e.Want) }

// Scan checks that body is one JSON object and picks the fields that routing
// needs, in one pass and without decoding anything else: prompts are tens of
// megabytes, and what the head does not understand it must not change. Of
// doubled keys the last counts, as in the engines' own parsers; null equals
// absent. Invalid UTF-8 and lone surrogates are left to the engine.
// Errors are *SyntaxError or *FieldError.
func Scan(body []byte) (Request, error) { return ScanPrompt(body, nil) }

// ScanPrompt is Scan that also notes in p, unless nil, where the prompt is.
func ScanPrompt(body []byte, p *Prompt) (Request, error) {
	s := scanner{b: body}
	var req Request
	if err := s.object(&req, p); err != nil {
		return Request{}, err
	}
	if s.space(); s.i < len(s.b) {
		return Request{}, s.fail("the end of the body")
	}
	return req, nil
}

// object scans the outermost object, whose fields are looked at.
func (s *scanner) object(req *Request, p *Prompt) error {
	s.space()
	if !s.take('{') {
		return s.fail("a JSON object")
	}
	if s.space(); s.take('}') {
		return nil
	}
	for {
		key, err := s.key()
		if err != nil {
			return err
		}
		if err := s.field(key, req, p); err != nil {
			return err
		}
		s.space()
		switch {
		case s.take('}'):
			return nil
		case !s.take(','):
			return s.fail(`"," or "}"`)
		}
		s.space()
	}
}

// field scans one value of the outermost object and keeps what it is for.
func (s *scanner) field(key []byte, req *Request, p *Prompt) error {
	s.space()
	start, name := s.i, string(plain(key))
	if s.mark = p != nil && name == "messages"; s.mark {
		s.marks = s.marks[:0]
	}
	if err := s.value(); err != nil {
		return err
	}
	raw := s.b[start:s.i]
	switch name {
	case "model":
		return readModel(raw, req)
	case "stream":
		return readStream(raw, req)
	}
	if p != nil {
		p.note(name, raw, start, s.marks)
	}
	return nil
}

func readModel(raw []byte, req *Request) error {
	req.Model = ""
	switch {
	case string(raw) == "null":
		return nil
	case raw[0] != '"':
		return &FieldError{Param: "model", Want: "a string"}
	case len(raw) > maxModelBytes:
		return &FieldError{Param: "model", Want: fmt.Sprintf("at most %d bytes long", maxModelBytes)}
	}
	req.Model = string(plain(raw))
	return nil
}

func readStream(raw []byte, req *Request) error {
	switch string(raw) {
	case "true":
		req.Stream = true
	case "false", "null":
		req.Stream = false
	default:
		return &FieldError{Param: "stream", Want: "true or false"}
	}
	return nil
}

// plain takes the quotes off a valid JSON string and undoes its escapes. A
// long string with escapes is returned as it is: it is no key of ours.
func plain(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	for _, c := range inner {
		if c != '\\' {
			continue
		}
		if len(quoted) > maxModelBytes {
			return inner
		}
		var text string
		if err := json.Unmarshal(quoted, &text); err != nil {
			return inner
		}
		return []byte(text)
	}
	return inner
}
