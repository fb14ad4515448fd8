package catalog

import (
	"fmt"
	"math"
	"slices"
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
	rapid.Check(t, func(t *rapid.T) {
		want := rules().Draw(t, "rules")
		must(t, want.Check())
		got, err := readRules(rowOf(t, want.cells()))
		must(t, err)
		equal(t, "rules", want, got)
		if again, err := readRules(rowOf(t, got.cells())); err != nil || !cmp.Equal(got, again) {
			t.Fatalf("read again they are %+v, %v", again, err)
		}
	})
}

func TestRulesSayWhatIsWrong(t *testing.T) {
	const metrics, periods = "requests, input_tokens, output_tokens, tokens, parallel", "day, month, total"
	for name, c := range map[string]struct {
		rules       Rules
		field, text string
	}{
		"a metric":           {Rules{Limits: RateLimits{"speed": 1}}, "limit speed", "is none: there are " + metrics},
		"an empty metric":    {Rules{Limits: RateLimits{"": 1}}, "limit ", "is none: there are " + metrics},
		"another case":       {Rules{Limits: RateLimits{"Tokens": 1}}, "limit Tokens", "is none: there are " + metrics},
		"the first of two":   {Rules{Limits: RateLimits{"z": 1, "a": 1, MetricTokens: 1}}, "limit a", "is none: there are " + metrics},
		"a limit":            {Rules{Limits: RateLimits{MetricTokens: crdt.MaxAmount + 1}}, "limit tokens", "is above 281474976710655"},
		"the highest limit":  {Rules{Limits: RateLimits{MetricParallel: math.MaxUint64}}, "limit parallel", "is above 281474976710655"},
		"a period":           {Rules{Budgets: []Budget{{"week", UnitTokens, 1, false}}}, "budget week/tokens", "has no such period: there are " + periods},
		"no period":          {Rules{Budgets: []Budget{{"", UnitTokens, 1, false}}}, "budget /tokens", "has no such period: there are " + periods},
		"a unit":             {Rules{Budgets: []Budget{{PeriodDay, "euros", 1, false}}}, "budget day/euros", "is counted in neither micros nor tokens"},
		"no unit":            {Rules{Budgets: []Budget{{Period: PeriodDay}}}, "budget day/", "is counted in neither micros nor tokens"},
		"an amount":          {Rules{Budgets: []Budget{{PeriodTotal, UnitMicros, crdt.MaxAmount + 1, true}}}, "budget total/micros", "is above 281474976710655"},
		"one twice":          {Rules{Budgets: []Budget{{PeriodDay, UnitTokens, 1, false}, {PeriodDay, UnitMicros, 1, false}, {PeriodDay, UnitTokens, 2, true}}}, "budget day/tokens", "is there twice"},
		"limits before that": {Rules{RateLimits{"x": 1}, []Budget{{"week", UnitTokens, 1, false}}}, "limit x", "is none: there are " + metrics},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.rules.Check()
			refused[*RulesError](t, err, c.field+" "+c.text)
			b := quickBox(t)
			_, err = b.CreateTenant(Tenant{"t", c.rules})
			refused[*RulesError](t, err, c.field+" "+c.text)
			_, err = b.CreateProject(Project{ID: "p", Rules: c.rules})
			refused[*RulesError](t, err, c.field+" "+c.text)
			refused[*RulesError](t, b.PutAPIKey(APIKey{ID: "k", Rules: c.rules}), c.field+" "+c.text)
			if b.store.Sequence() != 0 {
				t.Error("something was written")
			}
		})
	}
}

func TestRulesAtTheirBoundsAreTaken(t *testing.T) {
	var all Rules
	must(t, all.Check())
	all.Limits = RateLimits{}
	for _, m := range Metrics() {
		all.Limits[m] = crdt.MaxAmount
	}
	for _, p := range Periods() {
		all.SetBudget(Budget{p, UnitTokens, crdt.MaxAmount, true})
		all.SetBudget(Budget{p, UnitMicros, 0, false})
	}
	must(t, all.Check())
	if len(all.Budgets) != 6 || len(all.cells()) != len(Metrics())+6 {
		t.Errorf("%d budgets in %d cells", len(all.Budgets), len(all.cells()))
	}
}

func TestBudgetsOfRules(t *testing.T) {
	var r Rules
	if _, ok := r.Budget(PeriodDay, UnitTokens); ok {
		t.Error("there is a budget of no rules")
	}
	for _, p := range []Period{PeriodTotal, PeriodDay, PeriodMonth} {
		for _, u := range []Unit{UnitTokens, UnitMicros} {
			r.SetBudget(Budget{p, u, uint64(len(p)), p == PeriodDay})
		}
	}
	want := []Budget{{PeriodDay, UnitMicros, 3, true}, {PeriodDay, UnitTokens, 3, true}, {PeriodMonth, UnitMicros, 5, false},
		{PeriodMonth, UnitTokens, 5, false}, {PeriodTotal, UnitMicros, 5, false}, {PeriodTotal, UnitTokens, 5, false}}
	equal(t, "in their order", want, r.Budgets)
	before := slices.Clone(r.Budgets)
	shared := r
	r.SetBudget(Budget{PeriodDay, UnitTokens, 9, false})
	r.DropBudget(PeriodMonth, UnitMicros)
	r.DropBudget(PeriodMonth, UnitMicros)
	if b, ok := r.Budget(PeriodDay, UnitTokens); !ok || b.Amount != 9 || b.Hard {
		t.Errorf("it is %+v, %v", b, ok)
	}
	if _, ok := r.Budget(PeriodMonth, UnitMicros); ok || len(r.Budgets) != 5 {
		t.Errorf("dropped, there are %+v", r.Budgets)
	}
	equal(t, "a copy that was taken before", before, shared.Budgets)
}

// Setting and dropping budgets in any order leaves the last of each, in the one order.
func TestTheLastBudgetOfAKindStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Rules
		last := map[string]Budget{}
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			b := Budget{rapid.SampledFrom(Periods()).Draw(t, "period"), rapid.SampledFrom([]Unit{UnitTokens, UnitMicros}).Draw(t, "unit"),
				amounts().Draw(t, "amount"), rapid.Bool().Draw(t, "hard")}
			kind := fmt.Sprint(b.Period, b.Unit)
			if rapid.Bool().Draw(t, "drop") {
				r.DropBudget(b.Period, b.Unit)
				delete(last, kind)
				continue
			}
			r.SetBudget(b)
			last[kind] = b
		}
		must(t, r.Check())
		if len(r.Budgets) != len(last) || !slices.IsSortedFunc(r.Budgets, Budget.compare) {
			t.Fatalf("there are %+v", r.Budgets)
		}
		for _, b := range r.Budgets {
			if last[fmt.Sprint(b.Period, b.Unit)] != b {
				t.Fatalf("%+v is not the last one", b)
			}
		}
	})
}

// A limit of zero lets nothing through, which is not the same as none.
func TestALimitOfZeroIsKept(t *testing.T) {
	b := quickBox(t)
	_, err := b.CreateTenant(Tenant{"t", Rules{Limits: RateLimits{MetricTokens: 0}, Budgets: []Budget{{PeriodDay, UnitTokens, 0, false}}}})
	must(t, err)
	all, err := b.Tenants()
	must(t, err)
	if n, ok := all[0].Limits[MetricTokens]; !ok || n != 0 {
		t.Errorf("limits are %v", all[0].Limits)
	}
	if budget, ok := all[0].Budget(PeriodDay, UnitTokens); !ok || budget.Amount != 0 {
		t.Errorf("budgets are %v", all[0].Budgets)
	}
	must(t, b.UpdateTenant("t", func(t *Tenant) error { t.Limits, t.Budgets = nil, nil; return nil }))
	all, err = b.Tenants()
	must(t, err)
	equal(t, "without any", []Tenant{{ID: "t"}}, all)
}
