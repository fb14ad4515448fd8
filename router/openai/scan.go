package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
)

const (
	// maxDepth bounds nesting. Tool schemas reach a few dozen levels; engines
	// that parse by recursion overflow their stack far above this.
	maxDepth = 512
	// maxModelBytes bounds the raw text of a model's name.
	maxModelBytes = 1024
	// maxFields bounds the outermost object. All APIs together have about a
	// hundred; each costs memory of its own.
	maxFields = 1024
)

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
	req := Request{body: body}
	if err := s.object(&req, p); err != nil {
		return Request{}, err
	}
	if s.space(); s.i < len(s.b) {
		return Request{}, s.fail("the end of the body")
	}
	req.finish(s.media)
	return req, nil
}

// object scans the outermost object, whose fields are looked at.
func (s *scanner) object(req *Request, p *Prompt) error {
	s.space()
	if !s.take('{') {
		return s.fail("a JSON object")
	}
	req.open = s.i
	if s.space(); s.take('}') {
		return nil
	}
	for {
		from := s.i
		key, err := s.key()
		if err != nil {
			return err
		}
		if err := s.field(key, from, req, p); err != nil {
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
func (s *scanner) field(key []byte, from int, req *Request, p *Prompt) error {
	s.space()
	start, name := s.i, plain(key)
	s.watch = isPrompt(string(name))
	if s.mark = p != nil && (string(name) == "messages" || s.watch && s.listsObjects()); s.mark {
		s.marks = s.marks[:0]
	}
	s.commas = 0
	if err := s.value(); err != nil {
		return err
	}
	if len(req.fields) == maxFields {
		return s.fail(fmt.Sprintf("at most %d fields", maxFields))
	}
	req.fields = append(req.fields, field{name, from, start, s.i})
	raw := s.b[start:s.i]
	if err := req.note(string(name), raw, s.commas); err != nil {
		return err
	}
	if p != nil {
		var commas []int
		if s.mark {
			commas = s.marks
		}
		p.note(string(name), raw, start, commas)
	}
	return nil
}

// isPrompt reports fields whose lists are conversations.
func isPrompt(name string) bool { return name == "messages" || name == "input" }

// listsObjects reports that the value at hand is a list that begins with an
// object: a conversation, not texts or tokens to embed.
func (s *scanner) listsObjects() bool {
	rest := bytes.TrimLeft(s.b[s.i:], " \t\r\n")
	return len(rest) > 0 && rest[0] == '[' && bytes.HasPrefix(bytes.TrimLeft(rest[1:], " \t\r\n"), []byte("{"))
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
