package openai

import (
	"fmt"
	"net/http"
	"strconv"
)

// bound is a field that bounds an answer.
type bound struct {
	name  string
	count Count
}

// asked are those of all APIs, the one that counts first.
func (r *Request) asked() [4]bound {
	return [4]bound{
		{"max_completion_tokens", r.MaxCompletionTokens},
		{"max_output_tokens", r.MaxOutputTokens},
		{"max_tokens", r.MaxTokens},
		{"n_predict", r.NPredict},
	}
}

// Asked gives the most tokens that the client wants of an answer; 0: it does
// not say, or wants no bound.
func (r *Request) Asked() int64 {
	for _, a := range r.asked() {
		if a.count.N > 0 {
			return a.count.N
		}
	}
	return 0
}

// EffectiveCap gives the most tokens that an answer may have: what the client
// asks for, else the model's maxOutput, else what the prompt, by its estimate,
// leaves of the context. 0 says unknown for each of the three figures, and of
// the result that the engine has to find out. Asking for more than maxOutput is
// an error that names both.
func EffectiveCap(r *Request, maxOutput, context, prompt int64) (int64, *Error) {
	if maxOutput > 0 {
		for _, a := range r.asked() {
			if a.count.N > maxOutput {
				return 0, &Error{
					Status: http.StatusBadRequest, Type: TypeInvalidRequest, Code: "max_tokens_exceeded", Param: a.name,
					Message: fmt.Sprintf("%s is %d, but the model %q gives at most %d tokens", a.name, a.count.N, r.Model, maxOutput),
				}
			}
		}
	}
	if n := r.Asked(); n > 0 {
		return n, nil
	}
	left := max(context-prompt, 0)
	switch {
	case maxOutput == 0 || context == 0:
		return max(maxOutput, left), nil
	case left == 0:
		// An estimate is no reason to refuse; the engine counts.
		return 0, nil
	}
	return min(maxOutput, left), nil
}

// CapEdits put a cap into a request that has none of its own. An endless
// n_predict goes, as it would count for more than the cap does.
func CapEdits(r *Request, d Dialect, limit int64) []Edit {
	if limit <= 0 || r.Asked() > 0 {
		return nil
	}
	var edits []Edit
	for _, a := range r.asked() {
		if a.count.Set {
			edits = append(edits, Remove(a.name))
		}
	}
	name := "max_tokens"
	if d == Responses {
		name = "max_output_tokens"
	}
	return append(edits, Set(name, strconv.AppendInt(nil, limit, 10)))
}

const (
	// bytesPerToken is the usual ratio of the estimate.
	bytesPerToken = 4
	// fewTokens are never taken for a truncated prompt.
	fewTokens = 1024
	// farUnder is how many times smaller than the estimate a count must be.
	// Prompts of agents reach 30 bytes a token, seven times the usual.
	farUnder = 10
)

// EstimateTokens gives the usual number of tokens of so many bytes of text.
func EstimateTokens(textBytes int) int64 { return int64(textBytes+bytesPerToken-1) / bytesPerToken }

// Truncated reports that an engine read so much less of a prompt than there was
// that it seems to have cut it without a word. told is the engine's count; 0:
// it told none.
func Truncated(told uint64, textBytes int) bool {
	estimate := uint64(EstimateTokens(textBytes))
	return told > 0 && estimate >= fewTokens && told < estimate/farUnder
}
