package node

import (
	"testing"

	"llmgw/mesh"
)

// TestABoxOfAnotherVersionIsNotCalledDead: what to do is another thing then, and an alarm says it.
func TestABoxOfAnotherVersionIsNotCalledDead(t *testing.T) {
	v := &view{nodes: []mesh.Node{{ID: "a", Name: "a", State: mesh.StateDead}, {ID: "b", Name: "b", State: mesh.StateDead, Mismatch: "b speaks version 2"}}}
	got := admin{}.memberProblems(v)
	if len(got) != 1 || got[0].Text != "a (a) is a member and does not answer" {
		t.Errorf("%+v", got)
	}
	if n := nodeOf(v, v.nodes[1]); n.Mismatch != "b speaks version 2" {
		t.Errorf("listed as %+v", n)
	}
}
