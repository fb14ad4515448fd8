package ui

import (
	"bytes"
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// dist is the built page, or the tracked placeholder that says how to build it.
//
//go:embed all:web/dist
var dist embed.FS

// page serves the built page to anyone: it holds no data, only the code that
// asks for it.
func (u *UI) page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			u.answer(noFile).ServeHTTP(w, r)
			return
		}
		name, content, ok := file(strings.TrimPrefix(r.URL.Path, "/"))
		if !ok {
			u.answer(noFile).ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", caching(name))
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
}

// file finds a part of the page by its URL path without the leading slash.
func file(name string) (string, []byte, bool) {
	if name == "" {
		name = "index.html"
	}
	if !servable(name) {
		return "", nil, false
	}
	content, err := fs.ReadFile(dist, path.Join("web/dist", name))
	if err != nil && name == "index.html" {
		content, err = fs.ReadFile(dist, "web/dist/placeholder.html")
	}
	return name, content, err == nil
}

// servable keeps to what the build makes for browsers.
func servable(name string) bool {
	return name == "index.html" || name == "favicon.svg" || (strings.HasPrefix(name, "assets/") && fs.ValidPath(name))
}

// caching: assets carry their hash in their names and never change; the page
// that names them does with each version.
func caching(name string) string {
	if strings.HasPrefix(name, "assets/") {
		return "public, max-age=31536000, immutable"
	}
	return "no-cache"
}

func noFile(_ http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return &APIError{Status: http.StatusMethodNotAllowed, Type: "invalid_request_error",
			Code: "method_not_allowed", Message: r.URL.Path + " does not take " + r.Method}
	}
	return &Error{Kind: NotFound, Message: "there is no page " + r.URL.Path, Hint: "the page is at /, the API at /v1/"}
}
