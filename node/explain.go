package node

import (
	"errors"

	"llmgw/engines/install"
	"llmgw/fetch"
	"llmgw/mesh/catalog"
	"llmgw/mesh/token"
	"llmgw/ui"
)

// explainMesh gives a failed join, leave or token its answer and what to do.
func explainMesh(err error) error {
	e := (*token.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	out := &ui.Error{Kind: ui.Conflict, Code: "token_" + string(e.Kind), Err: err}
	switch e.Kind {
	case token.Mistyped, token.Unsupported:
		out.Kind, out.Hint = ui.BadInput, "copy it again; llmgw token new on a member prints a new one"
	case token.BadOptions:
		out.Kind, out.Hint = ui.BadInput, "llmgw token new --help"
	case token.Unknown, token.Expired, token.Used, token.Revoked:
		out.Hint = "make a new one on a member with: llmgw token new"
	case token.WrongMesh:
		out.Hint = "the box at that address belongs to another mesh; make a token on a member of the mesh that you mean"
	case token.Unreachable:
		out.Kind, out.Hint = ui.Unreachable, "check that the mesh port of one of these addresses is open to this box"
	case token.ClockSkew:
		out.Hint = "set the clock of one of the two boxes"
	case token.AlreadyMember:
		out.Hint = "nothing is to be done; llmgw nodes lists the members"
	case token.NotProvisional:
		out.Hint = "llmgw join --replace leaves the present mesh and archives its state first"
	case token.Banned:
		out.Kind = ui.Forbidden
	case token.NotAdmin:
		out.Kind, out.Hint = ui.Forbidden, "make the token on a box with role admin"
	}
	return out
}

// explainFetch gives a failed pull or install its answer and what to do.
func explainFetch(err error) error {
	f := (*fetch.Error)(nil)
	if !errors.As(err, &f) {
		return err
	}
	out := &ui.Error{Kind: ui.Internal, Code: string(f.Kind), Message: err.Error(), Hint: f.Hint, Err: err}
	switch f.Kind {
	case fetch.KindBadSource, fetch.KindUnknownFormat, fetch.KindBadFile, fetch.KindChecksum:
		out.Kind = ui.BadInput
	case fetch.KindNotFound:
		out.Kind = ui.NotFound
	case fetch.KindNoSpace:
		out.Kind = ui.NoSpace
	case fetch.KindNetwork:
		out.Kind = ui.Unreachable
	case fetch.KindNoPip, fetch.KindPip:
		out.Kind = ui.Conflict
	}
	return out
}

// explainInstall gives a failed installation its answer and what to do.
func explainInstall(err error) error {
	e := (*install.Error)(nil)
	if !errors.As(err, &e) {
		return explainFetch(err)
	}
	out := &ui.Error{Kind: ui.Conflict, Code: "install_failed", Err: err, Hint: e.Hint}
	if errors.Is(err, install.ErrUnknownEngine) {
		out.Kind, out.Code = ui.NotFound, "unknown_engine"
	}
	if cause := (*ui.Error)(nil); errors.As(explainFetch(err), &cause) {
		out.Kind, out.Code = cause.Kind, cause.Code
		if out.Hint == "" {
			out.Hint = cause.Hint
		}
	}
	return out
}

// explainUnreadable gives what was asked of a row that cannot be read its answer;
// removal is what ends the row.
func explainUnreadable(err error, removal string) error {
	if unreadable := (*catalog.UnreadableError)(nil); !errors.As(err, &unreadable) {
		return err
	}
	return &ui.Error{Kind: ui.Conflict, Code: "unreadable_row", Err: err, Hint: "upgrade llmgw here, if another box runs a later one, or remove it: " + removal}
}

// explainCatalog gives a refused catalog write its answer and what to do.
func explainCatalog(err error) error {
	if full := (*catalog.FullError)(nil); errors.As(err, &full) {
		return &ui.Error{Kind: ui.Conflict, Code: "row_full", Message: full.Error(), Err: err, Hint: "use a name again that it had, or remove it and make it anew"}
	}
	switch exists, name, model, label := (*catalog.ExistsError)(nil), (*catalog.NameError)(nil), (*catalog.ModelError)(nil), (*catalog.LabelError)(nil); {
	case errors.As(err, &model):
		return &ui.Error{Kind: ui.BadInput, Code: "bad_model", Message: model.Error(), Err: err}
	case errors.As(err, &label):
		return &ui.Error{Kind: ui.BadInput, Code: "bad_label", Message: label.Error(), Err: err}
	case errors.As(err, &exists):
		return &ui.Error{Kind: ui.Conflict, Code: "model_exists", Err: err, Hint: "choose another name with --as"}
	case errors.As(err, &name):
		return &ui.Error{Kind: ui.BadInput, Code: "bad_name", Err: err, Hint: "choose another name with --as"}
	}
	return err
}
