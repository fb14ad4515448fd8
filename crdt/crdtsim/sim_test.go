package crdtsim_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"llmgw/crdt/crdtsim"
)

// seedsByDefault keeps the test under a few seconds; SEEDS=1000 runs a thousand.
const seedsByDefault = 30

// faults is what a run of seedsByDefault or more has to meet.
var faults = []string{
	"message lost", "message doubled", "message out of order", "cut", "crash", "clock step", "wiped disk", "disk rolled back",
	"roll-back noticed", "backup restored", "clone", "re-seed", "left alone", "away for days", "away for a month", "all off for days",
	"all off for a month", "period folded", "months dropped",
}

// total adds up the runs.
type total struct {
	seeds, steps, writes, violations int
	faults                           map[string]int
}

func (t *total) add(r crdtsim.Report) {
	t.seeds++
	t.steps += r.Steps
	t.writes += r.Writes
	t.violations += len(r.Violations)
	for name, n := range r.Faults {
		t.faults[name] += n
	}
}

func TestSimulator(t *testing.T) {
	seeds := seedsByDefault
	if text := os.Getenv("SEEDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("SEEDS=%q is not a number of seeds", text)
		}
		seeds = n
	}
	sum := total{faults: map[string]int{}}
	for seed := range seeds {
		report, err := crdtsim.Run(crdtsim.Config{Seed: uint64(seed)})
		if err != nil {
			t.Fatal(err)
		}
		sum.add(report)
		for _, v := range report.Violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		if t.Failed() {
			t.Fatalf("seed %d broke an invariant", seed)
		}
	}
	for _, fault := range faults {
		if sum.faults[fault] == 0 && seeds >= seedsByDefault {
			t.Errorf("in %d seeds never: %s", seeds, fault)
		}
	}
	fmt.Println("simulator faults:", sum.faults)
	fmt.Printf("simulator: %d seeds, %d steps, %d writes, %d violations\n", sum.seeds, sum.steps, sum.writes, sum.violations)
}

func TestRunIsDeterministic(t *testing.T) {
	first, err := crdtsim.Run(crdtsim.Config{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	again, err := crdtsim.Run(crdtsim.Config{Seed: 7})
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("the same seed ran differently: %v %s", err, diff)
	}
}
