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

// accept makes a handler of a backend call that takes and gives JSON. The body
// is read to its end also where nothing is asked: only then does the server
// watch for a client that leaves. stamp writes the schema version.
func accept[In, Out any](call func(context.Context, In) (Out, error), stamp func(*Out)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in In
		if err := readJSON(w, r, &in); err != nil {
			return err
		}
		out, err := call(r.Context(), in)
		if err != nil {
			return err
		}
		stamp(&out)
		return ok(w, out)
	}
}

// bare lets a call without input take an empty object.
func bare[Out any](call func(context.Context) (Out, error)) func(context.Context, struct{}) (Out, error) {
	return func(ctx context.Context, _ struct{}) (Out, error) { return call(ctx) }
}

// readJSON reads exactly one JSON object of known fields. Asking for the JSON
// content type keeps plain HTML forms of other sites out.
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return &APIError{Status: http.StatusUnsupportedMediaType, Type: "invalid_request_error", Code: "not_json",
			Message: fmt.Sprintf("the Content-Type header is %q", r.Header.Get("Content-Type")),
			Hint:    "send the header Content-Type: application/json"}
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
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

func (u *UI) getStatus(w http.ResponseWriter, r *http.Request) error {
	s, err := u.cfg.Backend.Status(r.Context())
	if err != nil {
		return err
	}
	s.SchemaVersion = SchemaVersion
	return ok(w, s)
}

func (u *UI) getOverview(w http.ResponseWriter, r *http.Request) error {
	o := Overview{SchemaVersion: SchemaVersion}
	b, ctx := u.cfg.Backend, r.Context()
	status, err1 := b.Status(ctx)
	nodes, seen, err2 := b.Nodes(ctx)
	models, err3 := b.Models(ctx)
	replicas, err4 := b.Replicas(ctx)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	o.Status, o.Nodes, o.Seen, o.Models, o.Replicas = status, nodes, seen, models, replicas
	o.Status.SchemaVersion = SchemaVersion
	return ok(w, o)
}

func (u *UI) getNodes(w http.ResponseWriter, r *http.Request) error {
	nodes, seen, err := u.cfg.Backend.Nodes(r.Context())
	if err != nil {
		return err
	}
	return ok(w, NodeList{SchemaVersion, nodes, seen})
}

func (u *UI) getModels(w http.ResponseWriter, r *http.Request) error {
	models, err := u.cfg.Backend.Models(r.Context())
	if err != nil {
		return err
	}
	return ok(w, ModelList{SchemaVersion, models})
}

func (u *UI) getReplicas(w http.ResponseWriter, r *http.Request) error {
	replicas, err := u.cfg.Backend.Replicas(r.Context())
	if err != nil {
		return err
	}
	return ok(w, ReplicaList{SchemaVersion, replicas})
}

func (u *UI) getEngines(w http.ResponseWriter, r *http.Request) error {
	engines, err := u.cfg.Backend.Engines(r.Context())
	if err != nil {
		return err
	}
	return ok(w, EngineList{SchemaVersion, engines})
}

func (u *UI) getKeys(w http.ResponseWriter, r *http.Request) error {
	keys, err := u.cfg.Backend.Keys(r.Context())
	if err != nil {
		return err
	}
	return ok(w, KeyList{SchemaVersion, keys})
}

func (u *UI) getTokens(w http.ResponseWriter, r *http.Request) error {
	tokens, err := u.cfg.Backend.Tokens(r.Context())
	if err != nil {
		return err
	}
	return ok(w, TokenList{SchemaVersion, tokens})
}

func (u *UI) getConfig(w http.ResponseWriter, r *http.Request) error {
	settings, err := u.cfg.Backend.Config(r.Context())
	if err != nil {
		return err
	}
	return ok(w, SettingList{SchemaVersion, settings})
}

func (u *UI) postSession(w http.ResponseWriter, r *http.Request) error {
	var in SessionRequest
	if err := readJSON(w, r, &in); err != nil {
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
	return ok(w, SessionResult{SchemaVersion, expires})
}

func (u *UI) deleteSession(w http.ResponseWriter, r *http.Request) error {
	if err := u.sessions.finish(w, r); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (u *UI) deleteKey(w http.ResponseWriter, r *http.Request) error {
	if err := u.cfg.Backend.RevokeKey(r.Context(), r.PathValue("key")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (u *UI) newLink(ctx context.Context, _ struct{}) (LinkResult, error) {
	url, expires, err := u.NewLink(ctx)
	return LinkResult{SchemaVersion, url, expires}, err
}
