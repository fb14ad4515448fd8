package placement

import (
	"slices"
	"strings"
	"testing"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
)

func TestLabelsAndCordon(t *testing.T) {
	eu := catalog.NodeSettings{Labels: map[string]string{"zone": "eu"}}
	inEU := catalog.Selector{Require: map[string]string{"zone": "eu"}}
	notEU := catalog.Selector{Forbid: map[string]string{"zone": "eu"}}
	owned := []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 3, Reason: "before"}}
	drained := catalog.NodeSettings{Draining: true}
	for _, tc := range []struct {
		name   string
		model  catalog.Model
		nodes  []Node
		given  []catalog.Assignment
		owner  string
		reason string
	}{
		{"a required label chooses", labelled(model("m", 1), inEU), []Node{able("a", 9<<30), settings(able("b", 9<<30), eu)}, nil, "b", ""},
		{"a required label that nobody has", labelled(model("m", 1), inEU), []Node{able("a", 9<<30)}, nil, "", "lacks the required label zone=eu"},
		{"a forbidden label refuses", labelled(model("m", 1), notEU), []Node{settings(able("a", 9<<30), eu)}, nil, "", "has the forbidden label zone=eu"},
		{"an owner that lost its label loses the slot though it serves", labelled(model("m", 1), inEU), []Node{since(able("a", 9<<30), "m", 5), settings(able("b", 9<<30), eu)}, owned, "b", ""},
		{"a cordoned node gets nothing", model("m", 1), []Node{settings(able("a", 9<<30), catalog.NodeSettings{Cordoned: true})}, nil, "", "is cordoned"},
		{"a cordoned node keeps what it has", model("m", 1), []Node{settings(able("a", 9<<30), catalog.NodeSettings{Cordoned: true}), able("b", 9<<30)}, owned, "a", "before"},
		{"a drained node gets nothing", model("m", 1), []Node{settings(able("a", 9<<30), drained)}, nil, "", "is being drained"},
		{"a drained node gives away what it has", model("m", 1), []Node{ready(settings(able("a", 9<<30), drained), "m"), able("b", 9<<30)}, owned, "b", "box-a is being drained; box-b has the engine"},
		{"and keeps what no other can have", model("m", 1), []Node{ready(settings(able("a", 9<<30), drained), "m"), able("b", 0)}, owned, "a", "stays on box-a, which is being drained: no other node can take it: box-b: needs 1.2 GiB"},
		{"and what is pinned to it", with2(model("m", 1), func(m *catalog.Model) { m.Pin = "a" }), []Node{ready(settings(able("a", 9<<30), drained), "m"), able("b", 9<<30)}, owned, "a", "before"},
		{"and all while it is silent", model("m", 1), []Node{away(ready(settings(able("a", 9<<30), drained), "m")), able("b", 9<<30)}, owned, "a", "before"},
		{"two that are drained keep what they have", model("m", 1), []Node{ready(settings(able("a", 9<<30), drained), "m"), settings(able("b", 9<<30), drained)}, owned, "a", "box-b: is being drained"},
		{"what requests asked for ends where it is drained", onDemand("m", 1), []Node{loaded(settings(able("a", 9<<30), drained), catalog.ReplicaStatus{Model: "m"}), able("b", 9<<30)}, []catalog.Assignment{demanded("m", "a")}, "", "box-a is being drained, and no request asks for it"},
		{"and moves while it is busy", onDemand("m", 1), []Node{loaded(settings(able("a", 9<<30), drained), catalog.ReplicaStatus{Model: "m", InFlight: 1}), able("b", 9<<30)}, []catalog.Assignment{demanded("m", "a")}, "b", "box-a is being drained; box-b has"},
		{"and stays, idle or not, where no other can have it", onDemand("m", 1), []Node{loaded(settings(able("a", 9<<30), drained), catalog.ReplicaStatus{Model: "m"})}, []catalog.Assignment{demanded("m", "a")}, "a", "no other node can take it: there is none"},
		{"and where it is pinned", with2(onDemand("m", 1), func(m *catalog.Model) { m.Pin = "a" }), []Node{loaded(settings(able("a", 9<<30), drained), catalog.ReplicaStatus{Model: "m"}), able("b", 9<<30)}, []catalog.Assignment{demanded("m", "a")}, "a", "before"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Plan(Input{Models: []catalog.Model{tc.model}, Nodes: tc.nodes, Assignments: tc.given})[0]
			if d.Owner != tc.owner || !strings.Contains(d.Reason, tc.reason) {
				t.Errorf("got owner %q because %q", d.Owner, d.Reason)
			}
		})
	}
}

func TestHolderChecksLabelsItself(t *testing.T) {
	in := Input{
		Models:      []catalog.Model{labelled(model("m", 1), catalog.Selector{Forbid: map[string]string{"zone": "eu"}})},
		Nodes:       []Node{settings(able("a", 0), catalog.NodeSettings{Labels: map[string]string{"zone": "eu"}})},
		Assignments: []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 2}},
	}
	got := Reconcile("a", in)
	if len(got) != 1 || got[0].Run || !strings.Contains(got[0].Reason, "zone=eu") {
		t.Errorf("got %+v", got)
	}
}

func TestOfTwoThatServeTheLongerStays(t *testing.T) {
	owned := []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 3}}
	in := Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{since(able("a", 0), "m", 20), since(able("b", 0), "m", 10)}, Assignments: owned}
	d := Plan(in)[0]
	if d.Owner != "b" || d.Write == nil || d.Write.Epoch != 4 {
		t.Errorf("got %+v", d)
	}
	in = apply(in, Plan(in))
	if again := Plan(in)[0]; again.Write != nil {
		t.Errorf("it flaps: %+v", again)
	}
	// Until the steward has written that, the one that stays must not go.
	if got := Reconcile("b", Input{Models: []catalog.Model{model("m", 1)}, Nodes: in.Nodes, Assignments: owned}); len(got) != 0 {
		t.Errorf("the one that stays was told to go: %+v", got)
	}
	got := Reconcile("a", in)
	if len(got) != 1 || got[0].Run || got[0].Epoch != 4 {
		t.Errorf("the one that goes was told %+v", got)
	}
	pinned := model("m", 1)
	pinned.Pin = "a"
	in = Input{Models: []catalog.Model{pinned}, Nodes: in.Nodes, Assignments: owned}
	if d := Plan(in)[0]; d.Owner != "a" || d.Write != nil {
		t.Errorf("a pinned owner lost to one that serves longer: %+v", d)
	}
}

func TestWhyNamesEveryNode(t *testing.T) {
	in := Input{Models: []catalog.Model{model("m", 1)}, Nodes: []Node{
		since(able("a", 0), "m", 5), able("b", 1), with(able("c", 9<<30), func(n *Node) { n.Presence.Engines = nil }),
		with(able("d", 9<<30), func(n *Node) { n.Live = false }), able("e", 9<<30),
	}, Assignments: []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 3, Reason: "first"}}}
	got := Why(in, "m")
	if len(got) != 1 || got[0].Owner != "a" || got[0].Epoch != 3 || got[0].Reason != "first" || got[0].Steward == "" {
		t.Fatalf("got %+v", got)
	}
	whys := map[string]string{}
	for _, c := range got[0].Candidates {
		whys[c.Node] = c.Why
	}
	for node, part := range map[string]string{"a": "", "b": "needs", "c": "engine llamacpp is not installed", "d": "does not answer", "e": ""} {
		if why, ok := whys[node]; !ok || !strings.Contains(why, part) || (part == "") != (why == "") {
			t.Errorf("%s: %q, want %q in it", node, why, part)
		}
	}
	if Why(in, "nothing") != nil {
		t.Error("a model that is not there was explained")
	}
}

func TestWhatIf(t *testing.T) {
	twice := func() Input {
		return Input{Models: []catalog.Model{model("m", 1), model("n", 1)}, Nodes: []Node{since(able("a", 9<<30), "m", 1), since(able("b", 9<<30), "n", 1)},
			Assignments: []catalog.Assignment{{Model: "m", Owner: "a", Epoch: 1}, {Model: "n", Owner: "b", Epoch: 1}}}
	}
	alone := twice()
	alone.Nodes[1].Presence.Weights = nil
	big := model("big", 1)
	big.Source.SizeBytes = 20 << 30
	added := able("new", 24<<30)
	unheard := model("unheard", 1)
	unheard.Source.Digest = "sha256:ff"
	for _, tc := range []struct {
		name   string
		in     Input
		change Change
		want   map[string]Effect
	}{
		{"nothing changes", twice(), Change{}, map[string]Effect{"m": Kept, "n": Kept}},
		{"without a node its models move", twice(), Change{Without: []string{"a"}}, map[string]Effect{"m": Moved, "n": Kept}},
		{"without the only holder of a file it is lost", alone, Change{Without: []string{"a"}}, map[string]Effect{"m": Lost, "n": Kept}},
		{"a model that fits nowhere is missing", twice(), Change{Model: &big}, map[string]Effect{"m": Kept, "n": Kept, "big": Missing}},
		{"a file that nobody has could be pulled", alone, Change{Model: &unheard, Everywhere: true}, map[string]Effect{"m": Kept, "n": Kept, "unheard": Gained}},
		{"a bigger box makes it fit", twice(), Change{Model: &big, Add: &added}, map[string]Effect{"m": Kept, "n": Kept, "big": Gained}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := slices.Clone(tc.in.Nodes)
			got := map[string]Effect{}
			for _, o := range WhatIf(tc.in, tc.change) {
				got[o.Model] = o.Effect
				if o.Reason == "" && o.Effect != Kept {
					t.Errorf("%s has no reason", o.Model)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, tc.in.Nodes); diff != "" {
				t.Errorf("the question changed the inventory: %s", diff)
			}
		})
	}
}
