package openai

// UsageSource says how the figures of a Usage came about.
type UsageSource string

// Sources of usage, the best first.
const (
	UsageEngine    UsageSource = "engine"    // the engine told
	UsageCounted   UsageSource = "counted"   // from what was relayed
	UsageEstimated UsageSource = "estimated" // from the request's size alone
)

// Usage is what one request used. Zero means none, or not of this kind.
type Usage struct {
	Input      uint64 // tokens of the prompt, Cached and CacheWrite among them
	Cached     uint64 // of Input: read from the engine's cache
	CacheWrite uint64 // of Input: written to a cache that is paid for
	Output     uint64 // tokens of the answer, reasoning among them
	AudioIn    uint64 // of Input: tokens of audio
	AudioOut   uint64 // of Output: tokens of audio
	Images     uint64 // pictures made
	Source     UsageSource
}
