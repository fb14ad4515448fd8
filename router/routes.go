package router

import (
	"net/http"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
	"llmgw/router/keys"
	"llmgw/router/openai"
)

// route is one endpoint of the client API.
type route struct {
	name    string // in metrics
	path    string // canonical, as engines know it
	method  string
	also    string // a second method; empty: none
	scope   string // that a key needs; empty: open
	dialect openai.Dialect
	form    bool            // its body is a form with files, not JSON
	streams bool            // it may be answered by a stream of events
	json    bool            // otherwise by one JSON value
	needs   catalog.Ability // of the replica; empty: all have it
	model   string          // of a GET for one model; of a stored response its ID
	// translate makes another API\'s request of the body; nil: it goes as it is.
	translate func(*inference) *openai.Error
	// instead makes one for replicas that lack what the route needs; nil: there is no
	// other way.
	instead func(*inference) (*shaped, *openai.Error)
	serve   func(*Router, *request)
}

func (r route) allows(method string) bool {
	return method == r.method || r.also != "" && method == r.also || r.method == http.MethodGet && method == http.MethodHead
}

func (r route) allowed() string {
	switch {
	case r.also != "":
		return r.method + ", " + r.also
	case r.method == http.MethodGet:
		return "GET, HEAD"
	}
	return r.method
}

// modelsPath precedes a model's ID, which may itself hold slashes.
const modelsPath = "models/"

// routeOf finds the endpoint of a path as clients write it: with or without
// /v1, doubled /v1, with doubled or trailing slashes.
func routeOf(path string) (route, bool) {
	rest, versions := normalise(path)
	if versions == 0 {
		if r, ok := openRoute(rest); ok {
			return r, true
		}
		if r, ok := ollamaRoute(rest); ok {
			return r, true
		}
	}
	if r, ok := storedRoute(rest); ok {
		return r, true
	}
	if r, ok := fileRoute(rest); ok {
		return r, true
	}
	if id, ok := strings.CutPrefix(rest, modelsPath); ok {
		return route{name: "model", method: http.MethodGet, scope: keys.ScopeInfer, model: id, serve: (*Router).oneModel}, true
	}
	switch rest {
	case "models":
		return route{name: "models", method: http.MethodGet, scope: keys.ScopeInfer, serve: (*Router).models}, true
	}
	r, ok := engineRoutes[rest]
	return r, ok
}

// engineRoutes are the endpoints that engines answer, by their path without
// versions.
var engineRoutes = map[string]route{
	"chat/completions":      engineRoute("chat", "/v1/chat/completions", route{dialect: openai.Chat, streams: true, json: true}),
	"completions":           engineRoute("completions", "/v1/completions", route{dialect: openai.Chat, streams: true, json: true}),
	"responses":             engineRoute("responses", "/v1/responses", route{dialect: openai.Responses, streams: true, json: true, needs: catalog.AbilityResponses, instead: (*inference).responsesByChat}),
	"messages":              engineRoute("messages", "/v1/messages", route{dialect: openai.Messages, streams: true, json: true, needs: catalog.AbilityMessages, instead: (*inference).messagesByChat}),
	"messages/count_tokens": engineRoute("count_tokens", "/v1/messages/count_tokens", route{dialect: openai.Messages, json: true, needs: catalog.AbilityMessages}),
	"embeddings":            engineRoute("embeddings", "/v1/embeddings", route{dialect: openai.Plain, json: true, needs: catalog.AbilityEmbeddings}),
	"rerank":                engineRoute("rerank", "/v1/rerank", route{dialect: openai.Plain, json: true, needs: catalog.AbilityRerank}),
	"v2/rerank":             engineRoute("rerank", "/v2/rerank", route{dialect: openai.Plain, json: true, needs: catalog.AbilityRerank}),
	"audio/transcriptions":  engineRoute("transcriptions", "/v1/audio/transcriptions", route{dialect: openai.Plain, form: true, streams: true, json: true, needs: catalog.AbilityAudio}),
	"audio/translations":    engineRoute("translations", "/v1/audio/translations", route{dialect: openai.Plain, form: true, json: true, needs: catalog.AbilityAudio}),
	"audio/speech":          engineRoute("speech", "/v1/audio/speech", route{dialect: openai.Plain, needs: catalog.AbilitySpeech}),
	"images/generations":    engineRoute("images", "/v1/images/generations", route{dialect: openai.Plain, json: true, needs: catalog.AbilityPictures}),
	"images/edits":          engineRoute("image_edits", "/v1/images/edits", route{dialect: openai.Plain, form: true, json: true, needs: catalog.AbilityPictures}),
	"tokenize":              engineRoute("tokenize", "/tokenize", route{dialect: openai.Plain, json: true, needs: catalog.AbilityTokenize}),
	"detokenize":            engineRoute("detokenize", "/detokenize", route{dialect: openai.Plain, json: true, needs: catalog.AbilityTokenize}),
}

// engineRoute completes an endpoint that engines answer.
func engineRoute(name, path string, r route) route {
	r.name, r.path, r.method = name, path, http.MethodPost
	r.scope, r.serve = keys.ScopeInfer, (*Router).infer
	return r
}

func openRoute(rest string) (route, bool) {
	switch rest {
	case "healthz":
		return route{name: "healthz", method: http.MethodGet, serve: (*Router).health}, true
	case "health": // as llama-server and others call it
		return route{name: "readyz", method: http.MethodGet, serve: (*Router).ready}, true
	case "readyz":
		return route{name: "readyz", method: http.MethodGet, serve: (*Router).ready}, true
	case "metrics":
		return route{name: "metrics", method: http.MethodGet, scope: keys.ScopeMetrics, serve: (*Router).scraped}, true
	}
	return route{}, false
}

// normalise drops empty segments and up to two leading "v1".
func normalise(path string) (rest string, versions int) {
	segments := slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
	for versions < 2 && len(segments) > 0 && segments[0] == "v1" {
		segments = segments[1:]
		versions++
	}
	return strings.Join(segments, "/"), versions
}

// Owns reports whether Handler is to answer path: the client API in all
// spellings, known or not below /v1.
func Owns(path string) bool {
	if _, versions := normalise(path); versions > 0 {
		return true
	}
	_, ok := routeOf(path)
	return ok
}

// relayPath reports the route of a path that a holder may pass to an engine.
func relayPath(path string) (route, bool) {
	r, ok := routeOf(path)
	return r, ok && r.path == path
}
