package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmgw/crdt"
)

// Metric is what a limit counts. All but MetricParallel count in a minute.
type Metric string

// Metrics of limits.
const (
	MetricRequests     Metric = "requests"
	MetricInputTokens  Metric = "input_tokens"
	MetricOutputTokens Metric = "output_tokens"
	MetricTokens       Metric = "tokens"   // input and output
	MetricParallel     Metric = "parallel" // requests in progress
)

// Metrics lists all metrics in the order in which they are shown.
func Metrics() []Metric {
	return []Metric{MetricRequests, MetricInputTokens, MetricOutputTokens, MetricTokens, MetricParallel}
}

// RateLimits bounds what may be used in a minute, or at once. A metric that is not
// there has no limit; one of zero lets nothing through.
type RateLimits map[Metric]uint64

// Period is how long a budget lasts. Days and months are UTC's.
type Period string

// Periods of budgets.
const (
	PeriodDay   Period = "day"
	PeriodMonth Period = "month"
	PeriodTotal Period = "total"
)

// Periods lists all periods, the shortest first.
func Periods() []Period { return []Period{PeriodDay, PeriodMonth, PeriodTotal} }

// Unit is what a budget is counted in.
type Unit string

// Units of budgets.
const (
	UnitMicros Unit = "micros" // micro-units of money, by the price table
	UnitTokens Unit = "tokens" // input and output
)

// Budget is an amount for a period. An amount of zero lets nothing through.
type Budget struct {
	Period Period `json:"period"`
	Unit   Unit   `json:"unit"`
	Amount uint64 `json:"amount"`
	// Hard budgets are divided among the nodes, so that all together never
	// spend more, whoever is cut off.
	Hard bool `json:"hard,omitempty"`
}

// Rules is what a key, project or tenant may use.
type Rules struct {
	Limits  RateLimits `cbor:"-" json:"limits,omitempty"`
	Budgets []Budget   `cbor:"-" json:"budgets,omitempty"` // one for a period and unit, in a fixed order
}

// Budget finds the budget of a period and unit.
func (r Rules) Budget(p Period, u Unit) (Budget, bool) {
	i := slices.IndexFunc(r.Budgets, func(b Budget) bool { return b.Period == p && b.Unit == u })
	if i < 0 {
		return Budget{}, false
	}
	return r.Budgets[i], true
}

// SetBudget puts a budget in the place of the one with its period and unit.
func (r *Rules) SetBudget(b Budget) {
	r.DropBudget(b.Period, b.Unit)
	r.Budgets = append(r.Budgets, b)
	slices.SortFunc(r.Budgets, Budget.compare)
}

// DropBudget takes a budget away.
func (r *Rules) DropBudget(p Period, u Unit) {
	r.Budgets = slices.DeleteFunc(slices.Clone(r.Budgets), func(b Budget) bool { return b.Period == p && b.Unit == u })
}

func (b Budget) compare(c Budget) int {
	return cmp.Or(slices.Index(Periods(), b.Period)-slices.Index(Periods(), c.Period), strings.Compare(string(b.Unit), string(c.Unit)))
}

// RulesError says which limit or budget of a document cannot be as it is.
type RulesError struct{ Field, Why string }

func (e *RulesError) Error() string { return e.Field + " " + e.Why }

// Check says whether the rules may be kept so.
func (r Rules) Check() error {
	for _, m := range slices.Sorted(maps.Keys(r.Limits)) {
		switch {
		case !slices.Contains(Metrics(), m):
			return &RulesError{"limit " + string(m), "is none: there are " + joined(Metrics())}
		case r.Limits[m] > crdt.MaxAmount:
			return &RulesError{"limit " + string(m), fmt.Sprintf("is above %d", uint64(crdt.MaxAmount))}
		}
	}
	for i, b := range r.Budgets {
		field := fmt.Sprintf("budget %s/%s", b.Period, b.Unit)
		switch {
		case !slices.Contains(Periods(), b.Period):
			return &RulesError{field, "has no such period: there are " + joined(Periods())}
		case b.Unit != UnitMicros && b.Unit != UnitTokens:
			return &RulesError{field, fmt.Sprintf("is counted in neither %s nor %s", UnitMicros, UnitTokens)}
		case b.Amount > crdt.MaxAmount:
			return &RulesError{field, fmt.Sprintf("is above %d", uint64(crdt.MaxAmount))}
		case slices.ContainsFunc(r.Budgets[:i], func(a Budget) bool { return a.compare(b) == 0 }):
			return &RulesError{field, "is there twice"}
		}
	}
	return nil
}

func joined[T ~string](all []T) string {
	words := make([]string, len(all))
	for i, w := range all {
		words[i] = string(w)
	}
	return strings.Join(words, ", ")
}

// Cells of rules: one for each limit and each budget, so that two edits of
// different ones both survive.
const (
	limitPrefix  = "limit/"
	budgetPrefix = "budget/"
)

// budgetCell is what the cell of a budget holds.
type budgetCell struct {
	Amount uint64 `cbor:"amount"`
	Hard   bool   `cbor:"hard,omitempty"`
}

func (r Rules) cells() map[string]any {
	cells := map[string]any{}
	for m, n := range r.Limits {
		cells[limitPrefix+string(m)] = n
	}
	for _, b := range r.Budgets {
		cells[budgetPrefix+string(b.Period)+"/"+string(b.Unit)] = budgetCell{b.Amount, b.Hard}
	}
	return cells
}

// readRules takes the rules of a row. Limits and budgets that this version does
// not know stay in the row and bind nobody here.
func readRules(row crdt.Row) (Rules, error) {
	var r Rules
	var errs []error
	for _, m := range Metrics() {
		if cell := limitPrefix + string(m); len(row.Cells[cell].Value) > 0 {
			if r.Limits == nil {
				r.Limits = RateLimits{}
			}
			var n uint64
			errs = append(errs, decode(row, cell, &n))
			r.Limits[m] = n
		}
	}
	for _, p := range Periods() {
		for _, u := range []Unit{UnitMicros, UnitTokens} {
			if cell := budgetPrefix + string(p) + "/" + string(u); len(row.Cells[cell].Value) > 0 {
				var b budgetCell
				errs = append(errs, decode(row, cell, &b))
				r.Budgets = append(r.Budgets, Budget{p, u, b.Amount, b.Hard})
			}
		}
	}
	return r, errors.Join(errs...)
}
