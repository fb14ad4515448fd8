package token

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"strings"
	"testing"
	"time"
)

// sentences are all kinds with what they say.
var sentences = []struct {
	err  Error
	want string
}{
	{Error{Kind: Mistyped}, "the token is mistyped"},
	{Error{Kind: Mistyped, Detail: "it is empty"}, "the token is mistyped: it is empty"},
	{Error{Kind: Unsupported}, "the token was made by a newer llmgw"},
	{Error{Kind: Unknown}, "the mesh does not know this token"},
	{Error{Kind: Expired, Ago: 90 * time.Second}, "the token expired 1m30s ago by the issuer's clock"},
	{Error{Kind: Expired, Ago: 1499 * time.Millisecond}, "the token expired 1s ago by the issuer's clock"},
	{Error{Kind: Expired, Ago: 26 * time.Hour}, "the token expired 26h0m0s ago by the issuer's clock"},
	{Error{Kind: Used}, "the token has been used"},
	{Error{Kind: Revoked}, "the token was revoked"},
	{Error{Kind: WrongMesh}, "the box that answered belongs to another mesh"},
	{Error{Kind: WrongMesh, Want: "aa"}, "the box that answered does not belong to the token's mesh aa"},
	{Error{Kind: WrongMesh, Got: "bb"}, "the box that answered belongs to another mesh"},
	{Error{Kind: WrongMesh, Want: "aa", Got: "bb"}, "the box that answered belongs to mesh bb, the token to mesh aa"},
	{Error{Kind: Unreachable}, "no box named in the token could be reached"},
	{Error{Kind: Unreachable, Attempts: []Attempt{{"192.0.2.7:8771", "connection refused"}, {"[2001:db8::7]:8771", "timed out"}}},
		"no box named in the token could be reached\n  192.0.2.7:8771: connection refused\n  [2001:db8::7]:8771: timed out"},
	{Error{Kind: Unreachable, Detail: "all at once", Attempts: []Attempt{{"a:1", "b"}}}, "no box named in the token could be reached: all at once\n  a:1: b"},
	{Error{Kind: ClockSkew, Skew: 6 * time.Minute}, "the clocks differ by 6m0s, more than a join allows"},
	{Error{Kind: ClockSkew, Skew: -6*time.Minute - 400*time.Millisecond}, "the clocks differ by 6m0s, more than a join allows"},
	{Error{Kind: AlreadyMember}, "this box is already a member of that mesh"},
	{Error{Kind: NotProvisional}, "this box belongs to a mesh with content of its own"},
	{Error{Kind: Banned}, "this box was removed from the mesh"},
	{Error{Kind: Banned, Detail: "stolen"}, "this box was removed from the mesh: stolen"},
	{Error{Kind: NotAdmin}, "the box that answered may not admit others"},
	{Error{Kind: BadOptions}, "no token can be made like this"},
	{Error{Kind: Refused}, "the join was refused"},
	{Error{Kind: Refused, Detail: "malformed proof"}, "the join was refused: malformed proof"},
	{Error{Kind: "of_a_later_llmgw"}, "the join was refused"},
	{Error{}, "the join was refused"},
}

func TestSentences(t *testing.T) {
	for _, c := range sentences {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.err.Kind, got, c.want)
		}
	}
}

// declaredKinds reads the kinds from the source, so that one that is added and has no
// sentence is found.
func declaredKinds(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if kind, ok := v.Type.(*ast.Ident); ok && kind.Name == "Kind" {
				out[strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`)] = true
			}
		}
		return true
	})
	return out
}

func TestEveryKindHasASentenceOfItsOwn(t *testing.T) {
	said := map[string]Kind{}
	tested := map[string]bool{}
	for _, c := range sentences {
		tested[string(c.err.Kind)] = true
	}
	declared := declaredKinds(t)
	if len(declared) < 15 {
		t.Fatalf("kinds of the source: %v", declared)
	}
	for name := range declared {
		kind := Kind(name)
		text := (&Error{Kind: kind}).Error()
		if other, twice := said[text]; twice {
			t.Errorf("%s and %s both say %q", kind, other, text)
		}
		said[text] = kind
		if !tested[name] {
			t.Errorf("%s has no test of what it says", kind)
		}
		if strings.ToLower(name) != name || strings.ContainsAny(name, " -") {
			t.Errorf("kind %q is no word for scripts", name)
		}
	}
}

func TestErrorsAreMatchedByKind(t *testing.T) {
	full := &Error{Kind: Unreachable, Detail: "d", Attempts: []Attempt{{"a:1", "b"}}, Ago: time.Second}
	wrapped := fmt.Errorf("join: %w", full)
	for name, c := range map[string]struct {
		target error
		want   bool
	}{
		"the kind":            {&Error{Kind: Unreachable}, true},
		"another kind":        {&Error{Kind: Used}, false},
		"kind and detail":     {&Error{Kind: Unreachable, Detail: "d"}, false},
		"kind and attempts":   {&Error{Kind: Unreachable, Attempts: full.Attempts}, false},
		"itself":              {full, true},
		"no kind":             {&Error{}, false},
		"an error of another": {io.EOF, false},
	} {
		if got := errors.Is(wrapped, c.target); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	var typed *Error
	if !errors.As(errors.Join(io.EOF, wrapped), &typed) || typed != full {
		t.Errorf("got %v", typed)
	}
}
