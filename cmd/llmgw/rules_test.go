package main

import (
	"strings"
	"testing"
	"time"

	"llmgw/ui"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"pgregory.net/rapid"
)

func TestCountsAndAmounts(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "60": 60, "60k": 60_000, "1.5M": 1_500_000, " 7 ": 7, "0.001k": 1} {
		if got, err := parseCount(text); err != nil || got != want {
			t.Errorf("count %q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "k", "1.5", "-1", "1e6", "1.0005k", "many", ".5k", "1.k", "99999999999999999999", "0x10", "+5", "1_000"} {
		if got, err := parseCount(text); err == nil {
			t.Errorf("count %q was taken for %d", text, got)
		}
	}
	for text, want := range map[string]uint64{"5": 5_000_000, "0.25": 250_000, "0.000001": 1, "12.5": 12_500_000} {
		if got, err := parseMoney(text); err != nil || got != want {
			t.Errorf("amount %q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5$", "0.0000001", "-5", "1,5", "1.2.3", "5."} {
		if got, err := parseMoney(text); err == nil {
			t.Errorf("amount %q was taken for %d", text, got)
		}
	}
}

func TestMoneyIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Uint64Range(0, 1<<48).Draw(t, "micros")
		got, err := parseMoney(moneyText(micros))
		if err != nil || got != micros {
			t.Fatalf("%d is written %q and read %d, %v", micros, moneyText(micros), got, err)
		}
	})
}

func TestSpans(t *testing.T) {
	for text, want := range map[string]time.Duration{"never": 0, "30d": 30 * 24 * time.Hour, "12h": 12 * time.Hour, "90s": 90 * time.Second} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0d", "-1d", "soon", "30", "1ms", "99999999999d", "200000d0", "4294967295d"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q was taken for %v", text, got)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestRuleFlags(t *testing.T) {
	parse := func(args ...string) (ui.RulesChange, error) {
		cmd := &cobra.Command{Use: "x"}
		addRuleFlags(cmd)
		if err := cmd.ParseFlags(args); err != nil {
			return ui.RulesChange{}, err
		}
		return ruleChange(cmd)
	}
	got, err := parse("--rpm", "600", "--tpm", "none", "--parallel", "0", "--budget-day", "2.50", "--budget-tokens-total", "1M", "--hard")
	want := ui.RulesChange{
		Limits: []ui.LimitChange{{Metric: "requests", Value: ptr(uint64(600))}, {Metric: "tokens"}, {Metric: "parallel", Value: ptr(uint64(0))}},
		Budgets: []ui.BudgetChange{{Period: "day", Unit: "micros", Amount: ptr(uint64(2_500_000)), Hard: true},
			{Period: "total", Unit: "tokens", Amount: ptr(uint64(1_000_000)), Hard: true}},
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got, err := parse(); err != nil || len(got.Limits)+len(got.Budgets) > 0 {
		t.Errorf("without flags: %+v, %v", got, err)
	}
	for _, args := range [][]string{{"--rpm", "fast"}, {"--budget-day", "5€"}, {"--hard"}, {"--tpm", "-5"}, {"--hard", "--rpm", "5"}} {
		if _, err := parse(args...); err == nil || exitCode(t.Context(), err) != 2 {
			t.Errorf("%s: %v is no usage error", strings.Join(args, " "), err)
		}
	}
}

func TestRulesAreShown(t *testing.T) {
	r := ui.Rules{
		Limits:  []ui.Limit{{Metric: "requests", Value: 600}, {Metric: "parallel", Value: 2}},
		Budgets: []ui.Budget{{Period: "month", Unit: "micros", Amount: 5_000_000, Spent: 1_250_000, Hard: true}, {Period: "day", Unit: "tokens", Amount: 10, Spent: 3}},
	}
	if got := limitsText(r); got != "rpm=600 parallel=2" {
		t.Errorf("limits %q", got)
	}
	if got := budgetsText(r); got != "month 1.25/5.00 hard, day 3/10 tokens" {
		t.Errorf("budgets %q", got)
	}
	if limitsText(ui.Rules{}) != "-" || budgetsText(ui.Rules{}) != "-" {
		t.Error("no rules are not shown as -")
	}
}
