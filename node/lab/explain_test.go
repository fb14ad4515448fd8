package lab

import (
	"slices"
	"strings"
	"testing"
	"time"

	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// TestExplainNamesWhatIsWrong: of four boxes one is dead, one is paused and one
// is drained; status, doctor, why and whatif on the fourth say so of each.
func TestExplainNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.joinedBoxes("a", "dead", "paused", "drained")
	a, dead, paused, drained := boxes[0], boxes[1], boxes[2], boxes[3]
	for _, b := range boxes {
		b.PullSim("sim", Sim{Tokens: 1})
	}
	a.CLI("load", "sim", "--node", "a")
	a.AwaitReplica("sim", string(catalog.ReplicaReady), 15*time.Second)
	a.CLI("drain", "drained")
	dead.Crash()
	a.Sees(dead, 25*time.Second, ui.NodeDead)
	paused.Pause()
	a.Sees(paused, 10*time.Second, ui.NodeSuspect)
	status, why, whatif := a.CLI("status"), a.CLI("why", "sim"), a.Try("whatif", "--without", "a")
	nodes, doctor := a.CLI("nodes"), a.Try("doctor")
	paused.Resume()
	t.Logf("\n%s\n\n%s\n\n%s\n\n%s\n\n%s", nodes, status, doctor.Out(), why, whatif.Out())
	for what, tc := range map[string]struct {
		said  string
		wants []string
	}{
		"status": {status, []string{"DEGRADED", "dead (", ") is a member and does not answer", "paused has not been heard"}},
		"nodes":  {nodes, []string{"live, drained", "dead", "suspect"}},
		"doctor": {doctor.Out(), []string{"dead", "paused", "drained"}},
		"why":    {why, []string{"serves it", "dead", "paused", "drained"}},
		"whatif": {whatif.Out(), []string{"sim", "a"}},
	} {
		for _, want := range tc.wants {
			if !strings.Contains(tc.said, want) {
				t.Errorf("%s does not say %q:\n%s", what, want, tc.said)
			}
		}
	}
	verdicts := map[string]string{}
	for _, s := range JSON[ui.WhyResult](a, "why", "sim").Slots {
		for _, n := range s.Nodes {
			verdicts[n.Node] = n.Why
		}
	}
	for _, b := range []*Box{dead, drained} {
		if verdicts[b.Name] == "" {
			t.Errorf("why does not say what keeps %s from having it: %v", b.Name, verdicts)
		}
	}
}

// TestWhatIfTellsWhatThenHappens compares the prediction of a leave with the
// leave.
func TestWhatIfTellsWhatThenHappens(t *testing.T) {
	t.Parallel()
	l := New(t)
	boxes := l.joinedBoxes("a", "b", "c")
	a, b := boxes[0], boxes[1]
	held := map[string][]*Box{"moving": {b, boxes[2]}, "lost": {b}, "staying": {a}}
	for model, holders := range held {
		for _, h := range holders {
			h.PullSim(model, Sim{Tokens: len(model)})
		}
	}
	// A pin would hold it there when its box leaves; a label that is no longer
	// asked for does not, and what works stays where it is.
	a.CLI("label", "b", "first=yes")
	for model := range held {
		ask := []string{"scale", model, "--replicas", "1", "--require", "first=yes"}
		if model == "staying" {
			ask = []string{"load", model}
		}
		Eventually(t, 5*time.Second, "a knows "+model, func() (bool, string) {
			r := a.Try(ask...)
			return r.Code == 0, r.String()
		})
	}
	for model, holders := range held {
		a.AwaitReplicaOn(model, holders[0], 20*time.Second)
		a.CLI("scale", model, "--replicas", "1", "--require", "")
	}
	wantMoved := func(o ui.Outcome) bool { return o.Model == "moving" && o.Before == "b" && o.After == "c" }
	predicted := JSON[ui.WhatIfResult](a, "whatif", "--without", "b")
	said := a.CLI("whatif", "--without", "b")
	if !slices.ContainsFunc(predicted.Outcomes, wantMoved) || len(predicted.Outcomes) != 3 {
		t.Errorf("whatif says:\n%s", said)
	}
	b.CLI("leave")
	Eventually(t, 20*time.Second, "a counts two members", func() (bool, string) {
		return JSON[ui.Status](a, "status").Mesh.Members == 2, a.CLI("nodes")
	})
	for _, o := range predicted.Outcomes {
		Eventually(t, 60*time.Second, o.Model+" is where it was said to be: "+o.After, func() (bool, string) {
			var ready []string
			for _, r := range a.Replicas(o.Model) {
				if r.State == string(catalog.ReplicaReady) {
					ready = append(ready, r.NodeName)
				}
			}
			want := slices.DeleteFunc([]string{o.After}, func(s string) bool { return s == "" })
			return slices.Equal(ready, want), a.CLI("ps") + "\n" + a.CLI("why", o.Model)
		})
	}
	t.Logf("said before:\n%s\nas it is after:\n%s\n%s", said, a.CLI("ps"), a.CLI("status"))
}
