package router

import (
	"net/http"
	"strings"

	"llmgw/router/openai"
)

// Web pages use the API with a key that names their origin. A browser asks first
// and does not tell the key, so an origin gets leave to ask if any key has it; the
// request itself is held to its own key's.

// exposed are the headers of answers that a page may read.
var exposed = strings.Join([]string{
	"X-Request-Id", "Retry-After", "X-Should-Retry", "Openai-Processing-Ms", "Openai-Version", modelHeader, noteHeader,
	"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
	"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens",
}, ", ")

// maxAskedHeaders bounds what a browser asks leave for, in bytes.
const maxAskedHeaders = 2048

// preflight gives a page's origin leave to ask and to read, and answers a browser
// that only asks for that.
func (t *request) preflight() (answered bool) {
	origin := t.req.Header.Get("Origin")
	asks := t.req.Method == http.MethodOptions && t.req.Header.Get("Access-Control-Request-Method") != ""
	h := t.out.Header()
	if origin != "" {
		h.Add("Vary", "Origin")
	}
	allowed := origin != "" && t.r.cfg.Auth.AllowsOrigin(origin)
	if allowed {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", exposed)
	}
	switch {
	case !asks:
		return false
	case !allowed:
		t.fail(noOrigin(origin))
		return true
	}
	h.Set("Access-Control-Allow-Methods", t.route.allowed())
	if wanted := t.req.Header.Get("Access-Control-Request-Headers"); len(wanted) <= maxAskedHeaders && !strings.ContainsAny(wanted, "\r\n") {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
	if t.req.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true") // boxes are on private networks
	}
	h.Set("Access-Control-Max-Age", "600")
	t.out.WriteHeader(http.StatusNoContent)
	return true
}

// ownOrigin takes the leave back that another key has and this one has not. A key
// that names origins is for them alone.
func (t *request) ownOrigin() *openai.Error {
	origin := t.req.Header.Get("Origin")
	if origin == "" || t.key.AllowsOrigin(origin) {
		return nil
	}
	t.out.Header().Del("Access-Control-Allow-Origin")
	if len(t.key.Origins) == 0 {
		return nil // programs send an Origin, too, and need no leave
	}
	return noOrigin(origin)
}

func noOrigin(origin string) *openai.Error {
	return &openai.Error{
		Status: http.StatusForbidden, Type: openai.TypePermission, Code: "origin_not_allowed",
		Message: "web pages of the origin " + clip(origin) + " may not use this API key, or any",
		Hint:    "llmgw keys set NAME --origins " + clip(origin),
	}
}
