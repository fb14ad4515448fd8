package lab

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Kinds of faults.
const (
	faultKill   = "kill -9"       // the daemon; its engines live on
	faultPower  = "loss of power" // all processes of the box
	faultStop   = "restart"       // by SIGTERM, as a service manager does
	faultPause  = "pause"         // SIGSTOP of the whole box
	faultCut    = "cut"
	faultUnplug = "unplug"
	faultMute   = "mute"     // what it sends is lost
	faultDeaf   = "deaf"     // what is sent to it is lost
	faultPair   = "pair cut" // two boxes no longer reach each other
	faultOneWay = "one-way pair cut"
	faultClock  = "clock off"   // a restart with a clock that is hours off
	faultWipe   = "wiped store" // a new disk: it joins again, by token
	faultFull   = "full disk"
	faultLoss   = "packet loss" // one in ten, each way
	faultSlow   = "slow link"   // little room, so what is sent waits

	lastingLeast = 2 * time.Second
	recovery     = 3 * time.Second // between two faults of one box
	atOnce       = 2               // faults at the same time, on five boxes
)

// fault is one entry of a plan.
type fault struct {
	at, lasts  time.Duration
	kind       string
	box, other int           // places in the list of boxes; other of pair cuts alone
	clock      time.Duration // how far off, of faultClock alone
}

func (f fault) String() string {
	s := fmt.Sprintf("%6.1fs %-16s box %c for %.1fs", f.at.Seconds(), f.kind, 'a'+f.box, f.lasts.Seconds())
	switch f.kind {
	case faultPair, faultOneWay:
		s += fmt.Sprintf(", towards %c", 'a'+f.other)
	case faultClock:
		s += fmt.Sprintf(", %+.0f min", f.clock.Minutes())
	}
	return s
}

// smallDisk is the place of the box whose disk gets full.
const smallDisk = 4

// victims of each kind: any box, except that the first two keep true clocks, so
// that a wiped box finds an issuer whose clock allows a join, and that a box
// with a small disk keeps it.
func victims(kind string) []int {
	switch kind {
	case faultClock:
		return []int{2, 3, 4}
	case faultWipe:
		return []int{2, 3}
	case faultFull:
		return []int{smallDisk}
	}
	return []int{0, 1, 2, 3, 4}
}

// allKinds is what can be dealt.
func allKinds() []string {
	return []string{faultKill, faultPower, faultStop, faultPause, faultCut, faultUnplug, faultMute, faultDeaf, faultPair, faultOneWay, faultClock, faultWipe, faultFull, faultLoss, faultSlow}
}

// plan deals faults from a shuffled deck, so that each kind comes as often as
// the others.
func plan(r *rand.Rand, kinds []string, length time.Duration) []fault {
	var out, deck []fault
	for at := 2 * time.Second; at < length-lastingLeast; at += time.Second + rand64(r, 2*time.Second) {
		if len(deck) == 0 {
			for _, i := range r.Perm(len(kinds)) {
				deck = append(deck, fault{kind: kinds[i]})
			}
		}
		for i, f := range deck {
			f.at = at
			f.lasts = min(lasting(r), length-at)
			f.clock = time.Duration(r.IntN(12*60+1)-6*60) * time.Minute
			if aim(r, &f, out) {
				out, deck = append(out, f), slices.Delete(deck, i, i+1)
				break
			}
		}
	}
	return out
}

// lasting is short for two in three, so that boxes come back while they are only
// suspected, and else long enough to be given up.
func lasting(r *rand.Rand) time.Duration {
	if r.IntN(3) > 0 {
		return lastingLeast + rand64(r, 4*time.Second)
	}
	return 8*time.Second + rand64(r, 7*time.Second)
}

func rand64(r *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(below)))
}

// aim picks boxes that are free at the time of the fault.
func aim(r *rand.Rand, f *fault, before []fault) bool {
	free := []int{0, 1, 2, 3, 4}
	busy := 0
	for _, b := range before {
		if b.at+b.lasts+recovery < f.at {
			continue
		}
		if b.at+b.lasts > f.at {
			busy++
		}
		free = slices.DeleteFunc(free, func(i int) bool { return i == b.box || b.pair() && i == b.other })
	}
	if busy >= atOnce {
		return false
	}
	able := slices.DeleteFunc(victims(f.kind), func(i int) bool { return !slices.Contains(free, i) })
	if len(able) == 0 {
		return false
	}
	f.box = able[r.IntN(len(able))]
	if !f.pair() {
		return true
	}
	free = slices.DeleteFunc(free, func(i int) bool { return i == f.box })
	if len(free) == 0 {
		return false
	}
	f.other = free[r.IntN(len(free))]
	return true
}

func (f fault) pair() bool { return f.kind == faultPair || f.kind == faultOneWay }

func TestPlanRepeatsFromItsSeed(t *testing.T) {
	of := func(seed uint64) []fault { return plan(rand.New(rand.NewPCG(seed, 0)), allKinds(), 10*time.Minute) }
	if diff := cmp.Diff(fmt.Sprint(of(7)), fmt.Sprint(of(7))); diff != "" {
		t.Error(diff)
	}
	if fmt.Sprint(of(7)) == fmt.Sprint(of(8)) {
		t.Error("two seeds make one plan")
	}
}

func TestPlanKeepsItsBounds(t *testing.T) {
	for seed := range uint64(50) {
		faults := plan(rand.New(rand.NewPCG(seed, 0)), allKinds(), 10*time.Minute)
		kinds := map[string]int{}
		for i, f := range faults {
			kinds[f.kind]++
			busy := map[int]bool{}
			for _, b := range faults[:i] {
				if b.at+b.lasts+recovery >= f.at {
					busy[b.box] = true
					busy[b.other] = busy[b.other] || b.pair()
				}
			}
			if busy[f.box] || f.pair() && (busy[f.other] || f.other == f.box) || !slices.Contains(victims(f.kind), f.box) {
				t.Fatalf("seed %d: %v hits a box that may not be hit:\n%s", seed, f, strings.Join(texts(faults[:i]), "\n"))
			}
			if f.at+f.lasts > 10*time.Minute {
				t.Fatalf("seed %d: %v outlasts the plan", seed, f)
			}
		}
		if len(kinds) != len(allKinds()) || len(faults) < 60 {
			t.Errorf("seed %d: %d faults of %d kinds", seed, len(faults), len(kinds))
		}
	}
}

func texts(faults []fault) []string {
	var out []string
	for _, f := range faults {
		out = append(out, f.String())
	}
	return out
}
