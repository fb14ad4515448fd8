package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"llmgw/mesh"
	"llmgw/mesh/token"
	"llmgw/ui"
)

// member finds a member, or a box that was removed, by name or peer ID.
func (a admin) member(name string) (id, label string, err error) {
	v := a.view.Load()
	if n, ok := v.node(name); ok {
		return n.ID, v.name(n.ID), nil
	}
	for _, b := range a.mesh.Bans() {
		if b.Peer == name || strings.EqualFold(b.Name, name) {
			return b.Peer, b.Name, nil
		}
	}
	return "", "", unknownNode(v, name)
}

// ruled carries a change of membership out and has it seen here at once.
func (a admin) ruled(name string, change func(id string) error) (ui.MemberResult, error) {
	id, label, err := a.member(name)
	if err != nil {
		return ui.MemberResult{}, err
	}
	if err := change(id); err != nil {
		return ui.MemberResult{}, explainRuling(err)
	}
	return ui.MemberResult{ID: id, Name: label}, a.refresh()
}

// RemoveNode removes a member, on every box.
func (a admin) RemoveNode(ctx context.Context, r ui.MemberRequest) (ui.MemberResult, error) {
	return a.ruled(r.Node, func(id string) error { return a.mesh.Ban(ctx, id, r.Reason) })
}

// ReadmitNode lifts a removal.
func (a admin) ReadmitNode(ctx context.Context, r ui.MemberRequest) (ui.MemberResult, error) {
	return a.ruled(r.Node, func(id string) error { return a.mesh.Unban(ctx, id) })
}

// SetRole promotes or demotes a member.
func (a admin) SetRole(ctx context.Context, r ui.RoleRequest) (ui.MemberResult, error) {
	switch mesh.Role(r.Role) {
	case mesh.RoleAdmin:
		return a.ruled(r.Node, func(id string) error { return a.mesh.Promote(ctx, id) })
	case mesh.RoleMember:
		return a.ruled(r.Node, func(id string) error { return a.mesh.Demote(ctx, id, r.Reason) })
	}
	return ui.MemberResult{}, &ui.Error{Kind: ui.BadInput, Message: fmt.Sprintf("role %q: want %s or %s", r.Role, mesh.RoleAdmin, mesh.RoleMember)}
}

// Rename gives this box another label.
func (a admin) Rename(ctx context.Context, r ui.RenameRequest) (ui.MemberResult, error) {
	if err := a.mesh.Rename(ctx, r.Name); err != nil {
		return ui.MemberResult{}, &ui.Error{Kind: ui.BadInput, Err: err}
	}
	return ui.MemberResult{ID: a.mesh.Self(), Name: a.mesh.Name()}, a.refresh()
}

// RevokeToken makes a join token worth nothing.
func (a admin) RevokeToken(ctx context.Context, id string) error {
	err := a.mesh.RevokeToken(ctx, id)
	if unknown := (*token.Error)(nil); errors.As(err, &unknown) {
		return &ui.Error{Kind: ui.NotFound, Err: err, Hint: "llmgw token ls lists them"}
	}
	return err
}

// explainRuling gives a refused change of membership its answer: what cannot
// be done is a matter of the mesh's present state.
func explainRuling(err error) error {
	if typed := (*token.Error)(nil); errors.As(err, &typed) {
		return explainMesh(err)
	}
	return &ui.Error{Kind: ui.Conflict, Err: err, Hint: "llmgw nodes lists the members and their roles"}
}
