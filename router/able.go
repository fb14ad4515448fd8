package router

import (
	"fmt"
	"net/http"

	"llmgw/mesh/catalog"
	"llmgw/router/openai"
)

// able leaves of a model's replicas those that can do what is asked for. An
// error names what none of them can; unknown is not lacking.
func (i *inference) able(view ModelView) (ModelView, *openai.Error) {
	if len(view.Replicas) == 0 {
		return view, nil
	}
	replicas := make([]Replica, 0, len(view.Replicas))
	var why *openai.Error
	for _, c := range view.Replicas {
		if e := i.lacking(view.Model, c.Lacks); e == nil {
			replicas = append(replicas, c)
		} else if why == nil {
			why = e
		}
	}
	view.Replicas = replicas
	if len(replicas) > 0 {
		why = nil
	}
	return view, why
}

// lacking says what of the request a replica cannot do; nil: nothing is known.
func (i *inference) lacking(m catalog.Model, lacks []catalog.Ability) *openai.Error {
	shape, e := i.shapeFor(lacks)
	switch {
	case e != nil:
		return e
	case shape == nil:
		return &openai.Error{
			Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeUnsupported, Param: "model",
			Message: fmt.Sprintf("the model %q does not answer %s", m.Name, i.own.path),
			Hint:    "llmgw ps shows which engine serves it",
		}
	}
	return openai.Missing(&shape.req, lacks)
}

// bound says whether the answer may be as long as the client asks.
func (i *inference) bound(view ModelView) *openai.Error {
	_, e := i.capOf(view)
	return e
}

// generates says that the answer is text of the model.
func (i *inference) generates() bool {
	switch i.own.dialect {
	case openai.Chat, openai.Responses, openai.Messages:
		return i.t.route.streams
	}
	return false
}

// capOf is the most tokens that one answer may have; 0: it is not known, or there
// is none. A translation may read what the scan does not, so both count.
func (i *inference) capOf(view ModelView) (most int64, e *openai.Error) {
	if !i.generates() {
		return 0, nil
	}
	for _, shape := range []*shaped{&i.own, i.other, i.called} {
		if shape == nil {
			continue
		}
		n, e := openai.EffectiveCap(&shape.req, shape.dialect, int64(view.Model.Limits.MaxOutput), view.context(), int64(i.prompt()))
		if e != nil {
			return 0, e
		}
		most = max(most, n)
	}
	return most, nil
}

// estimate is the most that a request may use, as far as it says.
func (i *inference) estimate(view ModelView) (openai.Usage, *openai.Error) {
	most, e := i.capOf(view)
	r := &i.own.req
	u := openai.Usage{Input: i.prompt(), Source: openai.UsageEstimated}
	answers := max(r.N.N, r.BestOf.N, 1)
	if i.needs == catalog.AbilityPictures {
		u.Images = uint64(min(answers, maxAnswers))
		return u, e
	}
	if i.own.path == "/v1/completions" {
		answers *= int64(max(r.Inputs, 1))
	}
	u.Output = uint64(min(most, maxTokens)) * uint64(min(answers, maxAnswers))
	return u, e
}

// Tokens that a picture, a sound or a document counts until an engine tells: what
// vision models take for a large picture, and some minutes of speech.
const (
	pictureTokens  = 1500
	soundTokens    = 3000
	documentTokens = 10_000
)

// prompt estimates the prompt for limits and money. Its bytes are no measure of
// what is not text.
func (i *inference) prompt() uint64 {
	r := &i.own.req
	n := openai.EstimateTokens(r.TextBytes) + int64(r.Images)*pictureTokens + int64(r.Audio)*soundTokens + int64(r.Files)*documentTokens
	return uint64(max(n, 1))
}

// maxTokens and maxAnswers keep what clients write from overflowing.
const maxTokens, maxAnswers = 1 << 40, 1 << 20
