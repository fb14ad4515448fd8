package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"llmgw/ui"

	"github.com/spf13/cobra"
)

const rulesHelp = `Limits count in a minute over all nodes: --rpm, --tpm, --input-tpm, --output-tpm; --parallel
is requests at once. Budgets are amounts of money by the price table (5 or 0.25, in the
unit that prices are written in) or tokens, for a UTC day, a UTC month or in all. With
--hard the budgets of this command are divided among the nodes, so that they are never
exceeded. k and M stand for thousand and million; 0 lets nothing through; none takes a
limit or budget away.`

// limitFlags are the flags of limits with their metrics.
func limitFlags() [][3]string {
	return [][3]string{
		{"rpm", "requests", "requests a minute"},
		{"tpm", "tokens", "tokens a minute, of prompts and answers"},
		{"input-tpm", "input_tokens", "prompt tokens a minute"},
		{"output-tpm", "output_tokens", "answer tokens a minute"},
		{"parallel", "parallel", "requests at once"},
	}
}

func budgetPeriods() []string { return []string{"day", "month", "total"} }

// addRuleFlags gives cmd the flags of limits and budgets.
func addRuleFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	for _, flag := range limitFlags() {
		f.String(flag[0], "", flag[2])
	}
	for _, period := range budgetPeriods() {
		f.String("budget-"+period, "", "money, "+periodText(period))
		f.String("budget-tokens-"+period, "", "tokens, "+periodText(period))
	}
	f.Bool("hard", false, "never exceed the budgets that are given, whoever is cut off")
}

func periodText(period string) string {
	if period == "total" {
		return "in all"
	}
	return "a " + period
}

// ruleChange reads the flags that were given.
func ruleChange(cmd *cobra.Command) (ui.RulesChange, error) {
	var c ui.RulesChange
	for _, flag := range limitFlags() {
		value, given, err := amountFlag(cmd, flag[0], parseCount)
		if err != nil {
			return c, err
		}
		if given {
			c.Limits = append(c.Limits, ui.LimitChange{Metric: flag[1], Value: value})
		}
	}
	hard, _ := cmd.Flags().GetBool("hard")
	for _, period := range budgetPeriods() {
		for _, kind := range []struct {
			flag, unit string
			parse      func(string) (uint64, error)
		}{{"budget-", "micros", parseMoney}, {"budget-tokens-", "tokens", parseCount}} {
			value, given, err := amountFlag(cmd, kind.flag+period, kind.parse)
			if err != nil {
				return c, err
			}
			if given {
				c.Budgets = append(c.Budgets, ui.BudgetChange{Period: period, Unit: kind.unit, Amount: value, Hard: hard})
			}
		}
	}
	if hard && len(c.Budgets) == 0 {
		return c, usagef("--hard needs a budget beside it, as --budget-month 20")
	}
	return c, nil
}

// amountFlag reads one flag; a nil value is none.
func amountFlag(cmd *cobra.Command, name string, parse func(string) (uint64, error)) (value *uint64, given bool, err error) {
	if !cmd.Flags().Changed(name) {
		return nil, false, nil
	}
	text, _ := cmd.Flags().GetString(name)
	if strings.EqualFold(strings.TrimSpace(text), "none") {
		return nil, true, nil
	}
	n, err := parse(text)
	if err != nil {
		return nil, false, usagef("--%s %q: %v", name, text, err)
	}
	return &n, true, nil
}

var errNumber = errors.New("is no number, as 60, 60k or 1.5M, and not none")

// parseCount reads a whole number, with k or M behind it thousands or millions.
func parseCount(text string) (uint64, error) {
	text = strings.TrimSpace(text)
	digits := 0
	switch {
	case strings.HasSuffix(text, "k"), strings.HasSuffix(text, "K"):
		digits = 3
	case strings.HasSuffix(text, "M"), strings.HasSuffix(text, "m"):
		digits = 6
	}
	if digits > 0 {
		text = text[:len(text)-1]
	}
	n, err := parseDecimal(text, digits)
	if err != nil {
		return 0, errNumber
	}
	return n, nil
}

// parseMoney reads an amount into micro-units.
func parseMoney(text string) (uint64, error) {
	n, err := parseDecimal(strings.TrimSpace(text), 6)
	if err != nil {
		return 0, errors.New("is no amount, as 5 or 0.25, with six digits behind the point at most, and not none")
	}
	return n, nil
}

// parseDecimal reads a decimal number times ten to the power of digits, exactly.
func parseDecimal(text string, digits int) (uint64, error) {
	whole, part, point := strings.Cut(text, ".")
	if len(part) > digits || whole == "" || point && part == "" {
		return 0, errNumber
	}
	return strconv.ParseUint(whole+part+strings.Repeat("0", digits-len(part)), 10, 64)
}

// moneyText writes micro-units as parseMoney reads them.
func moneyText(micros uint64) string {
	text := fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6)
	text = strings.TrimRight(text, "0")
	if after := len(text) - strings.IndexByte(text, '.') - 1; after < 2 {
		text += strings.Repeat("0", 2-after)
	}
	return text
}

// parseSpan reads a time from now or back: 90s, 12h, 30d, never.
func parseSpan(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if text == "never" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n == 0 || n > math.MaxInt64/uint64(24*time.Hour) {
			return 0, usagef("%q is no time, as 12h or 30d", text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, usagef("%q is no time, as 12h or 30d", text)
	}
	return d, nil
}

// limitsText shows the limits on a line.
func limitsText(r ui.Rules) string {
	var out []string
	for _, l := range r.Limits {
		for _, flag := range limitFlags() {
			if flag[1] == l.Metric {
				out = append(out, fmt.Sprintf("%s=%d", flag[0], l.Value))
			}
		}
	}
	return orDash(strings.Join(out, " "))
}

// budgetsText shows the budgets with what is spent on a line.
func budgetsText(r ui.Rules) string {
	var out []string
	for _, b := range r.Budgets {
		show, unit := moneyText, ""
		if b.Unit == "tokens" {
			show, unit = func(n uint64) string { return strconv.FormatUint(n, 10) }, " tokens"
		}
		text := fmt.Sprintf("%s %s/%s%s", b.Period, show(b.Spent), show(b.Amount), unit)
		if b.Hard {
			text += " hard"
		}
		out = append(out, text)
	}
	return orDash(strings.Join(out, ", "))
}
