package openai

import "bytes"

// Prompt is where a body holds what an engine computes first, as raw JSON: it
// is hashed, never decoded. The slices are parts of the body.
type Prompt struct {
	Tools []byte // the value; empty: none
	// Session is the conversation's name, raw: prompt_cache_key, else user;
	// empty: it has none.
	Session []byte
	// Other is the bytes of further input, which no cache of prefixes holds.
	Other int

	cacheKey, user []byte
	system         []byte // what stands before all messages
	text           []byte // the value of messages, prompt or input
	list           bool   // it is a list of messages or items
	start          int    // of text within the body
	commas         []int  // between its elements, within the body
}

// note keeps a field's value; of doubled keys the last counts.
func (p *Prompt) note(name string, raw []byte, start int, commas []int) {
	switch name {
	case "tools":
		p.Tools = set(raw)
	case "messages":
		p.text, p.list, p.start, p.commas = set(raw), true, start, commas
	case "system", "instructions":
		p.system = set(raw)
	case "prompt":
		p.text, p.list = set(raw), false
	case "prompt_cache_key":
		p.cacheKey = set(raw)
	case "input":
		if !isObjectList(raw) {
			p.Other += len(raw)
			break
		}
		p.text, p.list, p.start, p.commas = set(raw), true, start, commas
	case "documents":
		p.Other += len(raw)
	case "user":
		p.user = set(raw)
	default:
		return
	}
	if p.Session = p.cacheKey; len(p.Session) == 0 {
		p.Session = p.user
	}
}

func isObjectList(raw []byte) bool { return (&scanner{b: raw}).listsObjects() }

// set takes null and the empty text for absent.
func set(raw []byte) []byte {
	if string(raw) == "null" || string(raw) == `""` {
		return nil
	}
	return raw
}

// Elements calls yield with the system prompt that stands beside the messages,
// if there is one, and with each message or item, or once with the whole
// prompt, without the brackets or quotes around it and the space between.
func (p *Prompt) Elements(yield func(raw []byte)) {
	if len(p.system) > 0 {
		yield(p.system)
	}
	if len(p.text) < 2 {
		return
	}
	inner := p.text[1 : len(p.text)-1]
	if !p.list {
		yield(inner)
		return
	}
	from := 0
	for _, comma := range p.commas {
		to := comma - p.start - 1
		yield(bytes.TrimSpace(inner[from:to]))
		from = to + 1
	}
	if last := bytes.TrimSpace(inner[from:]); len(last) > 0 {
		yield(last)
	}
}
