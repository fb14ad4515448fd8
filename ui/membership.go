package ui

import "context"

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
	Schema
	ID   string `json:"id"` // peer ID
	Name string `json:"name"`
}

func (u *UI) memberRoutes() []route {
	b := u.cfg.Backend
	return []route{
		{"POST", "nodes/remove", socketOnly, accept(b.RemoveNode)},
		{"POST", "nodes/readmit", socketOnly, accept(b.ReadmitNode)},
		{"POST", "nodes/role", socketOnly, accept(b.SetRole)},
		{"POST", "nodes/rename", socketOnly, accept(b.Rename)},
		{"DELETE", "tokens/{token}", socketOnly, remove("token", b.RevokeToken)},
	}
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
	return c.remove(ctx, "tokens", id)
}
