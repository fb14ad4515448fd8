package router

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"llmgw/mesh/catalog"
	"llmgw/router/openai"
)

// models lists each model of the mesh once, loaded or not, and says of the
// latter what to type.
func (r *Router) models(t *request) {
	views := t.visible(r.views())
	if t.ofAnotherMesh() {
		views = slices.DeleteFunc(views, ModelView.provided)
	}
	list := openai.ModelList{Object: "list", Data: make([]openai.Model, 0, len(views))}
	for _, view := range views {
		list.Data = append(list.Data, describe(view))
	}
	if len(views) == 0 {
		list.LLMGW = &openai.ListDetail{Node: r.cfg.Node, Hint: "no models yet: " + pullHint}
	}
	t.json(list)
}

// ofAnotherMesh says that another mesh asks for the models. It is told of those that are
// here alone: two that list each other's would keep what is gone from both for ever.
func (t *request) ofAnotherMesh() bool {
	return slices.ContainsFunc(t.req.Header["Via"], func(v string) bool { return strings.Contains(v, viaPrefix) })
}

// viaPrefix begins what a mesh calls itself to providers.
const viaPrefix = "llmgw-"

// Via names a mesh to providers.
func Via(tag string) string { return viaPrefix + tag }

// provided says that only providers answer to a name.
func (v ModelView) provided() bool {
	return v.Outside && !slices.ContainsFunc(v.Replicas, func(c Replica) bool { return c.Provider.Sponsor != "" })
}

func (r *Router) oneModel(t *request) {
	view, ok := r.cfg.Catalog.Resolve(t.route.model)
	if !ok || len(t.visible([]ModelView{view})) == 0 {
		t.fail(unknownModel(t.route.model, t.names()))
		return
	}
	t.json(describe(view))
}

func (r *Router) views() []ModelView {
	return slices.SortedFunc(slices.Values(r.cfg.Catalog.List()), func(a, b ModelView) int {
		return strings.Compare(a.Model.ID, b.Model.ID)
	})
}

// visible leaves of models those that the key may use.
func (t *request) visible(views []ModelView) []ModelView {
	return slices.DeleteFunc(views, func(v ModelView) bool { return !t.key.AllowsModel(modelNames(v.Model)...) })
}

// names lists what the request's key may ask for.
func (t *request) names() []string {
	var names []string
	for _, view := range t.visible(t.r.views()) {
		names = append(names, view.Model.Name)
	}
	return names
}

func describe(view ModelView) openai.Model {
	d := &openai.ModelDetail{
		State: "ready", Replicas: len(view.Replicas), Aliases: view.Model.Aliases,
		Context: view.context(), MaxOutput: int64(view.Model.Limits.MaxOutput),
	}
	for _, c := range view.Replicas {
		if !slices.Contains(d.Nodes, c.Node) {
			d.Nodes = append(d.Nodes, c.Node)
		}
	}
	switch {
	case view.Model.State == catalog.ModelStopped:
		d.State, d.Hint = "stopped", stopped(view).Hint
	case len(view.Replicas) == 0:
		d.State, d.Hint, d.Problem = "not_loaded", notLoaded(view).Hint, view.Problem
	}
	return openai.Model{ID: view.Model.Name, Object: "model", Created: view.Model.Created, OwnedBy: "llmgw", LLMGW: d}
}

// context is how many tokens one request may have; 0: it is not known.
func (v ModelView) context() int64 {
	most := 0
	for _, c := range v.Replicas {
		most = max(most, c.Context)
	}
	if most > 0 {
		return int64(most)
	}
	if len(v.Model.Profiles) > 0 {
		return int64(v.Model.ContextTokens(v.Model.Profiles[0]))
	}
	return int64(v.Model.Limits.Context)
}

// lacks says that all replicas are known to lack something.
func (v ModelView) lacks(a catalog.Ability) bool {
	for _, c := range v.Replicas {
		if !slices.Contains(c.Lacks, a) {
			return false
		}
	}
	return len(v.Replicas) > 0
}

func (t *request) json(v any) {
	body, err := json.Marshal(v)
	if err != nil {
		// Plain structs of strings and numbers cannot fail to encode.
		panic(err)
	}
	t.raw(append(body, '\n'))
}

// raw answers with a JSON document.
func (t *request) raw(body []byte) {
	h := t.out.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	t.out.stamp(h)
	t.out.WriteHeader(http.StatusOK)
	_, _ = t.out.w.Write(body)
}
