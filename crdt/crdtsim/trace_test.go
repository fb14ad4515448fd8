package crdtsim_test

import (
	"os"
	"strconv"
	"testing"

	"llmgw/crdt/crdtsim"
)

// TestSeed tells what happens under one seed, given as SEED=n.
func TestSeed(t *testing.T) {
	text := os.Getenv("SEED")
	if text == "" {
		t.Skip("SEED is not set: for looking at one run of the simulator")
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	report, err := crdtsim.Run(crdtsim.Config{Seed: seed, Trace: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range report.Violations {
		t.Error(v)
	}
}
