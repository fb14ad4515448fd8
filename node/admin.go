package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// admin is the node as the admin API sees it.
type admin struct{ *Node }

var _ ui.Backend = admin{}

// sessions keeps UI sessions in the shared catalog, so that any node knows them.
type sessions struct{ *Node }

var _ ui.Sessions = sessions{}

func (s sessions) PutSession(session ui.Session) error {
	return s.catalog.PutSession(catalog.Session(session))
}

func (s sessions) Session(id string) (ui.Session, bool, error) {
	session, err := s.catalog.Session(id)
	if errors.Is(err, catalog.ErrNotFound) {
		return ui.Session{}, false, nil
	}
	return ui.Session(session), err == nil, err
}

func (s sessions) DeleteSession(id string) error {
	if err := s.catalog.DeleteSession(id); !errors.Is(err, catalog.ErrNotFound) {
		return err
	}
	return nil
}

// Status says how this node and its mesh are.
func (a admin) Status(context.Context) (ui.Status, error) {
	v := a.view.Load()
	live := 0
	members := 0
	for _, n := range v.nodes {
		if isLive(n) {
			live++
		}
		if n.State != mesh.StateLeft {
			members++
		}
	}
	s := ui.Status{
		Verdict: ui.VerdictOK, Problems: a.problems(v),
		Node: ui.NodeInfo{
			ID: a.mesh.Self(), Name: a.cfg.Name, Version: a.build.Version, PID: os.Getpid(), StateDir: a.cfg.StateDir,
			API: a.apiAddresses(), UptimeSeconds: int64(a.now().Sub(a.bootTime) / time.Second),
			UIHint:  "llmgw ui" + a.stateDirFlag() + " prints a link",
			Command: "llmgw" + a.stateDirFlag(),
		},
		Mesh: ui.MeshInfo{ID: a.mesh.MeshID(), Provisional: a.mesh.Provisional(), Members: members, Live: live},
	}
	if len(v.nodes) > 0 {
		s.Node.Mesh = v.nodes[0].Presence.Addresses
	}
	if len(s.Problems) > 0 {
		s.Verdict = ui.VerdictDegraded
	}
	return s, nil
}

// stateDirFlag is what a command line for this daemon needs, when it is not
// the default one.
func (a admin) stateDirFlag() string {
	if a.cfg.StateDir == DefaultStateDir() {
		return ""
	}
	return " --state-dir " + a.cfg.StateDir
}

// tokenTTL is how long a join token may be used unless asked otherwise.
const tokenTTL = time.Hour

// Tokens lists the join tokens.
func (a admin) Tokens(context.Context) ([]ui.Token, error) {
	tokens, err := a.mesh.Tokens()
	if err != nil {
		return nil, err
	}
	v := a.view.Load()
	out := make([]ui.Token, 0, len(tokens))
	for _, t := range tokens {
		out = append(out, ui.Token{ID: t.ID, Role: string(t.Role), Uses: t.Uses, Used: t.Used, Expires: t.Expires, Issuer: v.name(t.Issuer)})
	}
	return out, nil
}

// NewToken makes a join token.
func (a admin) NewToken(ctx context.Context, r ui.TokenRequest) (ui.TokenResult, error) {
	ttl := tokenTTL
	if r.TTLSeconds != 0 {
		ttl = time.Duration(r.TTLSeconds) * time.Second
	}
	expires := a.now().Add(ttl)
	text, err := a.mesh.NewToken(ctx, mesh.TokenOptions{TTL: ttl, Uses: r.Uses, Role: mesh.Role(r.Role)})
	if err != nil {
		return ui.TokenResult{}, explainMesh(err)
	}
	return ui.TokenResult{Token: text, Expires: expires}, nil
}

// Join makes this box a member of the token's mesh.
func (a admin) Join(ctx context.Context, r ui.JoinRequest) (ui.JoinResult, error) {
	res, err := a.mesh.Join(ctx, r.Token, r.Replace)
	if err != nil {
		return ui.JoinResult{}, explainMesh(err)
	}
	if err := a.refresh(); err != nil {
		return ui.JoinResult{}, err
	}
	// A box always leaves some mesh of its own, and that mesh's keys with it.
	return ui.JoinResult{MeshID: res.MeshID, Issuer: a.view.Load().name(res.Issuer), Replaced: true, Archive: res.Archive}, nil
}

// Leave ends this box's membership.
func (a admin) Leave(ctx context.Context) (ui.LeaveResult, error) {
	left := a.mesh.MeshID()
	if err := a.mesh.Leave(ctx); err != nil {
		return ui.LeaveResult{}, explainMesh(err)
	}
	return ui.LeaveResult{MeshID: left}, a.refresh()
}

// FirstKey shows the key of the first start, once.
func (a admin) FirstKey(context.Context) (ui.KeyResult, error) {
	key, err := a.takeFirstKey()
	if errors.Is(err, fs.ErrNotExist) {
		return ui.KeyResult{}, &ui.Error{Kind: ui.Conflict, Code: "first_key_shown",
			Message: "the first API key was shown already, or this box joined a mesh that has keys", Hint: "make another with: llmgw keys new NAME"}
	}
	if err != nil {
		return ui.KeyResult{}, err
	}
	info, err := a.keys.Check(key)
	if err != nil {
		return ui.KeyResult{}, err
	}
	return ui.KeyResult{ID: info.ID, Key: key}, nil
}

// refresh makes what was just changed here seen by the next request.
func (a admin) refresh() error {
	a.wake()
	_, err := a.look()
	return err
}

// offer makes an admin write seen here and hands it to one live peer before it
// is acknowledged. The write is on disk here already, so a peer that does not
// answer is no failure.
func (a admin) offer(ctx context.Context) error {
	if err := a.refresh(); err != nil {
		return err
	}
	if err := a.mesh.Offer(ctx); err != nil && ctx.Err() == nil {
		a.log.Warn("no peer has acknowledged an admin write yet; it goes out with the next exchange", "error", err)
	}
	return nil
}
