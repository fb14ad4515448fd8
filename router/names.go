package router

import (
	"fmt"
	"net/http"
	"strings"

	"llmgw/mesh/catalog"
	"llmgw/router/openai"
)

// meaning is what the name in a request stands for: a model, a model on one
// node, or a route to several.
type meaning struct {
	name    string // as the client wrote it
	routed  bool   // it is a route's
	rule    catalog.RouteRule
	targets []string // MODEL or MODEL@NODE, in order
	params  catalog.Params
}

// meaningOf reads a name. A model's name goes before a route's, and that before
// one that only a provider knows.
func (r *Router) meaningOf(name string) meaning {
	plain := meaning{name: name, rule: catalog.RuleFirst, targets: []string{name}}
	if view, ok := r.cfg.Catalog.Resolve(name); ok && !view.Outside {
		return plain
	}
	route, ok := r.cfg.Catalog.Route(name)
	if !ok {
		return plain
	}
	return meaning{name: name, routed: true, rule: route.Rule, targets: route.Targets, params: route.Params}
}

// offers are the replicas that may answer a request now.
type offers struct {
	views    []ModelView // of the targets that can be used, by rule; each with what of it may answer
	replicas []Replica   // of all views
}

// loadable finds the model to wait for when there is no replica.
func (o offers) loadable() (ModelView, bool) {
	for _, v := range o.views {
		if v.Loadable {
			return v, true
		}
	}
	return ModelView{}, false
}

// view finds the model of a replica.
func (o offers) view(model string) ModelView {
	for _, v := range o.views {
		if v.Model.ID == model {
			return v
		}
	}
	return ModelView{}
}

// look finds what may answer now: a choice is made anew for each attempt, as
// what a refusal told may be in the catalog by now. Without any target that
// could be used, the error says why of the first.
func (i *inference) look() (offers, *openai.Error) {
	var out offers
	var first *openai.Error
	for _, target := range i.means.targets {
		view, e := i.target(target)
		switch {
		case e != nil:
			if first == nil {
				first = e
			}
			continue
		case i.means.rule != catalog.RuleFirst && len(view.Replicas) == 0:
			if i.means.routed { // loaded targets alone are asked for
				view.Loadable = false
			}
		}
		out.views = append(out.views, view)
		out.replicas = append(out.replicas, view.Replicas...)
		if len(view.Replicas) > 0 && i.means.rule != catalog.RuleBalance {
			// The first that is loaded ends the search, so that those before it
			// are loaded only while none is.
			out.views, out.replicas = []ModelView{view}, view.Replicas
			break
		}
	}
	if len(out.views) == 0 {
		if i.means.routed {
			first = i.routeFails(first)
		}
		return offers{}, first
	}
	return out, nil
}

// target resolves one target of the request's name, and leaves of its replicas
// those that can do what is asked for.
func (i *inference) target(target string) (ModelView, *openai.Error) {
	r := i.t.r
	model, node := catalog.SplitTarget(target)
	view, ok := r.cfg.Catalog.Resolve(model)
	switch {
	case !ok:
		return view, unknownModel(model, i.t.names())
	case !i.t.key.AllowsModel(modelNames(view.Model)...):
		return view, noModelRight(view)
	case view.Model.State == catalog.ModelStopped:
		return view, stopped(view)
	}
	if strings.Contains(target, "@") {
		if view, ok = view.on(node); !ok {
			return view, notOnNode(view, node)
		}
	}
	if e := i.bound(view); e != nil {
		return view, e
	}
	view, e := i.usable(view)
	if e != nil {
		return view, e
	}
	if view, ok = i.allowed(view); !ok {
		return view, noNodeRight(view)
	}
	return i.able(view)
}

// modelNames are all names of a model.
func modelNames(m catalog.Model) []string { return append([]string{m.ID}, m.Aliases...) }

// allowed leaves of the replicas those on nodes that the key may use. False:
// there are some, and none of them is.
func (i *inference) allowed(view ModelView) (ModelView, bool) {
	if len(view.Replicas) == 0 {
		return view, true
	}
	replicas := make([]Replica, 0, len(view.Replicas))
	for _, c := range view.Replicas {
		if i.t.key.AllowsNode(c.Labels) {
			replicas = append(replicas, c)
		}
	}
	view.Replicas = replicas
	return view, len(replicas) > 0
}

// on leaves of the replicas those on a node, named by name or peer ID. False:
// there are none, and none is waited for, as nobody places on demand of a name.
func (v ModelView) on(node string) (ModelView, bool) {
	replicas := make([]Replica, 0, 1)
	for _, c := range v.Replicas {
		if c.Peer == node || catalog.FoldName(c.Node) == catalog.FoldName(node) {
			replicas = append(replicas, c)
		}
	}
	v.Replicas, v.Loadable = replicas, false
	return v, len(replicas) > 0
}

func notOnNode(view ModelView, node string) *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "model_not_on_node", Param: "model",
		Message: fmt.Sprintf("the model %q is not ready on a node %q", view.Model.Name, clip(node)),
		Hint:    fmt.Sprintf("llmgw load %s --node %s, or leave out the @ to take any node", view.Model.Name, clip(node)), RetryAfter: loadRetry,
	}
}

// routeFails says that no target of a route can be used, and why the first
// cannot.
func (i *inference) routeFails(why *openai.Error) *openai.Error {
	e := *why
	e.Message = fmt.Sprintf("no target of the route %q can be used; the first: %s", clip(i.means.name), why.Message)
	if e.Status == http.StatusNotFound {
		e.Code, e.Status, e.Type = "model_not_loaded", http.StatusServiceUnavailable, openai.TypeUnavailable
		e.RetryAfter = loadRetry
	}
	e.Hint = "llmgw routes"
	return &e
}
