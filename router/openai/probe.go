package openai

import "bytes"

// probeBytes of a delta tell whether it brings something: an empty role,
// content and reasoning_content fit before it.
const probeBytes = 96

// brings reads the start of a delta, from the colon on: a text that is not
// empty, or an object with a text, list or object that is not empty and is
// more than a label. known is false where more bytes would be needed.
func brings(v []byte) (yes, known bool) {
	i := skip(v, 0, ": ")
	if i == len(v) {
		return false, false
	}
	if v[i] == '"' {
		return i+1 < len(v) && v[i+1] != '"', i+1 < len(v)
	}
	if v[i] != '{' {
		return false, true
	}
	for i++; ; {
		if i = skip(v, i, ", "); i == len(v) {
			return false, false
		}
		if v[i] != '"' {
			return false, true
		}
		end := bytes.IndexByte(v[i+1:], '"')
		if end < 0 {
			return false, false
		}
		name := v[i+1 : i+1+end]
		if i = skip(v, i+end+2, ": "); i+1 >= len(v) {
			return false, false
		}
		switch first, second := v[i], v[i+1]; {
		case first == 'n':
			i += len("null")
		case first == '"' && second == '"', first == '[' && second == ']', first == '{' && second == '}':
			i += 2
		case first == '"' && label(name):
			end := bytes.IndexByte(v[i+1:], '"')
			if end < 0 {
				return false, false
			}
			i += end + 2
		default:
			return first == '"' || first == '[' || first == '{', true
		}
		if i > len(v) {
			return false, false
		}
	}
}

// label reports fields of a delta that are no part of the answer's text.
func label(name []byte) bool {
	switch string(name) {
	case "role", "type", "stop_reason", "stop_sequence", "signature", "id":
		return true
	}
	return false
}

func skip(v []byte, i int, set string) int {
	for i < len(v) && (v[i] == set[0] || v[i] == set[1]) {
		i++
	}
	return i
}
