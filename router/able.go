package router

import (
	"llmgw/router/openai"
)

// able leaves of a model's replicas those that can do what is asked for.
func (i *inference) able(view ModelView) (ModelView, *openai.Error) {
	return view, nil
}
