package ui

import (
	"context"
	"net/http"
	"net/url"
)

// MemberAdmin changes who belongs to the mesh and as what.
type MemberAdmin interface {
	RemoveNode(ctx context.Context, r MemberRequest) (MemberResult, error)
	// ReadmitNode lifts a removal; the box still needs a token to come back.
	ReadmitNode(ctx context.Context, r MemberRequest) (MemberResult, error)
	SetRole(ctx context.Context, r RoleRequest) (MemberResult, error)
	// Rename gives the answering box another label.
	Rename(ctx context.Context, r RenameRequest) (MemberResult, error)
	RevokeToken(ctx context.Context, id string) error
}

// MemberRequest names a member, by name or peer ID.
type MemberRequest struct {
	Node   string `json:"node"`
	Reason string `json:"reason"` // told to the box
}

// RoleRequest gives a member another role.
type RoleRequest struct {
	Node   string `json:"node"`
	Role   string `json:"role"` // admin, member
	Reason string `json:"reason"`
}

// RenameRequest gives the answering box another label.
type RenameRequest struct {
	Name string `json:"name"`
}

// MemberResult names the member that was changed.
type MemberResult struct {
	SchemaVersion int    `json:"schema_version"`
	ID            string `json:"id"` // peer ID
	Name          string `json:"name"`
}

func (u *UI) memberRoutes() []route {
	b := u.cfg.Backend
	stamp := func(o *MemberResult) { o.SchemaVersion = SchemaVersion }
	return []route{
		{"POST", "nodes/remove", socketOnly, accept(b.RemoveNode, stamp)},
		{"POST", "nodes/readmit", socketOnly, accept(b.ReadmitNode, stamp)},
		{"POST", "nodes/role", socketOnly, accept(b.SetRole, stamp)},
		{"POST", "nodes/rename", socketOnly, accept(b.Rename, stamp)},
		{"DELETE", "tokens/{token}", socketOnly, u.deleteToken},
	}
}

func (u *UI) deleteToken(w http.ResponseWriter, r *http.Request) error {
	if err := u.cfg.Backend.RevokeToken(r.Context(), r.PathValue("token")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// RemoveNode removes a member from the mesh, on every box.
func (c *Client) RemoveNode(ctx context.Context, r MemberRequest) (MemberResult, error) {
	return post[MemberResult](ctx, c, "nodes/remove", r)
}

// ReadmitNode lets a removed box join again by a token.
func (c *Client) ReadmitNode(ctx context.Context, r MemberRequest) (MemberResult, error) {
	return post[MemberResult](ctx, c, "nodes/readmit", r)
}

// SetRole promotes or demotes a member.
func (c *Client) SetRole(ctx context.Context, r RoleRequest) (MemberResult, error) {
	return post[MemberResult](ctx, c, "nodes/role", r)
}

// Rename gives the daemon's box another label.
func (c *Client) Rename(ctx context.Context, r RenameRequest) (MemberResult, error) {
	return post[MemberResult](ctx, c, "nodes/rename", r)
}

// RevokeToken makes a join token worth nothing.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	resp, err := c.do(ctx, http.MethodDelete, "tokens/"+url.PathEscape(id), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
