package router

import (
	"net/http"
	"strings"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/router/keys"
	"llmgw/router/openai"
	"llmgw/router/openai/ollama"
)

// ollamaRoutes are the paths of Ollama's API that tools need which speak
// nothing else.
func ollamaRoute(rest string) (route, bool) {
	lists := func(name string, serve func(*Router, *request)) (route, bool) {
		return route{name: name, method: http.MethodGet, scope: keys.ScopeInfer, dialect: openai.Ollama, serve: serve}, true
	}
	asks := func(name string, streams bool, translate func(*inference) *openai.Error) (route, bool) {
		return route{
			name: name, method: http.MethodPost, scope: keys.ScopeInfer, dialect: openai.Ollama, json: true, streams: streams,
			serve: (*Router).infer, translate: translate,
		}, true
	}
	switch rest {
	case "api/chat":
		return asks("ollama_chat", true, func(i *inference) *openai.Error { return i.ollamaChat(false) })
	case "api/generate":
		return asks("ollama_generate", true, func(i *inference) *openai.Error { return i.ollamaChat(true) })
	case "api/embed":
		return asks("ollama_embed", false, func(i *inference) *openai.Error { return i.ollamaEmbed(false) })
	case "api/embeddings":
		return asks("ollama_embeddings", false, func(i *inference) *openai.Error { return i.ollamaEmbed(true) })
	case "api/tags":
		return lists("ollama_tags", (*Router).ollamaTags)
	case "api/ps":
		return lists("ollama_ps", (*Router).ollamaPS)
	case "api/show":
		return route{name: "ollama_show", method: http.MethodPost, scope: keys.ScopeInfer, dialect: openai.Ollama, serve: (*Router).ollamaShow}, true
	case "api/version":
		return route{name: "ollama_version", method: http.MethodGet, dialect: openai.Ollama, serve: (*Router).ollamaVersion}, true
	}
	return route{}, false
}

// ollamaChat makes a chat completion of the request.
func (i *inference) ollamaChat(generate bool) *openai.Error {
	t := i.t
	read := ollama.Chat
	if generate {
		read = ollama.Generate
	}
	r, e := read(t.body, t.r.contextOf(t.body))
	if e != nil {
		return e
	}
	i.own.form = form{path: "/v1/chat/completions", dialect: openai.Chat, into: ollama.NewAnswer(r.Model, generate, t.r.now)}
	i.adopt(r)
	if r.Body == nil {
		i.loadOnly = func() []byte { return ollama.Loaded(r.Model, generate, t.r.now()) }
	}
	return nil
}

func (i *inference) ollamaEmbed(old bool) *openai.Error {
	t := i.t
	r, e := ollama.Embed(t.body, old)
	if e != nil {
		return e
	}
	i.own.form = form{path: "/v1/embeddings", dialect: openai.Plain, into: embedded{r.Model, old, t.r.now, t.r.now()}}
	i.needs = catalog.AbilityEmbeddings
	i.adopt(r)
	if r.Body == nil {
		i.loadOnly = func() []byte { return ollama.NoEmbedding(r.Model, old) }
	}
	return nil
}

// adopt takes the translated body for the request's own.
func (i *inference) adopt(r *ollama.Request) {
	i.notes(r.Notes)
	if i.t.body = r.Body; r.Body == nil {
		i.t.body = []byte(`{"model":` + quoted(r.Model) + `}`)
	}
}

// contextOf is the context of the model that a body names, in tokens; 0: it is
// not known.
func (r *Router) contextOf(body []byte) int64 {
	name, e := ollama.ModelOf(body)
	if e != nil {
		return 0
	}
	view, ok := r.cfg.Catalog.Resolve(name)
	if !ok {
		return 0
	}
	return view.context()
}

// embedded is the translation of an embeddings answer.
type embedded struct {
	model string
	old   bool
	now   func() time.Time
	began time.Time
}

func (embedded) Feed([]byte) []byte { return nil }
func (embedded) Finish() []byte     { return nil }

func (e embedded) Whole(body []byte) ([]byte, *openai.Error) {
	return ollama.Embedded(e.model, body, e.old, e.now().Sub(e.began))
}

func (r *Router) ollamaTags(t *request) { t.raw(ollama.Tags(ollamaModels(t.visible(r.views())))) }

func (r *Router) ollamaPS(t *request) {
	var loaded []ModelView
	for _, v := range t.visible(r.views()) {
		if v.Loaded {
			loaded = append(loaded, v)
		}
	}
	t.raw(ollama.PS(ollamaModels(loaded)))
}

// ollamaVersion is one that tools take for new enough.
const ollamaVersion = "0.12.0"

func (r *Router) ollamaVersion(t *request) { t.raw(ollama.Version(ollamaVersion)) }

func (r *Router) ollamaShow(t *request) {
	if e := t.read(); e != nil {
		t.fail(e)
		return
	}
	name, e := ollama.ModelOf(t.body)
	if e != nil {
		t.fail(e)
		return
	}
	view, ok := r.cfg.Catalog.Resolve(name)
	if !ok || len(t.visible([]ModelView{view})) == 0 {
		t.fail(unknownModel(name, t.names()))
		return
	}
	t.raw(ollama.Show(ollamaModel(view)))
}

func ollamaModels(views []ModelView) []ollama.Model {
	out := make([]ollama.Model, 0, len(views))
	for _, v := range views {
		out = append(out, ollamaModel(v))
	}
	return out
}

// ollamaModel tells of a model what is known. That a model lacks something is
// known of loaded ones alone.
func ollamaModel(v ModelView) ollama.Model {
	m := ollama.Model{
		Name: v.Model.Name, Modified: time.Unix(v.Model.Created, 0), Size: v.Model.Source.SizeBytes,
		Digest: strings.TrimPrefix(v.Model.Source.Digest, "sha256:"), Format: v.Model.Source.Format,
		Family: v.Model.Source.Architecture, Context: v.context(), Capabilities: []string{"completion"},
	}
	for _, c := range []struct {
		ability catalog.Ability
		name    string
	}{{catalog.AbilityTools, "tools"}, {catalog.AbilityImages, "vision"}, {catalog.AbilityEmbeddings, "embedding"}} {
		if v.Loaded && !v.lacks(c.ability) {
			m.Capabilities = append(m.Capabilities, c.name)
		}
	}
	return m
}
