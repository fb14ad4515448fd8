package catalog

import (
	"errors"
	"testing"

	"llmgw/crdt"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func someRules() Rules {
	return Rules{Limits: RateLimits{MetricRequests: 600, MetricParallel: 0},
		Budgets: []Budget{{PeriodDay, UnitTokens, 5, false}, {PeriodMonth, UnitMicros, 20_000_000, true}, {PeriodMonth, UnitTokens, 0, false}}}
}

// Rules are read from their cells as they were written into them.
func TestRulesAreReadAsWritten(t *testing.T) {
	b := newBox(t)
	rapid.Check(t, func(t *rapid.T) {
		var r Rules
		for _, m := range Metrics() {
			if rapid.Bool().Draw(t, string(m)) {
				if r.Limits == nil {
					r.Limits = RateLimits{}
				}
				r.Limits[m] = rapid.Uint64Range(0, crdt.MaxAmount).Draw(t, "limit")
			}
		}
		for _, p := range Periods() {
			for _, u := range []Unit{UnitTokens, UnitMicros} {
				if rapid.Bool().Draw(t, string(p)+string(u)) {
					r.SetBudget(Budget{p, u, rapid.Uint64Range(0, crdt.MaxAmount).Draw(t, "amount"), rapid.Bool().Draw(t, "hard")})
				}
			}
		}
		_, err := b.CreateTenant(Tenant{ID: "t", Rules: r})
		if errors.Is(err, ErrTaken) {
			err = b.UpdateTenant("t", func(had *Tenant) error { had.Rules = r; return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Tenants()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got[0].Rules); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	})
}
