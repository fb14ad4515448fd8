package limits

import (
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/mesh/catalog"

	"github.com/google/go-cmp/cmp"
)

func TestBudgetsAhead(t *testing.T) {
	hard := func(p catalog.Period, amount uint64) catalog.Budget {
		return catalog.Budget{Period: p, Unit: catalog.UnitMicros, Amount: amount, Hard: true}
	}
	rules := catalog.Rules{Budgets: []catalog.Budget{
		hard(catalog.PeriodDay, 10), hard(catalog.PeriodMonth, 20), hard(catalog.PeriodTotal, 30),
		{Period: catalog.PeriodDay, Unit: catalog.UnitTokens, Amount: 40}, // soft
		{Period: catalog.PeriodDay, Unit: catalog.UnitTokens, Hard: true}, // of nothing
		{Period: catalog.PeriodMonth, Unit: catalog.UnitTokens, Amount: 1 << 63, Hard: true},
	}}
	day := func(date string) Due { return Due{crdt.Account{Budget: "key:k:micros", Period: date}, 10} }
	months := func(month string) []Due {
		return []Due{{crdt.Account{Budget: "key:k:micros", Period: month}, 20}, {crdt.Account{Budget: "key:k:tokens", Period: month}, crdt.MaxAmount}}
	}
	for at, want := range map[string][]Due{
		"2026-11-10T12:00:00Z":      nil,
		"2026-11-10T17:59:00Z":      nil,
		"2026-11-10T18:00:00Z":      {day("2026-11-11")},
		"2026-11-10T23:59:59Z":      {day("2026-11-11")},
		"2026-11-11T00:00:00Z":      nil,
		"2026-11-28T00:00:00Z":      months("2026-12"),
		"2026-12-31T23:00:00Z":      append([]Due{day("2027-01-01")}, months("2027-01")...),
		"2027-01-01T00:30:00+01:00": append([]Due{day("2027-01-01")}, months("2027-01")...),
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, Ahead(LevelKey, "k", rules, now)); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", at, diff)
		}
	}
}
