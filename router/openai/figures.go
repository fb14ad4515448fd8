package openai

import "strconv"

// figure is one number of an engine; of several tellings the largest.
type figure struct {
	n    uint64
	told bool
}

func (f *figure) tell(raw []byte) {
	n, ok := number(raw)
	if !ok {
		return
	}
	f.n, f.told = max(f.n, n), true
}

// number reads a count. Text, null, a list, a negative number and the like are
// as good as nothing told.
func number(raw []byte) (uint64, bool) {
	if len(raw) == 0 || len(raw) > 32 || raw[0] < '0' || raw[0] > '9' {
		return 0, false
	}
	if n, err := strconv.ParseUint(string(raw), 10, 53); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f >= 1<<53 {
		return 0, false
	}
	return uint64(f), true
}

// figures are what engines tell, by the names of all APIs.
type figures struct {
	input, output, total       figure // usage
	cached                     figure // of input
	cacheRead, cacheWrite      figure // Messages: not part of its input
	audioIn, audioOut          figure
	cacheN, promptN, predicted figure // llama.cpp
}

func (f *figures) usage(object []byte) {
	for m := fieldsOf(object); m.next(); {
		switch string(m.name) {
		case "prompt_tokens", "input_tokens":
			f.input.tell(m.value)
		case "completion_tokens", "output_tokens":
			f.output.tell(m.value)
		case "total_tokens":
			f.total.tell(m.value)
		case "cache_read_input_tokens":
			f.cacheRead.tell(m.value)
		case "cache_creation_input_tokens":
			f.cacheWrite.tell(m.value)
		case "prompt_cache_hit_tokens":
			f.cached.tell(m.value)
		case "prompt_tokens_details", "input_tokens_details", "input_token_details":
			f.details(m.value, &f.audioIn)
		case "completion_tokens_details", "output_tokens_details":
			f.details(m.value, &f.audioOut)
		}
	}
}

func (f *figures) details(object []byte, audio *figure) {
	for m := fieldsOf(object); m.next(); {
		switch string(m.name) {
		case "cached_tokens":
			f.cached.tell(m.value)
		case "audio_tokens":
			audio.tell(m.value)
		}
	}
}

func (f *figures) timings(object []byte) {
	for m := fieldsOf(object); m.next(); {
		switch string(m.name) {
		case "cache_n":
			f.cacheN.tell(m.value)
		case "prompt_n":
			f.promptN.tell(m.value)
		case "predicted_n":
			f.predicted.tell(m.value)
		}
	}
}

func (f *figures) cacheTold() bool {
	return f.cached.told || f.cacheRead.told || f.cacheN.told && f.promptN.told
}

// sum brings the figures of all APIs to one form.
func (f *figures) sum() (Usage, bool) {
	u := Usage{
		Input: f.input.n + f.cacheRead.n + f.cacheWrite.n, Output: f.output.n,
		Cached: max(f.cached.n, f.cacheRead.n), CacheWrite: f.cacheWrite.n,
		AudioIn: f.audioIn.n, AudioOut: f.audioOut.n,
	}
	if !f.input.told && f.promptN.told {
		u.Input = f.promptN.n + f.cacheN.n
	}
	if !f.cached.told && !f.cacheRead.told {
		u.Cached = f.cacheN.n
	}
	if !f.output.told && f.predicted.told {
		u.Output = f.predicted.n
	}
	if u.Input == 0 && f.total.n > u.Output {
		u.Input = f.total.n - u.Output
	}
	u.Cached = min(u.Cached, u.Input)
	known := f.input.told || f.output.told || f.total.told || f.promptN.told || f.predicted.told
	return u, known
}
