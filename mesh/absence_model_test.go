package mesh

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"llmgw/crdt/store"
)

// month is longer than anybody may be away.
const month = 31 * 24 * time.Hour

// TestTerms: what two boxes may exchange, by how long each was away as far as both know.
func TestTerms(t *testing.T) {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	give := terms{give: true}
	both := terms{give: true, take: true}
	for name, c := range map[string]struct {
		h     hello
		fresh bool
		want  terms
		stage uint8
	}{
		"both in step":                           {hello{}, false, both, inStep},
		"the mesh was up a little longer":        {hello{Uptime: seconds(24 * time.Hour)}, false, both, inStep},
		"the mesh was up for a month":            {hello{Uptime: seconds(month)}, false, terms{reseed: true}, tooLong},
		"a month, told by one that was away":     {hello{Uptime: seconds(month), Away: tooLong}, false, give, inStep},
		"a month, told by one that is alone":     {hello{Uptime: seconds(month), Away: alone}, false, give, inStep},
		"a month, told by one that went on":      {hello{Uptime: seconds(month), Away: wentOn}, false, terms{}, tooLong},
		"the other was away":                     {hello{Away: tooLong}, false, give, inStep},
		"the other went on":                      {hello{Away: wentOn}, false, both, inStep},
		"a stage of a later version":             {hello{Away: wentOn + 1}, false, give, inStep},
		"a stage that will never be":             {hello{Away: math.MaxUint8, Uptime: math.MaxInt64}, false, give, inStep},
		"a month, to one that has just joined":   {hello{Uptime: seconds(month)}, true, both, inStep},
		"more than any mesh, to one that joined": {hello{Uptime: math.MaxInt64}, true, both, inStep},
		"a negative uptime":                      {hello{Uptime: math.MinInt64}, false, both, inStep},
	} {
		t.Run(name, func(t *testing.T) {
			m := bareMesh(t, "a")
			p := m.adds(t, 1, RoleMember)
			m.absence.fresh.Store(c.fresh)
			c.h.Store, c.h.Index = 7, 8
			m.absence.heard(p, c.h)
			got, err := m.absence.meets(p, c.h)
			if err != nil || got != c.want || m.absence.stage() != c.stage {
				t.Errorf("%s: %+v in stage %d, %v; want %+v in %d", name, got, m.absence.stage(), err, c.want, c.stage)
			}
			if m.absence.overdue() != (len(m.alarmsOf(AlarmAway)) == 1) {
				t.Errorf("%s: alarms %v", name, m.Alarms())
			}
		})
	}
}

// TestTermsOfTwoFit: of two boxes that meet, one gives rows only where the other may take
// them without harm, and never do both replace their state by the other's.
func TestTermsOfTwoFit(t *testing.T) {
	a, b := bareMesh(t, "a"), bareMesh(t, "b")
	stages := []uint32{inStep, tooLong, alone, wentOn}
	rapid.Check(t, func(rt *rapid.T) {
		for _, m := range []*Mesh{a, b} {
			m.absence.fresh.Store(false)
			m.absence.now.Store(rapid.SampledFrom(stages).Draw(rt, "stage"))
		}
		// One of them was there while the mesh was up, and knows for how long.
		a.absence.told.Store(int64(rapid.SampledFrom([]time.Duration{0, 24 * time.Hour, month}).Draw(rt, "up") / time.Second))
		fromA, fromB := a.hello(), b.hello()
		atA, err := a.absence.meets(b.self, fromB)
		if err != nil {
			rt.Fatal(err)
		}
		atB, err := b.absence.meets(a.self, fromA)
		if err != nil {
			rt.Fatal(err)
		}
		for _, x := range []struct{ of, other terms }{{atA, atB}, {atB, atA}} {
			if x.of.reseed && (x.of.take || x.of.give || x.other.reseed) {
				rt.Fatalf("%+v against %+v", x.of, x.other)
			}
			if x.of.take && !x.of.give {
				rt.Fatalf("takes rows beside its own, and its own are old: %+v", x.of)
			}
		}
		if atA.reseed && fromB.Away != inStep || atB.reseed && fromA.Away != inStep {
			rt.Fatalf("takes over the state of one that is not in step")
		}
		if atA.take && (fromB.Away == tooLong || fromB.Away == alone) {
			rt.Fatal("takes rows of one that was away")
		}
	})
}

// TestWhoseRowsAreNotTaken goes by the last hello.
func TestWhoseRowsAreNotTaken(t *testing.T) {
	m := bareMesh(t, "a")
	p := m.adds(t, 1, RoleMember)
	if m.absence.behind(p) {
		t.Error("one that was never heard is behind")
	}
	for away, want := range map[uint8]bool{inStep: false, tooLong: true, alone: true, wentOn: false, wentOn + 1: true, 255: true} {
		m.absence.heard(p, hello{Away: away})
		if got := m.absence.behind(p); got != want {
			t.Errorf("stage %d: behind %v", away, got)
		}
	}
}

// TestWayOutOfBeingAlone: the stages of a box that finds nobody to take over from, by its
// own clock and what the others tell.
func TestWayOutOfBeingAlone(t *testing.T) {
	clock := &fixedClock{}
	m := bareMesh(t, "a", withFixedClock(clock))
	a := m.absence
	start := clock.at
	p, q := m.adds(t, 1, RoleMember), m.adds(t, 2, RoleMember)
	look := func(at time.Duration, want uint8, why string) {
		t.Helper()
		clock.at = start.Add(at)
		a.look(clock.at)
		if got := a.stage(); got != want {
			t.Fatalf("at %s, %s: stage %d, want %d", at, why, got, want)
		}
	}
	a.now.Store(tooLong)
	look(0, tooLong, "nobody is there")
	look(time.Hour, tooLong, "nobody is there for an hour, which is no reason to go on")
	m.speaksTo(p, 1)
	m.speaksTo(q, 2)
	a.heard(p, hello{Away: tooLong, Uptime: 5})
	a.heard(q, hello{Away: inStep})
	look(time.Hour, tooLong, "one is in step")
	look(time.Hour+2*aloneAfter, tooLong, "one is still in step")
	if !m.puller.wants(q) || !m.puller.wants(p) {
		t.Error("it does not ask those that are there")
	}
	a.heard(q, hello{Away: wentOn, Uptime: 9})
	look(2*time.Hour, tooLong, "none is in step since now")
	look(2*time.Hour+aloneAfter-time.Second, tooLong, "none is in step for less than half a minute")
	look(2*time.Hour+aloneAfter, alone, "one waits for others itself")
	a.heard(p, hello{Away: inStep})
	look(2*time.Hour+aloneAfter+time.Second, tooLong, "one came that is in step")
	a.heard(p, hello{Away: alone, Uptime: 7})
	look(3*time.Hour, tooLong, "the wait begins anew")
	look(3*time.Hour+aloneAfter, wentOn, "nobody waits any more")
	if got := m.alarmsOf(AlarmAway); len(got) != 1 {
		t.Errorf("alarms %q", got)
	}
	if h := m.hello(); h.Away != wentOn {
		t.Errorf("tells %d", h.Away)
	}
	look(3*time.Hour+aloneAfter+wentOnFor-time.Second, wentOn, "others may still be about to")
	look(3*time.Hour+aloneAfter+wentOnFor, inStep, "that is over")
}

// TestEnteringAMeshIsABeginning: what was away is not so in the mesh that it joins.
func TestEnteringAMeshIsABeginning(t *testing.T) {
	all := bareMeshes(t, 2)
	m := all[1]
	m.absence.now.Store(tooLong)
	if err := m.foundRandom(); err != nil {
		t.Fatal(err)
	}
	if m.absence.overdue() || !m.absence.fresh.Load() {
		t.Error("away in a mesh of its own")
	}
	if err := m.absence.synced(0); err != nil || m.absence.fresh.Load() {
		t.Errorf("still new after all was pulled: %v", err)
	}
}

// TestAcknowledgementsOfAPastThatIsLost: what a peer has of this box's log it got from this
// process or one before it; more than that is of a disk that was set back.
func TestAcknowledgementsOfAPastThatIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		served uint64 // beyond the log at the start
		ack    int64  // the same
		other  bool   // of another log
		proof  string // whose
		lost   bool
		lie    bool
	}{
		"nothing":                      {0, -1 << 40, false, "", false, false},
		"all of the start":             {0, 0, false, "", false, false},
		"what it was sent":             {5, 5, false, "", false, false},
		"less than it was sent":        {5, 3, false, "", false, false},
		"more than it was sent":        {5, 6, false, "own", true, false},
		"more than was ever written":   {0, 1 << 40, false, "own", true, false},
		"of another log":               {0, 1 << 40, true, "own", false, false},
		"more than it can prove":       {5, 6, false, "", false, true},
		"more than can be, and proves": {0, 1 << 40, false, "of a place before", false, true},
		"what another one was sent":    {5, 6, false, "another's", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := bareMesh(t, "a")
			for i := range 10 {
				if err := m.merges(fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
			m.absence = newAbsence(m) // as after a restart
			p := m.adds(t, 1, RoleMember)
			begun, id := m.absence.begun, m.store.ID()
			for i := range 10 { // more than it was sent
				if err := m.merges(fmt.Sprint("later ", i)); err != nil {
					t.Fatal(err)
				}
			}
			m.absence.served(p, store.Page{IndexID: m.store.IndexID(), Next: begun + c.served})
			m.absence.served(p, store.Page{IndexID: m.store.IndexID() + 1, Next: begun + 1000}) // of no log of this one
			ack := store.Cursor{IndexID: m.store.IndexID(), Seq: uint64(max(int64(begun)+c.ack, 0))}
			if c.other {
				ack.IndexID++
			}
			switch c.proof {
			case "own":
				ack.Proof = m.proofs.of(p, ack.IndexID, ack.Seq)
			case "another's":
				ack.Proof = m.proofs.of(peerOf(t, 2), ack.IndexID, ack.Seq)
			case "of a place before":
				ack.Proof = m.proofs.of(p, ack.IndexID, ack.Seq-1)
			}
			if err := m.absence.acknowledged(p, ack); err != nil {
				t.Fatal(err)
			}
			if told := m.alarmsOf(AlarmMisbehaving); (len(told) > 0) != c.lie || c.lie && (m.absence.acks(m.view.Load().roster)[p.String()] == ack) {
				t.Errorf("misbehaving: %q", told)
			}
			lost := m.store.ID() != id
			if lost != c.lost || m.absence.overdue() != c.lost || (len(m.alarmsOf(AlarmRolledBack)) > 0) != c.lost {
				t.Errorf("%s: lost %v, stage %d, alarms %v", name, lost, m.absence.stage(), m.Alarms())
			}
		})
	}
}

// TestNodesTellHowFarTheyAre.
func TestNodesTellHowFarTheyAre(t *testing.T) {
	clock := &fixedClock{}
	m := bareMesh(t, "a", withFixedClock(clock))
	p, left := m.adds(t, 1, RoleMember), m.adds(t, 2, RoleMember)
	var n Node
	m.absence.describe(&n, p, clock.at)
	if n.Synced {
		t.Error("one that told nothing has synced")
	}
	c := store.Cursor{IndexID: m.store.IndexID(), Seq: 3}
	if err := m.absence.acknowledged(p, c); err != nil {
		t.Fatal(err)
	}
	m.absence.blocked(store.Collected{Blocking: map[string]int{p.String(): 4}})
	clock.at = clock.at.Add(time.Minute)
	m.absence.describe(&n, p, clock.at)
	if !n.Synced || n.LastSync != time.Minute || n.Blocks != 4 {
		t.Errorf("%+v", n)
	}
	if err := m.Ban(t.Context(), left.String(), ""); err != nil {
		t.Fatal(err)
	}
	acks := m.absence.acks(m.view.Load().roster)
	if len(acks) != 1 || acks[p.String()] != c {
		t.Errorf("deletions wait for %v", acks)
	}
	m.absence.blocked(store.Collected{})
	if m.absence.describe(&n, p, clock.at); n.Blocks != 0 {
		t.Error("it blocks for ever")
	}
}
