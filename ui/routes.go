package ui

import (
	"net/http"
	"slices"
	"strings"
)

// access says who may use a route.
type access int

const (
	closed     access = iota // nobody; the zero value, so that a forgotten word opens nothing
	anyone                   // strangers too; such a route must show no data
	session                  // a browser with a session, and the socket
	socketOnly               // the unix socket alone
)

const prefix = "/admin/v1/"

// route is one method and path of the admin API.
type route struct {
	method string
	path   string // under prefix; may end in one {wildcard}
	who    access
	serve  handler
}

// handler answers a request or returns why not; it must not do both.
type handler func(w http.ResponseWriter, r *http.Request) error

// routes is the whole admin API.
func (u *UI) routes() []route {
	b := u.cfg.Backend
	return slices.Concat(u.memberRoutes(), u.stateRoutes(), u.doctorRoutes(), u.settingRoutes(), u.documentRoutes(), u.nameRoutes(), u.accessRoutes(), u.outsideRoutes(), []route{
		{"GET", "status", session, read(b.Status)},
		{"GET", "overview", session, read(u.overview)},
		{"GET", "nodes", session, read(u.nodes)},
		{"GET", "models", session, read(listed(b.Models, func(l List[Model]) ModelList { return ModelList{Models: l} }))},
		{"GET", "replicas", session, read(listed(b.Replicas, func(l List[Replica]) ReplicaList { return ReplicaList{Replicas: l} }))},
		{"GET", "engines", session, read(listed(b.Engines, func(l List[Engine]) EngineList { return EngineList{Engines: l} }))},
		{"GET", "keys", session, read(listed(b.Keys, func(l List[Key]) KeyList { return KeyList{Keys: l} }))},
		{"GET", "tokens", session, read(listed(b.Tokens, func(l List[Token]) TokenList { return TokenList{Tokens: l} }))},
		{"GET", "config", session, read(listed(b.Config, func(l List[Setting]) SettingList { return SettingList{Settings: l} }))},
		{"POST", "session", anyone, u.postSession},
		{"DELETE", "session", session, u.deleteSession},
		{"POST", "models/load", socketOnly, accept(b.Load)},
		{"POST", "models/unload", socketOnly, accept(b.Unload)},
		{"POST", "models/remove", socketOnly, accept(b.RemoveModel)},
		{"POST", "models/pull", socketOnly, followed(u, b.Pull, func(m Model) PullResult { return PullResult{Model: m} })},
		{"POST", "models/why", socketOnly, accept(b.Why)},
		{"POST", "models/settings", socketOnly, accept(b.SetModel)},
		{"POST", "nodes/settings", socketOnly, accept(b.SetNode)},
		{"POST", "whatif", socketOnly, accept(b.WhatIf)},
		{"POST", "engines/install", socketOnly, followed(u, b.InstallEngine, func(e Engine) InstallResult { return InstallResult{Engine: e} })},
		{"POST", "tokens", socketOnly, accept(b.NewToken)},
		{"POST", "join", socketOnly, accept(b.Join)},
		{"POST", "leave", socketOnly, accept(bare(b.Leave))},
		{"POST", "keys", socketOnly, accept(b.NewKey)},
		{"POST", "keys/first", socketOnly, accept(bare(b.FirstKey))},
		{"DELETE", "keys/{key}", socketOnly, remove("key", b.RevokeKey)},
		{"POST", "ui-link", socketOnly, accept(u.newLink)},
	})
}

// socketDoor opens every declared route.
func (u *UI) socketDoor() http.Handler {
	return u.api(openDeclared)
}

func openDeclared(rt route, next handler) handler {
	if rt.who == closed {
		return refuseClosed
	}
	return next
}

// publicDoor opens the page, and of the admin API what the request's session
// allows.
func (u *UI) publicDoor() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(prefix, u.api(u.guardRoute))
	mux.Handle("/", u.page())
	return u.guard(mux)
}

// guardRoute asks for what the route declares.
func (u *UI) guardRoute(rt route, next handler) handler {
	switch rt.who {
	case anyone:
		return next
	case session:
		return u.withSession(next)
	case socketOnly:
		return u.withSession(refuseWrite)
	default:
		return u.withSession(refuseClosed)
	}
}

// api serves the routes, each behind what door makes of it. What is not a
// route goes through the door as a closed one: a stranger cannot tell routes
// from gaps.
func (u *UI) api(door func(route, handler) handler) http.Handler {
	mux := http.NewServeMux()
	all := u.routes()
	for _, rt := range all {
		mux.Handle(rt.method+" "+prefix+rt.path, u.answer(door(rt, rt.serve)))
	}
	mux.Handle(prefix, u.answer(door(route{who: session}, notRouted(all))))
	return mux
}

// notRouted tells a wrong path from a wrong method.
func notRouted(all []route) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var allowed []string
		for _, rt := range all {
			if samePath(rt.path, strings.TrimPrefix(r.URL.Path, prefix)) {
				allowed = append(allowed, rt.method)
			}
		}
		if len(allowed) == 0 {
			return &Error{Kind: NotFound, Message: "there is no admin route " + r.URL.Path}
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return &APIError{Status: http.StatusMethodNotAllowed, Type: "invalid_request_error", Code: "method_not_allowed",
			Message: r.URL.Path + " does not take " + r.Method, Hint: "use " + strings.Join(allowed, " or ")}
	}
}

func samePath(pattern, path string) bool {
	before, _, wild := strings.Cut(pattern, "{")
	if wild {
		return strings.HasPrefix(path, before) && len(path) > len(before)
	}
	return pattern == path
}

func refuseClosed(http.ResponseWriter, *http.Request) error {
	return &Error{Kind: Forbidden, Message: "this admin route is closed"}
}

func refuseWrite(http.ResponseWriter, *http.Request) error {
	return &Error{Kind: Forbidden, Code: "command_line_only",
		Message: "the page shows the mesh and does not change it",
		Hint:    "use the llmgw command on a box of the mesh"}
}
