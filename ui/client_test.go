package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// socket serves a handler on a unix socket and returns a client for it.
func socket(t *testing.T, h http.Handler) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "ui") // short: socket paths end at 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	c := NewClient(path)
	t.Cleanup(func() {
		c.Close()
		srv.Close()
		<-done
	})
	return c
}

func TestClientReads(t *testing.T) {
	f := newFixture(t)
	c, ctx, want := socket(t, f.AdminHandler()), t.Context(), sample()
	status, err := c.Status(ctx)
	check(t, err, status.SchemaVersion, SchemaVersion)
	check(t, err, status.Problems, want.Status.Problems)
	nodes, err := c.Nodes(ctx)
	check(t, err, nodes.SchemaVersion, SchemaVersion)
	check(t, err, nodes.Nodes[0].Hardware.RAMTotal, ptr(int64(32<<30)))
	check(t, err, nodes.Nodes[1].Hardware.RAMTotal, (*int64)(nil))
	check(t, err, nodes.Seen[0].Name, "garage")
	models, err := c.Models(ctx)
	check(t, err, models.Models[2].Problem, want.Models[2].Problem)
	replicas, err := c.Replicas(ctx)
	check(t, err, replicas.Replicas[1].LastLines, want.Replicas[1].LastLines)
	check(t, err, replicas.Replicas[1].InFlight, (*int)(nil))
	engines, err := c.Engines(ctx)
	check(t, err, len(engines.Engines), 1)
	keys, err := c.Keys(ctx)
	check(t, err, len(keys.Keys), 0)
	tokens, err := c.Tokens(ctx)
	check(t, err, len(tokens.Tokens), 0)
	config, err := c.Config(ctx)
	check(t, err, config.Settings[0].Origin, "default")
	all, err := c.Overview(ctx)
	check(t, err, len(all.Nodes), 3)
}

func check[T any](t *testing.T, err error, got, want T) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestClientWrites(t *testing.T) {
	f := newFixture(t)
	c, ctx := socket(t, f.AdminHandler()), t.Context()
	load, err := c.Load(ctx, LoadRequest{Model: "org/model", Node: "attic"})
	check(t, err, load.NodeName, "attic")
	check(t, err, f.backend.last(), any(LoadRequest{Model: "org/model", Node: "attic"}))
	unload, err := c.Unload(ctx, UnloadRequest{Model: "org/model"})
	check(t, err, unload.Model, "org/model")
	token, err := c.NewToken(ctx, TokenRequest{TTLSeconds: 60, Uses: 2, Role: "member"})
	check(t, err, token.Token, "llmgw1.abc")
	check(t, err, f.backend.last(), any(TokenRequest{TTLSeconds: 60, Uses: 2, Role: "member"}))
	join, err := c.Join(ctx, JoinRequest{Token: "llmgw1.abc", Replace: true})
	check(t, err, join.MeshID, "mesh-1")
	leave, err := c.Leave(ctx)
	check(t, err, leave.MeshID, "mesh-1")
	key, err := c.NewKey(ctx, KeyRequest{Name: "laptop", Scopes: []string{"infer"}})
	check(t, err, key, KeyResult{Schema: Schema{1}, ID: "k1", Key: "llmgw-sk-x"})
	first, err := c.FirstKey(ctx)
	check(t, err, first.Key, "llmgw-sk-first")
	link, err := c.UILink(ctx)
	check(t, err, strings.HasPrefix(link.URL, "http://192.0.2.7:8770/#code="), true)
}

func TestClientRevokesKeysOfAnyName(t *testing.T) {
	f := newFixture(t)
	c := socket(t, f.AdminHandler())
	for _, name := range []string{"k1", "team/laptop", "a b", "50%", "?x#y", "Schlüssel"} {
		if err := c.RevokeKey(t.Context(), name); err != nil {
			t.Errorf("revoke %q: %v", name, err)
		} else if f.backend.last() != name {
			t.Errorf("revoked %q instead of %q", f.backend.last(), name)
		}
	}
}

func TestClientFollowsProgress(t *testing.T) {
	f := newFixture(t)
	f.backend.pull = func(step func(Progress)) error {
		for _, p := range []Progress{{"resolving", 0, 0}, {"downloading", 0, 0}, {"downloading", 10, 10}, {"verifying", 0, 10}, {"ready", 10, 10}} {
			step(p)
		}
		return nil
	}
	var seen []Progress
	out, err := socket(t, f.AdminHandler()).Pull(t.Context(), PullRequest{Source: "file:x", As: "m", Embeddings: true}, func(p Progress) { seen = append(seen, p) })
	check(t, err, out.Model.Name, "m")
	check(t, err, seen, []Progress{{"resolving", 0, 0}, {"downloading", 0, 0}, {"downloading", 10, 10}, {"verifying", 0, 10}, {"ready", 10, 10}})
	check(t, err, f.backend.last(), any(PullRequest{Source: "file:x", As: "m", Embeddings: true}))
	engine, err := socket(t, f.AdminHandler()).InstallEngine(t.Context(), InstallRequest{Engine: "llamacpp"}, nil)
	check(t, err, engine.Engine.From, "PATH")
}

func TestClientSeesTheErrorAtTheEndOfAStream(t *testing.T) {
	f := newFixture(t)
	f.backend.pull = func(step func(Progress)) error {
		step(Progress{"downloading", 1, 0})
		return &Error{Kind: NoSpace, Message: "pull file:x: 3 GiB needed, 1 GiB free", Hint: "make room"}
	}
	_, err := socket(t, f.AdminHandler()).Pull(t.Context(), PullRequest{}, nil)
	api := apiError(t, err)
	if api.Status != 0 || api.Code != "no_space" || api.Hint != "make room" || api.Node != "attic" || api.RequestID == "" {
		t.Errorf("%+v", api)
	}
}

func apiError(t *testing.T, err error) *APIError {
	t.Helper()
	var api *APIError
	if !errors.As(err, &api) {
		t.Fatalf("%v (%T) is no APIError", err, err)
	}
	return api
}

func TestClientSeesAnEarlyErrorWithItsStatus(t *testing.T) {
	f := newFixture(t)
	f.backend.err = &Error{Kind: BadInput, Code: "bad_source", Message: "pull x: no such kind of source"}
	api := apiError(t, func() error {
		_, err := socket(t, f.AdminHandler()).Pull(t.Context(), PullRequest{}, nil)
		return err
	}())
	if api.Status != http.StatusBadRequest || api.Code != "bad_source" {
		t.Errorf("%+v", api)
	}
}

func TestClientWithoutDaemon(t *testing.T) {
	c := NewClient(filepath.Join(t.TempDir(), "none.sock"))
	_, err := c.Status(t.Context())
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("error %v does not say that nobody listens, and where", err)
	}
}

func TestClientCancelled(t *testing.T) {
	f := newFixture(t)
	began, ended := make(chan struct{}), make(chan struct{})
	f.backend.wait = func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}
	c := socket(t, f.AdminHandler())
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if _, err := c.Leave(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("error %v", err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the operation went on without its client")
	}
}

func TestClientAnswersItCannotRead(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"cut stream", `{"phase":"downloading","done":1,"total":2}` + "\n", "closed the stream"},
		{"empty stream", "", "closed the stream"},
		{"broken line", "{\"phase\":\n", "read progress"},
		{"endless line", strings.Repeat("x", 2<<20), "read progress"},
		{"result of another kind", `{"result":"yes"}`, "read the daemon's answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := socket(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, c.body) }))
			_, err := cl.Pull(t.Context(), PullRequest{}, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	t.Run("refusal without JSON", func(t *testing.T) {
		cl := socket(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }))
		_, err := cl.Status(t.Context())
		if api := apiError(t, err); api.Status != http.StatusBadGateway || !strings.Contains(api.Message, "502") {
			t.Errorf("%+v", api)
		}
	})
}

func TestErrorsMapToStatus(t *testing.T) {
	for _, c := range []struct {
		name, code, kind string
		err              error
		status           int
	}{
		{"bad input", "bad_input", "invalid_request_error", &Error{Kind: BadInput, Message: "x"}, 400},
		{"own code", "token_expired", "conflict_error", &Error{Kind: Conflict, Code: "token_expired", Message: "x"}, 409},
		{"wrapped", "not_found", "invalid_request_error", fmt.Errorf("load: %w", &Error{Kind: NotFound, Message: "x"}), 404},
		{"unexplained", "internal", "server_error", errDisk, 500},
		{"disk full", "no_space", "server_error", fmt.Errorf("write: %w", &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}), 507},
		{"unknown kind", "internal", "server_error", &Error{Kind: 99, Message: "x"}, 500},
		{"cancelled", "cancelled", "server_error", context.Canceled, 503},
		{"of another node", "stale", "conflict_error", &APIError{Status: 409, Message: "x", Type: "conflict_error", Code: "stale", Node: "cellar"}, 409},
		{"of another node without a status", "internal", "server_error", &APIError{Message: "x"}, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := toAPIError(c.err, "attic", "req-1")
			if got.Status != c.status || got.Code != c.code || got.Type != c.kind || got.Message == "" || got.RequestID != "req-1" {
				t.Errorf("%+v", got)
			}
			if want := map[bool]string{true: "cellar", false: "attic"}[c.name == "of another node"]; got.Node != want {
				t.Errorf("node %q, want %q", got.Node, want)
			}
		})
	}
}

func TestABackupThatBreaksOffIsNotTakenForAWholeOne(t *testing.T) {
	t.Run("whole", func(t *testing.T) {
		f := newFixture(t)
		var whole bytes.Buffer
		if n, err := socket(t, f.AdminHandler()).BackupState(t.Context(), &whole); err != nil || n != 4 || whole.String() != "half" {
			t.Fatalf("got %d bytes, %v", n, err)
		}
	})
	t.Run("broken off", func(t *testing.T) {
		f := newFixture(t)
		f.backend.wait = func(context.Context) error { return errDisk }
		if _, err := socket(t, f.AdminHandler()).BackupState(t.Context(), io.Discard); err == nil {
			t.Error("half a backup was taken for a whole one")
		}
	})
	t.Run("never begun", func(t *testing.T) {
		f := newFixture(t)
		f.backend.err = errDisk
		refused := (*APIError)(nil)
		if _, err := socket(t, f.AdminHandler()).BackupState(t.Context(), io.Discard); !errors.As(err, &refused) || refused.Status != 500 {
			t.Errorf("got %v", err)
		}
	})
}
