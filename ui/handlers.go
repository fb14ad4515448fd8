package ui

import (
	"context"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// maxRequest bounds an admin request; the largest is a join token.
const maxRequest = 64 << 10

// answer runs a handler under a request ID and writes its error, if any.
func (u *UI) answer(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := u.requestID()
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("Cache-Control", "no-store")
		if err := h(w, r); err != nil {
			u.refuse(w, r, id, err)
		}
	})
}

// refuse writes an error and logs it when the fault is ours.
func (u *UI) refuse(w http.ResponseWriter, r *http.Request, id string, err error) {
	api := toAPIError(err, u.cfg.Node, id)
	if api.Status >= http.StatusInternalServerError {
		u.cfg.Log.Error("admin request failed", "method", r.Method, "path", r.URL.Path,
			"request_id", id, "status", api.Status, "error", err)
	}
	writeJSON(w, api.Status, api.body())
}

func (u *UI) requestID() string {
	raw := make([]byte, 10)
	if _, err := io.ReadFull(u.entropy, raw); err != nil {
		return "req-without-entropy" // an ID is for finding a log line, never a secret
	}
	return "req-" + strings.ToLower(base32.StdEncoding.EncodeToString(raw))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A failed write means that the client left; there is nobody to tell.
	_ = json.NewEncoder(w).Encode(v)
}

func ok(w http.ResponseWriter, v any) error {
	writeJSON(w, http.StatusOK, v)
	return nil
}

// answerOf is what a pointer to every type of answer is, by its Schema.
type answerOf[T any] interface {
	*T
	stamp()
}

// accept makes a handler of a backend call that takes and gives JSON. The body
// is read to its end also where nothing is asked: only then does the server
// watch for a client that leaves.
func accept[In, Out any, P answerOf[Out]](call func(context.Context, In) (Out, error)) handler {
	return acceptUpTo[In, Out, P](maxRequest, call)
}

// acceptUpTo is accept for requests of another size, in bytes.
func acceptUpTo[In, Out any, P answerOf[Out]](limit int64, call func(context.Context, In) (Out, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in In
		if err := readJSON(w, r, &in, limit); err != nil {
			return err
		}
		return tell[Out, P](w, func() (Out, error) { return call(r.Context(), in) })
	}
}

// read makes a handler of a backend call that takes nothing.
func read[Out any, P answerOf[Out]](call func(context.Context) (Out, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		return tell[Out, P](w, func() (Out, error) { return call(r.Context()) })
	}
}

func tell[Out any, P answerOf[Out]](w http.ResponseWriter, call func() (Out, error)) error {
	out, err := call()
	if err != nil {
		return err
	}
	P(&out).stamp()
	return ok(w, out)
}

// listed wraps a backend's list into its answer.
func listed[T, Out any](call func(context.Context) ([]T, error), wrap func(List[T]) Out) func(context.Context) (Out, error) {
	return func(ctx context.Context) (Out, error) {
		list, err := call(ctx)
		return wrap(list), err
	}
}

// remove makes a handler that ends what the path's wildcard names.
func remove(wildcard string, call func(context.Context, string) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := call(r.Context(), r.PathValue(wildcard)); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// bare lets a call without input take an empty object.
func bare[Out any](call func(context.Context) (Out, error)) func(context.Context, struct{}) (Out, error) {
	return func(ctx context.Context, _ struct{}) (Out, error) { return call(ctx) }
}

// readJSON reads exactly one JSON object of known fields. Asking for the JSON
// content type keeps plain HTML forms of other sites out.
func readJSON(w http.ResponseWriter, r *http.Request, into any, limit int64) error {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return &APIError{Status: http.StatusUnsupportedMediaType, Type: "invalid_request_error", Code: "not_json",
			Message: fmt.Sprintf("the Content-Type header is %q", r.Header.Get("Content-Type")),
			Hint:    "send the header Content-Type: application/json"}
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badBody(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badBody(errors.New("more follows after the first JSON value"))
	}
	return nil
}

func badBody(err error) error {
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return &APIError{Status: http.StatusRequestEntityTooLarge, Type: "invalid_request_error", Code: "body_too_large",
			Message: fmt.Sprintf("the body is over %d bytes", large.Limit)}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the body is empty")
	}
	return &Error{Kind: BadInput, Code: "bad_json", Message: "read the request: " + err.Error()}
}

// overview reads everything that the page shows.
func (u *UI) overview(ctx context.Context) (Overview, error) {
	b := u.cfg.Backend
	status, err1 := b.Status(ctx)
	nodes, seen, err2 := b.Nodes(ctx)
	models, err3 := b.Models(ctx)
	replicas, err4 := b.Replicas(ctx)
	settings, err5 := b.MeshSettings(ctx)
	status.stamp()
	return Overview{Status: status, Nodes: nodes, Seen: seen, Models: models, Replicas: replicas, Settings: settings},
		errors.Join(err1, err2, err3, err4, err5)
}

func (u *UI) nodes(ctx context.Context) (NodeList, error) {
	nodes, seen, err := u.cfg.Backend.Nodes(ctx)
	return NodeList{Nodes: nodes, Seen: seen}, err
}

func (u *UI) postSession(w http.ResponseWriter, r *http.Request) error {
	var in SessionRequest
	if err := readJSON(w, r, &in, maxRequest); err != nil {
		return err
	}
	if err := u.links.redeem(in.Code); err != nil {
		return err
	}
	expires, err := u.sessions.begin(w, r)
	if err != nil {
		return err
	}
	u.cfg.Log.Info("page session began", "remote", r.RemoteAddr)
	return ok(w, SessionResult{Schema{SchemaVersion}, expires})
}

func (u *UI) deleteSession(w http.ResponseWriter, r *http.Request) error {
	if err := u.sessions.finish(w, r); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (u *UI) newLink(ctx context.Context, _ struct{}) (LinkResult, error) {
	url, expires, err := u.NewLink(ctx)
	return LinkResult{URL: url, Expires: expires}, err
}
