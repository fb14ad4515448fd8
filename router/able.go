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
	if !i.generates() {
		return nil
	}
	_, e := i.capOf(view)
	return e
}

// generates says that the answer is text of the model.
func (i *inference) generates() bool {
	return i.own.dialect == openai.Chat || i.own.dialect == openai.Responses || i.own.dialect == openai.Messages
}

// capOf is the most tokens that the answer may have; 0: it is not known.
func (i *inference) capOf(view ModelView) (int64, *openai.Error) {
	return openai.EffectiveCap(&i.own.req, int64(view.Model.Limits.MaxOutput), view.context(), int64(i.query.Tokens))
}
