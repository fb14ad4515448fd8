package placement

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// forAnyMesh checks what holds of the decisions of every mesh.
func forAnyMesh(t *testing.T, check func(t *rapid.T, in Input, decisions []Decision)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		in := genMesh(rt)
		check(rt, in, Plan(in))
	})
}

// stored is the row of a decision's slot before it.
func stored(in Input, d Decision) catalog.Assignment {
	i := slices.IndexFunc(in.Assignments, func(a catalog.Assignment) bool { return a.Model == d.Model && a.Slot == d.Slot })
	if i < 0 {
		return catalog.Assignment{}
	}
	return in.Assignments[i]
}

// isGiven says whether a slot comes to another owner or device than before.
func isGiven(in Input, d Decision) bool {
	before := stored(in, d)
	return d.Owner != "" && (d.Owner != before.Owner || d.Device != before.Device)
}

func TestOrderOfInputsIsNothing(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, want []Decision) {
		whys := map[string][]Explanation{}
		for _, m := range in.Models {
			whys[m.ID] = Why(in, m.ID)
		}
		actions := map[string][]Action{}
		for _, n := range in.Nodes {
			actions[n.ID] = Reconcile(n.ID, in)
		}
		in.Models = rapid.Permutation(in.Models).Draw(t, "models' order")
		in.Nodes = rapid.Permutation(in.Nodes).Draw(t, "nodes' order")
		if diff := cmp.Diff(want, Plan(Input{Models: in.Models, Nodes: in.Nodes, Assignments: rapid.Permutation(in.Assignments).Draw(t, "rows' order")})); diff != "" {
			t.Error(diff)
		}
		for id, why := range whys {
			if diff := cmp.Diff(why, Why(in, id)); diff != "" {
				t.Errorf("why %s: %s", id, diff)
			}
			if before, after := Steward(id, in.Nodes), Steward(id, rapid.Permutation(in.Nodes).Draw(t, "again")); before != after {
				t.Errorf("stewards %s and %s", before, after)
			}
		}
		for id, want := range actions {
			if diff := cmp.Diff(want, Reconcile(id, in)); diff != "" {
				t.Errorf("reconcile %s: %s", id, diff)
			}
		}
	})
}

func TestQuestionsChangeNoInput(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := genMesh(rt)
		text := func() string { b, _ := json.Marshal(in); return string(b) }
		before := text()
		Plan(in)
		for _, n := range in.Nodes {
			Reconcile(n.ID, in)
			WhatIf(in, Change{Without: []string{n.ID}, Everywhere: true})
		}
		for _, m := range in.Models {
			Why(in, m.ID)
			WhatIf(in, Change{Model: &m, Everywhere: true, Add: &Node{ID: "new", Live: true}})
		}
		if after := text(); after != before {
			rt.Errorf("before %s\nafter %s", before, after)
		}
	})
}

func TestDecisionsAreOrderedAndEachSlotHasOne(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		seen := map[catalog.AssignmentID]bool{}
		last := Decision{Slot: -1}
		for _, d := range decisions {
			if seen[d.id()] || d.Model < last.Model || d.Model == last.Model && d.Slot < last.Slot {
				t.Errorf("%s slot %d comes after %s slot %d", d.Model, d.Slot, last.Model, last.Slot)
			}
			seen[d.id()], last = true, d
		}
		for _, a := range in.Assignments {
			if a.Owner != "" && !seen[catalog.AssignmentID{Model: a.Model, Slot: a.Slot}] {
				t.Errorf("nothing is decided of %s slot %d", a.Model, a.Slot)
			}
		}
	})
}

func TestEpochsOnlyGrowAndNothingIsWrittenTwice(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		for _, d := range decisions {
			before := stored(in, d)
			switch {
			case d.Write == nil && (d.Owner != before.Owner || d.Device != before.Device || d.Demand != before.Demand):
				t.Errorf("%+v differs from %+v and is not written", d, before)
			case d.Write == nil:
			case d.Write.Epoch != before.Epoch+1:
				t.Errorf("epoch %d after %d", d.Write.Epoch, before.Epoch)
			case d.Write.Model != d.Model || d.Write.Slot != d.Slot || d.Write.Owner != d.Owner || d.Write.Device != d.Device || d.Write.Demand != d.Demand || d.Write.Reason != d.Reason:
				t.Errorf("%+v is written as %+v", d, *d.Write)
			case d.Owner == before.Owner && d.Device == before.Device && d.Demand == before.Demand && d.Write.After <= before.After && d.Owner != "":
				t.Errorf("%+v is written again: %s", *d.Write, d.Reason)
			}
		}
	})
}

var (
	// figures are amounts that a refusal names.
	figures = regexp.MustCompile(`needs (\d+\.\d GiB|\d+ MiB) of memory, (\d+\.\d GiB|\d+ MiB) is free there`)
	// spoilt are marks of a sentence that was put together wrongly.
	spoilt = regexp.MustCompile(`%!|  |^[ ;:,]|[ ;:,]$|: ;|: :|<nil>|\(\)`)
)

func checkSentence(t *rapid.T, where, text string) {
	t.Helper()
	if text == "" || spoilt.MatchString(text) {
		t.Errorf("%s says %q", where, text)
	}
}

// TestEveryDecisionAndRefusalHasAReason that names who or what it is about.
func TestEveryDecisionAndRefusalHasAReason(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		for _, d := range decisions {
			checkSentence(t, d.Model, d.Reason)
			m, _ := modelOf(in, d.Model)
			if isGiven(in, d) && !strings.Contains(d.Reason, "box-"+d.Owner) && m.Pin == "" {
				t.Errorf("%s is given to %s because %q", d.Model, d.Owner, d.Reason)
			}
			if !d.Unsatisfied {
				continue
			}
			if d.Waits != strings.Contains(d.Reason, "waits ") {
				t.Errorf("it waits: %v, and %q", d.Waits, d.Reason)
			}
			if d.Owner != "" || !strings.Contains(d.Reason, "node") {
				t.Errorf("%s has %q and is unsatisfied: %q", d.Model, d.Owner, d.Reason)
			}
			if strings.HasPrefix(d.Reason, "no node can serve it") {
				for _, n := range in.Nodes {
					if !n.Gone && !strings.Contains(d.Reason, "box-"+n.ID+": ") {
						t.Errorf("%q does not tell of %s", d.Reason, n.ID)
					}
				}
			}
			if strings.Contains(d.Reason, "of memory") && !figures.MatchString(d.Reason) {
				t.Errorf("%q has no figures", d.Reason)
			}
		}
		for _, n := range in.Nodes {
			for _, a := range Reconcile(n.ID, in) {
				if !a.Run {
					checkSentence(t, "release of "+a.Model, a.Reason)
				}
			}
		}
	})
}

// TestAWhyAgreesWithItsDecision: who was refused could not have it, and who was chosen
// could.
func TestAWhyAgreesWithItsDecision(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := genMesh(rt)
		for _, m := range in.Models {
			for _, e := range Why(in, m.ID) {
				if len(e.Candidates) != len(in.Nodes) {
					rt.Fatalf("%d candidates of %d nodes", len(e.Candidates), len(in.Nodes))
				}
				for _, c := range e.Candidates {
					if c.Why != "" {
						checkSentence(rt, "candidate "+c.Node, c.Why)
					}
					if e.Unsatisfied && c.Why == "" {
						rt.Errorf("%s slot %d: nobody can have it (%s), and %s could", m.ID, e.Slot, e.Reason, c.Node)
					}
					if c.Node == e.Owner && isGiven(in, e.Decision) && c.Why != "" {
						rt.Errorf("%s slot %d was given to %s, which cannot have it: %s", m.ID, e.Slot, c.Node, c.Why)
					}
				}
			}
		}
	})
}

func TestLabelsAreObeyedAlways(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		for _, d := range decisions {
			m, _ := modelOf(in, d.Model)
			if why := m.Labels.Refuses(node(in, d.Owner).Settings.Labels); d.Owner != "" && node(in, d.Owner).ID != "" && why != "" {
				t.Errorf("%s slot %d is on %s, though %s: %s", d.Model, d.Slot, d.Owner, why, d.Reason)
			}
		}
		for _, n := range in.Nodes {
			for _, a := range Reconcile(n.ID, in) {
				if m, known := modelOf(in, a.Model); known && a.Run && m.Labels.Refuses(n.Settings.Labels) != "" {
					t.Errorf("%s is told to run %s", n.ID, a.Model)
				}
			}
		}
	})
}

func TestWhoMayBeGivenNothingIsGivenNothing(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		for _, d := range decisions {
			if !isGiven(in, d) {
				continue
			}
			n := node(in, d.Owner)
			m, _ := modelOf(in, d.Model)
			if !n.Live || n.Gone || n.Settings.Cordoned || n.Settings.Draining || n.Presence.Stopping || !n.Presence.Complete {
				t.Errorf("%s was given to %+v", d.Model, n)
			}
			if !holds(m, d.Slot, n) && slices.Contains(n.Settings.CordonedDevices, deviceID(d.Device)) {
				t.Errorf("%s was given to %s of %s, which is cordoned", d.Model, deviceID(d.Device), d.Owner)
			}
			if m.Pin != "" && d.Owner != m.Pin {
				t.Errorf("%s is pinned to %s and on %s", d.Model, m.Pin, d.Owner)
			}
		}
	})
}

func TestAGivenDeviceIsThereAndItsEngineComputesOnIt(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		for _, d := range decisions {
			n, m := node(in, d.Owner), catalog.Model{}
			if m, _ = modelOf(in, d.Model); !isGiven(in, d) || holds(m, d.Slot, n) {
				continue
			}
			profile, _, ok := ChooseProfile(m, n.Presence.Engines)
			if !ok || !slices.Contains(n.Presence.Weights, m.Source.Digest) {
				t.Fatalf("%s was given to %s, which has no engine or no file", d.Model, d.Owner)
			}
			there := d.Device == "" || slices.ContainsFunc(n.Presence.Inventory.Devices, func(dev catalog.Device) bool {
				i := slices.IndexFunc(n.Presence.Engines, func(e catalog.EngineInfo) bool { return e.Name == profile.Engine })
				return dev.ID == d.Device && n.Presence.Engines[i].ComputesOn(dev.Kind)
			})
			if !there {
				t.Errorf("%s was given to device %s of %s", d.Model, d.Device, d.Owner)
			}
		}
	})
}

// promised is what the replicas that a device is to load will need.
func promised(in Input, decisions []Decision, owner, device string) (bytes int64, given bool) {
	n := node(in, owner)
	for _, d := range decisions {
		m, _ := modelOf(in, d.Model)
		if r, _ := n.Presence.Replica(d.Model, d.Slot); d.Owner != owner || deviceID(d.Device) != device || r.State == catalog.ReplicaReady && isOf(m, r) {
			continue
		}
		given = given || isGiven(in, d)
		bytes += need(m, n)
	}
	return bytes, given
}

// TestNoDeviceIsGivenMoreThanIsFree by its own measure, whatever was promised before,
// and one that cannot be measured refuses nothing.
func TestNoDeviceIsGivenMoreThanIsFree(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		for _, n := range in.Nodes {
			measured := false
			for _, dev := range devices(n) {
				bytes, given := promised(in, decisions, n.ID, dev.ID)
				if dev.MemoryFree != nil && given && bytes > *dev.MemoryFree {
					t.Errorf("%s of %s has %d free and shall load %d", dev.ID, n.ID, *dev.MemoryFree, bytes)
				}
				measured = measured || dev.MemoryFree != nil
			}
			for _, d := range decisions {
				if !measured && d.Unsatisfied && strings.Contains(d.Reason, "box-"+n.ID+": needs") {
					t.Errorf("nothing of %s could be measured, and %s", n.ID, d.Reason)
				}
			}
		}
	})
}

func TestAsManyReplicasAsScalingAsksFor(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		owned, decided := map[string]int{}, map[string]int{}
		for _, d := range decisions {
			m, known := modelOf(in, d.Model)
			if d.Owner == "" {
				if d.Unsatisfied && known && d.Slot < m.Scale.Min {
					decided[d.Model]++
				}
				continue
			}
			owned[d.Model]++
			switch {
			case !known || m.State == catalog.ModelStopped || d.Slot >= m.Scale.Max:
				t.Errorf("%s slot %d is owned: %+v", d.Model, d.Slot, m)
			case d.Slot < m.Scale.Min && d.Demand:
				t.Errorf("%s slot %d is wanted always and would end when it is idle", d.Model, d.Slot)
			case d.Slot < m.Scale.Min:
				decided[d.Model]++
			}
		}
		for _, m := range in.Models {
			if owned[m.ID] > m.Scale.Max {
				t.Errorf("%d replicas of %s, scale.max is %d", owned[m.ID], m.ID, m.Scale.Max)
			}
			if m.State != catalog.ModelStopped && decided[m.ID] != m.Scale.Min {
				t.Errorf("%d slots of %s are decided, scale.min is %d", decided[m.ID], m.ID, m.Scale.Min)
			}
		}
	})
}

// works says whether a slot is wanted, or may linger, and is served where it is
// allowed to be.
func works(in Input, a catalog.Assignment) bool {
	m, known := modelOf(in, a.Model)
	n := node(in, a.Owner)
	if !known || !n.Live || m.State == catalog.ModelStopped || m.Labels.Refuses(n.Settings.Labels) != "" || m.Pin != "" && m.Pin != a.Owner {
		return false
	}
	r, _ := n.Presence.Replica(a.Model, a.Slot)
	lingers := a.Demand && a.After >= m.Unloaded && a.Slot < m.Scale.Max && (!r.Idle || r.InFlight > 0 || m.Scale.Idle == 0)
	return r.State == catalog.ReplicaReady && (a.Slot < newPlanner(in).wanted(m) || lingers)
}

func TestNothingMovesWhileItWorks(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		for _, d := range decisions {
			a := stored(in, d)
			if a.Owner == "" || d.Owner == a.Owner || !works(in, a) {
				continue
			}
			m, _ := modelOf(in, a.Model)
			r, _ := node(in, a.Owner).Presence.Replica(a.Model, a.Slot)
			longer := d.Owner != "" && holds(m, a.Slot, node(in, d.Owner)) && servesSince(m, a.Slot, node(in, d.Owner)) < r.Since
			made := d.Owner == "" && a.Demand && a.Slot >= newPlanner(in).wanted(m) && r.InFlight == 0 && strings.Contains(d.Reason, "needs its memory")
			drained := node(in, a.Owner).Settings.Draining && strings.Contains(d.Reason, "is being drained") && (d.Owner != "" || r.InFlight == 0 && a.Slot >= newPlanner(in).wanted(m))
			if !longer && !made && !drained {
				t.Errorf("%s slot %d went from %s to %q: %s", d.Model, d.Slot, a.Owner, d.Owner, d.Reason)
			}
		}
	})
}

// TestAnOwnerThatIsSilentKeepsItsSlot until the hold-down is over.
func TestAnOwnerThatIsSilentKeepsItsSlot(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		for _, d := range decisions {
			a := stored(in, d)
			n := node(in, a.Owner)
			m, known := modelOf(in, d.Model)
			allowed := known && m.State != catalog.ModelStopped && (m.Pin == "" || m.Pin == a.Owner) && m.Labels.Refuses(n.Settings.Labels) == ""
			wanted := d.Slot < newPlanner(in).wanted(m) || a.Demand && a.After >= m.Unloaded && d.Slot < m.Scale.Max
			if n.ID != "" && !n.Live && !n.Gone && allowed && wanted && d.Owner != a.Owner {
				t.Errorf("%s slot %d went from %s, which is only silent, to %q: %s", d.Model, d.Slot, a.Owner, d.Owner, d.Reason)
			}
			if n.Gone && d.Owner == a.Owner && a.Owner != "" {
				t.Errorf("%s slot %d stays with %s, which is gone", d.Model, d.Slot, a.Owner)
			}
		}
	})
}

// TestRoomIsMadeForSomebody: a slot that goes for its memory names a model that waits
// for it, and what goes is neither busy nor wanted.
func TestRoomIsMadeForSomebody(t *testing.T) {
	forAnyMesh(t, func(t *rapid.T, in Input, decisions []Decision) {
		for _, d := range decisions {
			if !strings.Contains(d.Reason, "needs its memory") {
				continue
			}
			a := stored(in, d)
			waits := func(o Decision) bool {
				return o.Unsatisfied && strings.Contains(d.Reason, "and "+o.Model+" needs") && strings.Contains(o.Reason, d.Model) && strings.Contains(o.Reason, "makes room")
			}
			i := slices.IndexFunc(decisions, waits)
			if !a.Demand || d.Owner != "" || i < 0 {
				t.Fatalf("%+v makes room for nobody", d)
			}
			m, _ := modelOf(in, decisions[i].Model)
			if r, _ := node(in, a.Owner).Presence.Replica(a.Model, a.Slot); r.Fresh && decisions[i].Slot >= m.Scale.Min {
				t.Errorf("%+v was just loaded, and makes room for requests: %+v", d, decisions[i])
			}
		}
	})
}

func TestAStewardCanWrite(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := genMesh(rt)
		able := func(n Node) bool { return n.Live && n.Presence.Complete && !n.Presence.Stopping }
		for _, id := range append(modelIDs(in), "any") {
			steward := Steward(id, in.Nodes)
			if (steward == "") == slices.ContainsFunc(in.Nodes, able) || steward != "" && !able(node(in, steward)) {
				rt.Fatalf("steward %q of %+v", steward, in.Nodes)
			}
			// Who comes or goes changes nothing for the models of others.
			rest := slices.DeleteFunc(slices.Clone(in.Nodes), func(n Node) bool { return n.ID != steward && oneIn(rt, 2, "goes") })
			if steward != Steward(id, rest) {
				rt.Errorf("the steward of %s changes with others", id)
			}
		}
	})
}
