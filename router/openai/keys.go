package openai

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// meterKey is one of the keys that a UsageMeter looks for.
type meterKey int

const (
	noKey meterKey = iota
	keyUsage
	keyTimings
	keyDelta
	keyText
)

// longestKey is in bytes, with both quotes.
const longestKey = len(`"timings"`)

// keyAt tells which key p, which begins with a quote, begins with. cut: p is
// the beginning of one.
func keyAt(p []byte) (kind meterKey, length int, cut bool) {
	if len(p) == 1 {
		return noKey, 0, true
	}
	var text string
	switch p[1] {
	case 'd':
		text, kind = `"delta"`, keyDelta
	case 'u':
		text, kind = `"usage"`, keyUsage
	case 't':
		if text, kind = `"timings"`, keyTimings; len(p) == 2 || p[2] == 'e' {
			text, kind = `"text"`, keyText
		}
	default:
		return noKey, 0, false
	}
	if len(p) < len(text) {
		return noKey, 0, string(p) == text[:len(p)]
	}
	if string(p[:len(text)]) != text {
		return noKey, 0, false
	}
	return kind, len(text), false
}

// nextPair finds, from i on, a quote with a letter behind it that begins one
// of the keys, or that ends p; -1: none. It may find others too. Nearly all
// bytes of a stream are looked at here alone, eight at a time.
func nextPair(p []byte, i int) int {
	for ; i+9 <= len(p); i += 8 {
		x, y := binary.LittleEndian.Uint64(p[i:]), binary.LittleEndian.Uint64(p[i+1:])
		quote, d := x^(ones*'"'), y^(ones*'d')
		tu := (y | ones) ^ (ones * 'u') // t and u differ in the last bit
		hit := (quote - ones) &^ quote & ((d-ones)&^d | (tu-ones)&^tu) & highs
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(p); i++ {
		if p[i] == '"' && (i+1 == len(p) || p[i+1] == 'd' || p[i+1] == 't' || p[i+1] == 'u') {
			return i
		}
	}
	return -1
}

// finder finds a quoted key in bytes that come in any cuts. In JSON a quote
// within a text is escaped, so that what it finds is a whole string of its own.
type finder struct{ had int } // bytes of the key that the last cut ended with

// next gives how much of p goes up to the key's end; -1: the key is not in p.
func (f *finder) next(p []byte, key string) int {
	if f.had > 0 {
		i := 0
		for f.had < len(key) && i < len(p) && p[i] == key[f.had] {
			f.had++
			i++
		}
		if f.had == len(key) {
			f.had = 0
			return i
		}
		if i == len(p) {
			return -1
		}
		// The only quotes of a key are its ends: what was matched so far
		// begins no other one.
		f.had = 0
	}
	if at := bytes.Index(p, []byte(key)); at >= 0 {
		return at + len(key)
	}
	tail := p[max(0, len(p)-len(key)+1):]
	if j := bytes.LastIndexByte(tail, '"'); j >= 0 && string(tail[j:]) == key[:len(tail)-j] {
		f.had = len(tail) - j
	}
	return -1
}
