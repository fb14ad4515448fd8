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

// bounds are those of a dialect: those of another one an engine does not heed,
// however small they are.
func (r *Request) bounds(d Dialect) []bound {
	switch d {
	case Chat:
		return []bound{{"max_completion_tokens", r.MaxCompletionTokens}, {"max_tokens", r.MaxTokens}}
	case Responses:
		return []bound{{"max_output_tokens", r.MaxOutputTokens}}
	case Messages:
		return []bound{{"max_tokens", r.MaxTokens}}
	}
	return nil
}

// Asked gives the most tokens that the client wants of an answer, the largest of
// what it says, as engines differ in which counts; 0: it does not say, or wants no
// bound. n_predict, which llama.cpp alone heeds, and before all others, raises it
// and never is the bound by itself.
func (r *Request) Asked(d Dialect) int64 {
	most := int64(0)
	for _, b := range r.bounds(d) {
		most = max(most, b.count.N)
	}
	if most > 0 {
		most = max(most, r.NPredict.N)
	}
	return most
}

// EffectiveCap gives the most tokens that an answer in a dialect may have: what
// the client asks for, else the model's maxOutput, else what the prompt, by its
// estimate, leaves of the context. 0 says unknown for each of the three figures,
// and of the result that the engine has to find out. Asking for more than maxOutput
// is an error that names both.
func EffectiveCap(r *Request, d Dialect, maxOutput, context, prompt int64) (int64, *Error) {
	if maxOutput > 0 {
		for _, b := range append(r.bounds(d), bound{"n_predict", r.NPredict}) {
			if b.count.N > maxOutput {
				return 0, &Error{
					Status: http.StatusBadRequest, Type: TypeInvalidRequest, Code: "max_tokens_exceeded", Param: b.name,
					Message: fmt.Sprintf("%s is %d, but the model %q gives at most %d tokens", b.name, b.count.N, r.Model, maxOutput),
				}
			}
		}
	}
	if n := r.Asked(d); n > 0 {
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
	own := r.bounds(d)
	if limit <= 0 || len(own) == 0 {
		return nil
	}
	var edits []Edit
	if r.NPredict.Set && r.NPredict.N <= 0 {
		edits = append(edits, Remove("n_predict"))
	}
	if r.Asked(d) > 0 {
		return edits
	}
	for _, b := range own {
		if b.count.Set {
			edits = append(edits, Remove(b.name))
		}
	}
	return append(edits, Set(own[len(own)-1].name, strconv.AppendInt(nil, limit, 10)))
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
