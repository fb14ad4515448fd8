package openai

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// scanner walks JSON text without recursion and without allocating. The kind
// of each open bracket is one bit, so the depth costs no memory of its own.
type scanner struct {
	b       []byte
	i       int
	depth   int
	objects [maxDepth / 64]uint64 // bit set: the bracket at that depth is "{"
	mark    bool                  // the commas between a value's elements are wanted
	marks   []int                 // where they are
	commas  int                   // how many they are
	watch   bool                  // kinds of media among the texts are wanted
	media   bool                  // one was there
}

func (s *scanner) fail(expected string) error {
	found := "the end of the body"
	if s.i < len(s.b) {
		found = fmt.Sprintf("%q", s.b[s.i:s.i+1])
	}
	return &SyntaxError{Offset: s.i, Expected: expected, Found: found}
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\n', '\r', '\t':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// key scans a member's name and the colon behind it; the result has quotes.
func (s *scanner) key() ([]byte, error) {
	start := s.i
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, s.fail("a key in quotes")
	}
	if err := s.str(); err != nil {
		return nil, err
	}
	key := s.b[start:s.i]
	if s.space(); !s.take(':') {
		return nil, s.fail(`":"`)
	}
	return key, nil
}

// value scans one value with everything in it.
func (s *scanner) value() error {
	s.depth = 0
	for {
		opened, err := s.begin()
		if err != nil {
			return err
		}
		if opened {
			continue
		}
		more, err := s.after()
		if err != nil {
			return err
		}
		if !more {
			return nil
		}
	}
}

// begin scans a value that is no container or an empty one, or enters a
// container up to its first value, which it reports.
func (s *scanner) begin() (bool, error) {
	s.space()
	if s.i >= len(s.b) {
		return false, s.fail("a value")
	}
	switch c := s.b[s.i]; {
	case c == '{' || c == '[':
		return s.open(c == '{')
	case c == '"':
		return false, s.text()
	case c == '-' || c >= '0' && c <= '9':
		return false, s.number()
	case c == 't':
		return false, s.literal("true")
	case c == 'f':
		return false, s.literal("false")
	case c == 'n':
		return false, s.literal("null")
	}
	return false, s.fail("a value")
}

func (s *scanner) open(object bool) (bool, error) {
	if s.depth == maxDepth {
		return false, s.fail(fmt.Sprintf("at most %d levels of nesting", maxDepth))
	}
	s.i++
	s.space()
	if !object {
		if s.take(']') {
			return false, nil
		}
		s.push(false)
		return true, nil
	}
	if s.take('}') {
		return false, nil
	}
	s.push(true)
	_, err := s.key()
	return true, err
}

func (s *scanner) push(object bool) {
	word, bit := s.depth/64, uint64(1)<<(s.depth%64)
	if object {
		s.objects[word] |= bit
	} else {
		s.objects[word] &^= bit
	}
	s.depth++
}

func (s *scanner) inObject() bool {
	d := s.depth - 1
	return s.objects[d/64]&(1<<(d%64)) != 0
}

// after scans what follows a value: closing brackets, then a comma with, in an
// object, the next key. It reports whether another value comes.
func (s *scanner) after() (bool, error) {
	for s.depth > 0 {
		s.space()
		object := s.inObject()
		switch {
		case s.take(','):
			if s.depth == 1 {
				s.comma()
			}
			if object {
				s.space()
				_, err := s.key()
				return true, err
			}
			return true, nil
		case object && s.take('}'), !object && s.take(']'):
			s.depth--
		case object:
			return false, s.fail(`"," or "}"`)
		default:
			return false, s.fail(`"," or "]"`)
		}
	}
	return false, nil
}

func (s *scanner) literal(word string) error {
	for k := range len(word) {
		if !s.take(word[k]) {
			return s.fail(word)
		}
	}
	return nil
}

func (s *scanner) number() error {
	s.take('-')
	if !s.take('0') {
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.take('.') {
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) digits() error {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	if s.i == start {
		return s.fail("a digit")
	}
	return nil
}

func (s *scanner) comma() {
	if s.commas++; s.mark {
		s.marks = append(s.marks, s.i-1)
	}
}

// text scans a string that is a value.
func (s *scanner) text() error {
	start := s.i
	err := s.str()
	if s.watch && s.i-start <= longestMedia {
		s.media = s.media || mediaOf(s.b[start:s.i]) != noMedia
	}
	return err
}

// str scans a string; s.i is at its opening quote.
func (s *scanner) str() error {
	s.i++
	for {
		s.skipText()
		if s.i >= len(s.b) {
			return s.fail("the closing quote of a string")
		}
		switch c := s.b[s.i]; c {
		case '"':
			s.i++
			return nil
		case '\\':
			if err := s.escape(); err != nil {
				return err
			}
		default:
			return s.fail("an escape such as \\n in place of a control character")
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// skipText moves to the next quote, backslash or control character, eight
// bytes at a time: nearly all of a body is text between quotes.
func (s *scanner) skipText() {
	b, i := s.b, s.i
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		// A borrow can set bits above the first match, never below it.
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*0x20)&^x) & highs
		if hit != 0 {
			s.i = i + bits.TrailingZeros64(hit)/8
			return
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
		i++
	}
	s.i = i
}

func (s *scanner) escape() error {
	s.i++
	if s.i >= len(s.b) {
		return s.fail("an escape")
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return nil
	case 'u':
		s.i++
		return s.hex4()
	}
	return s.fail("an escape")
}

func (s *scanner) hex4() error {
	for range 4 {
		if s.i >= len(s.b) || !isHex(s.b[s.i]) {
			return s.fail("four hex digits")
		}
		s.i++
	}
	return nil
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
