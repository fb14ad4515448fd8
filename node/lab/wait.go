package lab

import (
	"testing"
	"time"
)

// pollEvery is the pause between two looks of Eventually.
const pollEvery = 20 * time.Millisecond

// Eventually looks until the condition holds. On timeout the test fails with
// what was awaited and what was seen last.
func Eventually(tb testing.TB, within time.Duration, what string, look func() (ok bool, seen string)) {
	tb.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(pollEvery) {
		ok, seen := look()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("waited %v until %s; last seen: %s", within, what, seen)
		}
	}
}

// Always looks for the whole time and fails the test as soon as the condition
// does not hold.
func Always(tb testing.TB, during time.Duration, what string, look func() (ok bool, seen string)) {
	tb.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(pollEvery) {
		if ok, seen := look(); !ok {
			tb.Fatalf("expected that %s; seen: %s", what, seen)
		}
	}
}
