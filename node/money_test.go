package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
	"llmgw/ui"
)

// ledgerAt is a store whose clock the test sets.
func ledgerAt(t *testing.T, now *time.Time) *store.Store {
	t.Helper()
	s, err := store.Open(t.TempDir(), store.Options{Now: func() time.Time { return *now }, Group: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestBooksAreClosedOnceAllMembersWereHeard(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := ledgerAt(t, &now)
	var out bytes.Buffer
	complete, all := now, false
	b := books{store: s, complete: func() (time.Time, bool) { return complete, all }, now: func() time.Time { return now }, log: slog.New(slog.NewTextHandler(&out, nil))}
	periods := []string{"2026-11-20", "2026-11", "total"}
	for _, p := range periods {
		u := store.Usage{Record: []byte(p), Charges: []store.Charge{{Account: crdt.Account{Budget: "key:a:micros", Period: p}, Micros: 5}}}
		if err := s.RecordUsage(u); err != nil {
			t.Fatal(err)
		}
	}
	folded := func() (out []string) {
		m, _ := s.MoneyIn(crdt.MoneySums{})
		for _, f := range m.Folds {
			out = append(out, f.Account.Period)
		}
		return out
	}
	for _, step := range []struct {
		name string
		now  time.Time
		all  bool
		want string
	}{
		{"the day is not over", now, true, ""},
		{"the day is over, and one member was not heard", now.AddDate(0, 0, 2), false, ""},
		{"all were heard since", now.AddDate(0, 0, 2), true, "2026-11-20"},
		{"the month is over, and one member stays away", now.AddDate(0, 0, 20), false, "2026-11-20"},
		{"it was waited for", now.AddDate(0, 0, 30), false, "2026-11,2026-11-20"},
		{"a total is never over", now.AddDate(20, 0, 0), true, "2026-11,2026-11-20"},
	} {
		now, complete, all = step.now, step.now, step.all
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(folded(), ","); got != step.want {
			t.Errorf("%s: folded %q, want %q", step.name, got, step.want)
		}
	}
	if got := strings.Count(out.String(), "was folded"); got != 2 {
		t.Errorf("it was said %d times:\n%s", got, out.String())
	}
	for _, p := range periods {
		if got := s.Spent(crdt.Account{Budget: "key:a:micros", Period: p}); got != 5 {
			t.Errorf("spent %d in %s", got, p)
		}
	}
}

func TestSpendingOfOldMonthsGoes(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := ledgerAt(t, &now)
	var out bytes.Buffer
	b := books{store: s, complete: func() (time.Time, bool) { return now, true }, now: func() time.Time { return now }, log: slog.New(slog.NewTextHandler(&out, nil))}
	month := func(n int) crdt.Account {
		return crdt.Account{Budget: "key:a:micros", Period: time.Date(2026, 11-time.Month(n), 1, 0, 0, 0, 0, time.UTC).Format("2006-01")}
	}
	for n := range 20 {
		if err := s.RecordUsage(store.Usage{Charges: []store.Charge{{Account: month(n), Micros: 5}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	// 400 days before is in October 2025, which is 13 months ago.
	for n := range 20 {
		if got, want := s.Spent(month(n)) > 0, n <= 13; got != want {
			t.Errorf("%d months ago: kept %v, want %v", n, got, want)
		}
	}
	if !strings.Contains(out.String(), "spending of old days and months was dropped") {
		t.Errorf("said:\n%s", out.String())
	}
}

func TestOldUsageRecordsGo(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := ledgerAt(t, &now)
	var out bytes.Buffer
	b := books{store: s, complete: func() (time.Time, bool) { return now, true }, now: func() time.Time { return now }, log: slog.New(slog.NewTextHandler(&out, nil))}
	for range 4 {
		if err := s.RecordUsage(store.Usage{Record: []byte(now.Format(time.DateOnly))}); err != nil {
			t.Fatal(err)
		}
		now = now.AddDate(0, 0, 40)
	}
	now = now.AddDate(0, 0, -40) // the day of the last record
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	var left []string
	if err := s.UsageRecords(0, func(_ uint64, r []byte) bool { left = append(left, string(r)); return true }); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(left, ","); got != "2026-12-30,2027-02-08,2027-03-20" || !strings.Contains(out.String(), "old usage records were dropped") {
		t.Errorf("left %q\n%s", got, out.String())
	}
}

func TestHardBudgetsOfADaemonAlone(t *testing.T) {
	d := start(t, t.TempDir())
	defer d.stop()
	r := rights{escrow: d.mesh.Escrow(), log: d.Node.log}
	a := crdt.Account{Budget: "key:a:micros", Period: "2026-11"}
	ctx := context.Background()
	settle, err := r.Take(ctx, a, 100, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Take(ctx, a, 100, 60); !errors.Is(err, crdt.ErrRights) {
		t.Errorf("took 120 of 100: %v", err)
	}
	settle(20)
	if settle, err = r.Take(ctx, a, 100, 60); err != nil {
		t.Fatalf("what was not used is not there again: %v", err)
	}
	settle(90)
	if _, err := r.Take(ctx, a, 100, 1); !errors.Is(err, crdt.ErrRights) {
		t.Errorf("took more although 110 of 100 were used: %v", err)
	}
	if _, err := r.Take(ctx, a, 200, 80); err != nil {
		t.Errorf("after a raise: %v", err)
	}
}

// TestHardBudgetsAheadAreThoseOfAllLevels: a tenant's binds as a key's does.
func TestHardBudgetsAheadAreThoseOfAllLevels(t *testing.T) {
	d := start(t, t.TempDir())
	hard := func(period catalog.Period) ui.RulesChange {
		amount := uint64(1000)
		return ui.RulesChange{Budgets: ui.List[ui.BudgetChange]{{Period: string(period), Unit: string(catalog.UnitMicros), Amount: &amount, Hard: true}}}
	}
	if _, err := d.client.NewTenant(t.Context(), ui.TenantRequest{Name: "acme", RulesChange: hard(catalog.PeriodMonth)}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.NewProject(t.Context(), ui.ProjectRequest{Name: "web", RulesChange: hard(catalog.PeriodDay)}); err != nil {
		t.Fatal(err)
	}
	d.newKey(t, ui.KeyRequest{Name: "laptop", KeyChange: ui.KeyChange{RulesChange: hard(catalog.PeriodDay)}})
	for at, want := range map[time.Time][]string{
		time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC): nil,
		time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC): {"2026-12", "2026-12-01", "2026-12-01"},
	} {
		due, err := d.budgetsAhead(at)
		if err != nil {
			t.Fatal(err)
		}
		var periods []string
		for _, one := range due {
			periods = append(periods, one.Account.Period)
			if one.Amount != 1000 || at.Day() == 30 && d.mesh.Escrow().Prepare(t.Context(), one.Account, one.Amount) != nil || d.mesh.Escrow().Rights(one.Account) != 1000 {
				t.Errorf("%+v: rights of %d", one, d.mesh.Escrow().Rights(one.Account))
			}
		}
		if slices.Sort(periods); !slices.Equal(periods, want) {
			t.Errorf("at %v: %v, want %v", at, periods, want)
		}
	}
}
