package openai

import (
	"bytes"
	"encoding/json"
)

// CachedTokens finds what an engine tells of the prompt at the end of its
// answer: its tokens, and how many of them it had in its cache. tail may begin
// anywhere; the last usage object in it counts. ok: both were told.
func CachedTokens(tail []byte) (prompt, cached int, ok bool) {
	for end := len(tail); ; {
		at := bytes.LastIndex(tail[:end], []byte(`"usage"`))
		if at < 0 {
			return 0, 0, false
		}
		if prompt, cached, ok = usageAt(tail[at+len(`"usage"`):]); ok {
			return prompt, cached, true
		}
		end = at
	}
}

// usageAt reads the object behind the key. A field of an odd type is as good
// as none.
func usageAt(b []byte) (prompt, cached int, ok bool) {
	s := scanner{b: b}
	if s.space(); !s.take(':') {
		return 0, 0, false
	}
	s.space()
	start := s.i
	if s.value() != nil {
		return 0, 0, false
	}
	var usage struct {
		Prompt  *int `json:"prompt_tokens"`
		Details struct {
			Cached *int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	if json.Unmarshal(b[start:s.i], &usage) != nil || usage.Prompt == nil || usage.Details.Cached == nil {
		return 0, 0, false
	}
	return *usage.Prompt, *usage.Details.Cached, true
}
