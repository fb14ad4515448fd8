package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// ErrUnreachable says that no daemon answers on the admin socket.
var ErrUnreachable = errors.New("no llmgw daemon answers")

// maxAnswer bounds what a client reads of one answer; the largest is a list of
// models, far below.
const maxAnswer = 32 << 20

// Client speaks the admin API over the daemon's unix socket. It is safe for
// use by many goroutines. Every refusal is an *APIError; a daemon that is not
// there is ErrUnreachable.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient talks to the daemon that listens on the unix socket at path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &Client{socket: path, http: &http.Client{Transport: &http.Transport{DialContext: dial, Proxy: nil}}}
}

// Close frees idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks how the node and its mesh are.
func (c *Client) Status(ctx context.Context) (Status, error) { return get[Status](ctx, c, "status") }

// Nodes lists the members and the boxes seen on the link.
func (c *Client) Nodes(ctx context.Context) (NodeList, error) { return get[NodeList](ctx, c, "nodes") }

// Models lists the catalog.
func (c *Client) Models(ctx context.Context) (ModelList, error) {
	return get[ModelList](ctx, c, "models")
}

// Replicas lists what is running or should be.
func (c *Client) Replicas(ctx context.Context) (ReplicaList, error) {
	return get[ReplicaList](ctx, c, "replicas")
}

// Engines lists the engines of all nodes.
func (c *Client) Engines(ctx context.Context) (EngineList, error) {
	return get[EngineList](ctx, c, "engines")
}

// Keys lists the API keys.
func (c *Client) Keys(ctx context.Context) (KeyList, error) { return get[KeyList](ctx, c, "keys") }

// Tokens lists the join tokens.
func (c *Client) Tokens(ctx context.Context) (TokenList, error) {
	return get[TokenList](ctx, c, "tokens")
}

// Config lists the settings with their origins.
func (c *Client) Config(ctx context.Context) (SettingList, error) {
	return get[SettingList](ctx, c, "config")
}

// Overview asks for all that the page shows.
func (c *Client) Overview(ctx context.Context) (Overview, error) {
	return get[Overview](ctx, c, "overview")
}

// Load asks for a replica and does not wait for it.
func (c *Client) Load(ctx context.Context, r LoadRequest) (LoadResult, error) {
	return post[LoadResult](ctx, c, "models/load", r)
}

// Unload asks for no replica.
func (c *Client) Unload(ctx context.Context, r UnloadRequest) (UnloadResult, error) {
	return post[UnloadResult](ctx, c, "models/unload", r)
}

// RemoveModel ends a catalog entry; weights stay on disk.
func (c *Client) RemoveModel(ctx context.Context, r RemoveModelRequest) (RemoveModelResult, error) {
	return post[RemoveModelResult](ctx, c, "models/remove", r)
}

// NewToken makes a join token.
func (c *Client) NewToken(ctx context.Context, r TokenRequest) (TokenResult, error) {
	return post[TokenResult](ctx, c, "tokens", r)
}

// Join makes the node a member of the token's mesh.
func (c *Client) Join(ctx context.Context, r JoinRequest) (JoinResult, error) {
	return post[JoinResult](ctx, c, "join", r)
}

// Leave ends the node's membership.
func (c *Client) Leave(ctx context.Context) (LeaveResult, error) {
	return post[LeaveResult](ctx, c, "leave", struct{}{})
}

// NewKey makes an API key.
func (c *Client) NewKey(ctx context.Context, r KeyRequest) (KeyResult, error) {
	return post[KeyResult](ctx, c, "keys", r)
}

// FirstKey gives the key of the first start, once.
func (c *Client) FirstKey(ctx context.Context) (KeyResult, error) {
	return post[KeyResult](ctx, c, "keys/first", struct{}{})
}

// RevokeKey ends an API key, named by ID or name.
func (c *Client) RevokeKey(ctx context.Context, idOrName string) error {
	return c.remove(ctx, "keys", idOrName)
}

// remove ends what id names within a collection.
func (c *Client) remove(ctx context.Context, collection, id string) error {
	resp, err := c.do(ctx, http.MethodDelete, collection+"/"+url.PathEscape(id), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// UILink makes a link that opens the page once.
func (c *Client) UILink(ctx context.Context) (LinkResult, error) {
	return post[LinkResult](ctx, c, "ui-link", struct{}{})
}

// Pull fetches weights and makes a catalog entry; progress is called from this
// goroutine and may be nil.
func (c *Client) Pull(ctx context.Context, r PullRequest, progress func(Progress)) (PullResult, error) {
	return follow[PullResult](ctx, c, "models/pull", r, progress)
}

// InstallEngine gets an engine onto this node; progress is as for Pull.
func (c *Client) InstallEngine(ctx context.Context, r InstallRequest, progress func(Progress)) (InstallResult, error) {
	return follow[InstallResult](ctx, c, "engines/install", r, progress)
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	return decoded[T](c.do(ctx, http.MethodGet, path, nil))
}

func post[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	return decoded[T](c.do(ctx, http.MethodPost, path, body))
}

func decoded[T any](resp *http.Response, err error) (T, error) {
	var out T
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out); err != nil {
		return out, fmt.Errorf("read the daemon's answer: %w", err)
	}
	return out, nil
}

// do sends one request. The caller closes the body of a response that is
// returned without error.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
	}
	// The host is a label: the connection goes to the socket whatever it says.
	req, err := http.NewRequestWithContext(ctx, method, "http://llmgw/admin/v1/"+path, &content)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask the daemon: %w", ctx.Err())
	}
	return fmt.Errorf("%w on %s: %w", ErrUnreachable, c.socket, err)
}

func refusal(resp *http.Response) error {
	var b errorBody
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if json.Unmarshal(raw, &b) == nil && b.Error.Message != "" {
		return b.apiError(resp.StatusCode)
	}
	return &APIError{Status: resp.StatusCode, Code: "unknown",
		Message: fmt.Sprintf("the daemon answered %s without saying why", resp.Status)}
}
