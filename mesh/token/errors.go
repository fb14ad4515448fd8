package token

import (
	"fmt"
	"strings"
	"time"
)

// Kind says why a box could not join. It travels to the CLI and to scripts, so
// a value never changes its meaning.
type Kind string

// Kinds of failure.
const (
	Mistyped       Kind = "mistyped"        // the text is no token
	Unsupported    Kind = "unsupported"     // made by a newer llmgw
	Unknown        Kind = "unknown"         // the mesh has no such token
	Expired        Kind = "expired"         // by the issuer's clock
	Used           Kind = "used"            // all its uses are taken
	Revoked        Kind = "revoked"         // withdrawn by an admin
	WrongMesh      Kind = "wrong_mesh"      // the box that answered is not of the token's mesh
	Unreachable    Kind = "unreachable"     // no box named in the token answered
	ClockSkew      Kind = "clock_skew"      // the two clocks are too far apart
	AlreadyMember  Kind = "already_member"  // this box is a member of that mesh
	NotProvisional Kind = "not_provisional" // this box has a mesh of its own worth keeping
	Banned         Kind = "banned"          // this identity was removed from the mesh
	NotAdmin       Kind = "not_admin"       // the box asked may not admit others
	BadOptions     Kind = "bad_options"     // a token cannot be made like this
	Refused        Kind = "refused"         // anything else; Detail says what
)

// Attempt is one address that was tried and what came of it.
type Attempt struct {
	Addr   string
	Reason string
}

// Error is a join that failed, or a token that was not made. Error() is meant for a person as it stands.
type Error struct {
	Kind     Kind
	Detail   string        // further words, without secrets
	Attempts []Attempt     // Unreachable: each address and why
	Ago      time.Duration // Expired: how long ago, by the issuer's clock
	Skew     time.Duration // ClockSkew: how far the other clock is ahead of ours
	Want     string        // WrongMesh: the mesh ID that was pinned
	Got      string        // WrongMesh: what was found instead, when told
}

// cutShort is said where less is there than the text itself announces.
const cutShort = "it is cut short"

func mistyped(detail string) *Error { return &Error{Kind: Mistyped, Detail: detail} }

// Error is one sentence, with one line for each address when none answered.
func (e *Error) Error() string {
	text := e.sentence()
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	var lines strings.Builder
	for _, a := range e.Attempts {
		fmt.Fprintf(&lines, "\n  %s: %s", a.Addr, a.Reason)
	}
	return text + lines.String()
}

func (e *Error) sentence() string {
	switch e.Kind {
	case Mistyped:
		return "the token is mistyped"
	case Unsupported:
		return "the token was made by a newer llmgw"
	case Unknown:
		return "the mesh does not know this token"
	case Expired:
		return "the token expired " + e.Ago.Round(time.Second).String() + " ago by the issuer's clock"
	case Used:
		return "the token has been used"
	case Revoked:
		return "the token was revoked"
	case WrongMesh:
		return e.wrongMesh()
	case Unreachable:
		return "no box named in the token could be reached"
	case ClockSkew:
		return "the clocks differ by " + e.Skew.Abs().Round(time.Second).String() + ", more than a join allows"
	case AlreadyMember:
		return "this box is already a member of that mesh"
	case NotProvisional:
		return "this box belongs to a mesh with content of its own"
	case Banned:
		return "this box was removed from the mesh"
	case NotAdmin:
		return "the box that answered may not admit others"
	case BadOptions:
		return "no token can be made like this"
	}
	return "the join was refused"
}

func (e *Error) wrongMesh() string {
	switch {
	case e.Want != "" && e.Got != "":
		return "the box that answered belongs to mesh " + e.Got + ", the token to mesh " + e.Want
	case e.Want != "":
		return "the box that answered does not belong to the token's mesh " + e.Want
	}
	return "the box that answered belongs to another mesh"
}

// Is lets errors.Is match an Error by its Kind alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind && t.Detail == "" && len(t.Attempts) == 0
}
