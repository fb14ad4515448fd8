package openai

import "bytes"

// volatileMarks begin lines that agents put first into their system prompt and
// that change with each turn: accounting of theirs, which no model needs.
var volatileMarks = [][]byte{
	[]byte("x-anthropic-billing-header:"),
}

// volatileWithin is how near the beginning of a prompt such a line stands, in
// raw bytes.
const volatileWithin = 512

// Volatile finds the line within the raw JSON of a prompt's first element, its
// line end included; from is -1: there is none. What is before and after it is
// still the raw text of the same JSON string.
func Volatile(element []byte) (from, to int) {
	head := element[:min(len(element), volatileWithin)]
	for _, mark := range volatileMarks {
		from = bytes.Index(head, mark)
		if from < 0 || from == 0 || head[from-1] != '"' && !bytes.HasSuffix(head[:from], []byte(`\n`)) {
			continue
		}
		return from, from + lineOf(element[from:])
	}
	return -1, -1
}

// lineOf gives the length of the first line of what is left of a raw JSON
// string: up to and with an escaped line end, or up to the quote that ends it.
func lineOf(raw []byte) int {
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			return i
		case '\\':
			if i+1 < len(raw) && raw[i+1] == 'n' {
				return i + 2
			}
			i++
		}
	}
	return len(raw)
}
