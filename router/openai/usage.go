package openai

import "bytes"

// UsageMeter finds what an answer used while the answer is relayed. It takes
// the body's bytes in any cuts, as an event stream or whole, of every API that
// engines speak: chat, completions, Responses, Messages, embeddings, rerank,
// audio, images, and llama.cpp's timings. It looks for a few keys and decodes
// nothing but the small objects behind them.
//
// Figures that come several times are merged field by field, and the larger
// counts: engines tell running totals, and Messages splits its figures over
// two events. What a client can have echoed, such as a tool's schema, is then
// never to its advantage. The zero value is ready.
type UsageMeter struct {
	// Images counts the pictures of an answer; set it where some are made.
	Images bool

	begun bool
	whole bool     // the body is one JSON document, not a stream
	mode  meterKey // whose value is being read; noKey: keys are looked for
	carry [longestKey]byte
	cut   int // bytes of carry: the beginning of a key that a read ended with
	grab  grab
	probe [probeBytes]byte
	held  int // bytes of probe
	image finder

	told   figures
	deltas uint64
	texts  uint64 // of completions, whose streams have no deltas
	made   uint64 // pictures
}

// Feed takes the next bytes of the body.
func (m *UsageMeter) Feed(p []byte) {
	if !m.begun {
		m.begin(p)
	}
	if m.Images {
		m.pictures(p)
	}
	m.run(p)
}

// begin tells a stream from a document: a stream starts with a field's name or
// a comment.
func (m *UsageMeter) begin(p []byte) {
	p = bytes.TrimLeft(p, " \t\r\n")
	if m.begun = len(p) > 0; m.begun {
		m.whole = p[0] == '{' || p[0] == '['
	}
}

func (m *UsageMeter) pictures(p []byte) {
	for {
		after := m.image.next(p, `"b64_json"`)
		if after < 0 {
			return
		}
		p = p[after:]
		m.made++
	}
}

// run goes through p, at each point either looking for a key or reading what
// is behind one, so that what is found does not depend on how reads were cut.
func (m *UsageMeter) run(p []byte) {
	for len(p) > 0 {
		switch m.mode {
		case noKey:
			p = m.search(p)
		case keyUsage, keyTimings:
			p = m.object(p)
		case keyDelta, keyText:
			p = m.piece(p)
		}
	}
}

// search gives what is behind the next key.
func (m *UsageMeter) search(p []byte) []byte {
	if m.cut > 0 {
		return m.rejoin(p)
	}
	for i := 0; ; i++ {
		if i = nextPair(p, i); i < 0 {
			return nil
		}
		kind, length, cut := keyAt(p[i:])
		if cut {
			m.cut = copy(m.carry[:], p[i:])
			return nil
		}
		if m.wants(kind) {
			m.mode = kind
			return p[i+length:]
		}
	}
}

// rejoin puts the beginning of a key together with what follows it.
func (m *UsageMeter) rejoin(p []byte) []byte {
	had := m.cut
	n := copy(m.carry[had:], p)
	kind, length, cut := keyAt(m.carry[:had+n])
	if cut {
		m.cut = had + n
		return nil
	}
	m.cut = 0
	if !m.wants(kind) {
		return p // a quote ends a key, too: none begins within what was held
	}
	m.mode = kind
	return p[length-had:]
}

func (m *UsageMeter) wants(kind meterKey) bool {
	switch kind {
	case keyDelta:
		return !m.whole
	case keyText:
		return !m.whole && m.deltas == 0
	}
	return kind != noKey
}

func (m *UsageMeter) object(p []byte) []byte {
	n, ended := m.grab.take(p)
	if !ended {
		return nil
	}
	switch {
	case len(m.grab.object) == 0:
	case m.mode == keyUsage:
		m.told.usage(m.grab.object)
	default:
		m.told.timings(m.grab.object)
	}
	m.mode = noKey
	return p[n:]
}

// piece judges the value behind a delta's or a text's key. Keys are looked for
// again from the value's beginning on.
func (m *UsageMeter) piece(p []byte) []byte {
	kind, held := m.mode, m.held
	v, n := p[:min(len(p), probeBytes)], 0
	if held > 0 {
		n = copy(m.probe[held:], p)
		v = m.probe[:held+n]
	}
	yes, known := brings(v)
	if !known && len(v) < probeBytes {
		m.held = copy(m.probe[:], v)
		return nil
	}
	m.mode, m.held = noKey, 0
	if yes && kind == keyDelta {
		m.deltas++
	} else if yes {
		m.texts++
	}
	if held > 0 {
		again := m.probe
		m.run(again[:held+n])
	}
	return p[n:]
}

// fewPieces may be more than an engine's own figure by chance: of tokens that a
// piece was cut from.
const fewPieces = 16

// Usage gives what is known so far: what the engine told, else the number of
// pieces that a stream brought. False: nothing is known, and what the request
// used must be estimated.
func (m *UsageMeter) Usage() (Usage, bool) {
	u, ok := m.told.sum()
	u.Images = m.made
	u.Source = UsageEngine
	if pieces := m.Pieces(); ok && pieces > fewPieces && pieces/2 > u.Output {
		// A stream that was left before its last event told what it began with.
		u.Output, u.Source = pieces, UsageCounted
		return u, true
	}
	if ok || m.made > 0 {
		return u, true
	}
	if u.Output = m.Pieces(); u.Output == 0 {
		return Usage{}, false
	}
	u.Source = UsageCounted
	return u, true
}

// Pieces counts the events of a stream so far that brought something new. Most
// engines send one token each.
func (m *UsageMeter) Pieces() uint64 {
	if m.deltas > 0 {
		return m.deltas
	}
	return m.texts
}

// Cached gives the tokens of the prompt and how many of them the engine had in
// its cache; ok: both were told.
func (m *UsageMeter) Cached() (prompt, cached int, ok bool) {
	u, _ := m.told.sum()
	const most = 1 << 40 // beyond this an engine is mistaken
	if !m.told.cacheTold() || u.Input == 0 || u.Input > most {
		return 0, 0, false
	}
	return int(u.Input), int(u.Cached), true
}
