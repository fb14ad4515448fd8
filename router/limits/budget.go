package limits

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"llmgw/crdt"
	"llmgw/mesh/catalog"
	"llmgw/router/openai"
)

// aside is what a request may cost an account, set aside until it is recorded.
type aside struct {
	subject
	account crdt.Account
	budget  catalog.Budget
	amount  uint64
	settle  func(used uint64) // ends what was taken of a hard budget's rights; nil: nothing was
}

// AccountOf names the account that a budget of a key, project or tenant is counted
// on, in the period that t lies in.
func AccountOf(level, id string, unit catalog.Unit, period catalog.Period, t time.Time) crdt.Account {
	return crdt.Account{Budget: accountName(level, id, unit), Period: periodOf(period, t)}
}

// BudgetOf finds the budget that is counted on an account; rules tells those of a key,
// project or tenant, false if there is none. An account of another shape has none.
func BudgetOf(a crdt.Account, rules func(level, id string) (catalog.Rules, bool, error)) (catalog.Budget, bool, error) {
	parts := strings.Split(a.Budget, ":")
	if len(parts) != 3 {
		return catalog.Budget{}, false, nil
	}
	period := catalog.PeriodTotal
	if month, ok := a.MonthOf(); ok && month == a.Period {
		period = catalog.PeriodMonth
	} else if ok {
		period = catalog.PeriodDay
	}
	r, known, err := rules(parts[0], parts[1])
	if err != nil || !known {
		return catalog.Budget{}, false, err
	}
	b, set := r.Budget(period, catalog.Unit(parts[2]))
	return b, set, nil
}

// accountName is free of doubt: no ID has a colon.
func accountName(level, id string, unit catalog.Unit) string {
	return level + ":" + id + ":" + string(unit)
}

// periodOf names a period; it is the same on every node at a time.
func periodOf(p catalog.Period, t time.Time) string {
	switch p {
	case catalog.PeriodDay:
		return t.UTC().Format("2006-01-02")
	case catalog.PeriodMonth:
		return t.UTC().Format("2006-01")
	}
	return string(catalog.PeriodTotal)
}

// Closed says whether nothing more is spent on an account: its period ended an hour
// before t, or more. An account of another shape is never closed.
func Closed(a crdt.Account, t time.Time) bool {
	t = t.UTC().Add(-time.Hour)
	if day, err := time.Parse("2006-01-02", a.Period); err == nil {
		return !t.Before(day.AddDate(0, 0, 1))
	}
	if month, err := time.Parse("2006-01", a.Period); err == nil {
		return !t.Before(month.AddDate(0, 1, 0))
	}
	return false
}

// untilNext is when the next period begins; 0: never.
func untilNext(p catalog.Period, t time.Time) time.Duration {
	t = t.UTC()
	switch p {
	case catalog.PeriodDay:
		return time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, time.UTC).Sub(t).Round(time.Second)
	case catalog.PeriodMonth:
		return time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(t).Round(time.Second)
	}
	return 0
}

// setAside reserves the most that the request may cost in every budget that binds
// it, or in none. The caller holds mu.
func (l *Limiter) setAside(g *Grant, now time.Time) *Refusal {
	cost := map[catalog.Unit]uint64{}
	priced := false
	for _, s := range g.subjects {
		for _, b := range s.rules.Budgets {
			if !priced {
				priced = true
				cost[catalog.UnitTokens] = add(g.req.Estimate.Input, l.mostOutput(g.req))
				cost[catalog.UnitMicros] = l.mostCost(g)
			}
			a := aside{subject: s, account: AccountOf(s.level, s.id, b.Unit, b.Period, now), budget: b, amount: cost[b.Unit]}
			spent := add(l.cfg.Ledger.Spent(a.account), l.pending[a.account])
			if b.Amount == 0 || spent >= b.Amount || a.amount > b.Amount-spent {
				l.unset(g.aside)
				g.aside = nil
				return a.refusal(spent, now)
			}
			l.pending[a.account] += a.amount
			g.aside = append(g.aside, a)
		}
	}
	return nil
}

// mostCost is what a request may cost in micro-units, whoever answers it.
func (l *Limiter) mostCost(g *Grant) uint64 {
	most := g.mostUsage(l.mostOutput(g.req))
	cost := l.cost(g.req.Model, g.req.Provider, most)
	for _, p := range g.req.Payees {
		cost = max(cost, l.cost(p.Model, p.Provider, most))
	}
	return cost
}

// mostOutput is the most that an answer may have: money that is not there must not
// be spent, so what answers mostly have stands in only where nothing bounds them.
func (l *Limiter) mostOutput(r Request) uint64 {
	if r.Estimate.Output > 0 {
		return r.Estimate.Output
	}
	return l.output(r)
}

// mostUsage is the estimate with nothing read from a cache.
func (g *Grant) mostUsage(output uint64) openai.Usage {
	u := g.req.Estimate
	u.Output, u.Cached = output, 0
	return u
}

func (a aside) refusal(spent uint64, now time.Time) *Refusal {
	return &Refusal{
		Level: a.level, Name: a.name, Metric: fmt.Sprintf("%s/%s", a.budget.Period, a.budget.Unit), Limit: a.budget.Amount,
		Used: spent, RetryAfter: untilNext(a.budget.Period, now), Quota: true,
	}
}

// unset gives back what was set aside. The caller holds mu.
func (l *Limiter) unset(all []aside) {
	for _, a := range all {
		left := l.pending[a.account] - min(a.amount, l.pending[a.account])
		if left == 0 {
			delete(l.pending, a.account)
		} else {
			l.pending[a.account] = left
		}
	}
}

// takeRights sets the request's most aside in hard budgets, so that no other node
// can spend it.
func (l *Limiter) takeRights(ctx context.Context, g *Grant) *Refusal {
	if l.cfg.Rights == nil {
		return nil
	}
	for i := range g.aside {
		a := &g.aside[i]
		if !a.budget.Hard || a.amount == 0 {
			continue
		}
		settle, err := l.cfg.Rights.Take(ctx, a.account, a.budget.Amount, a.amount)
		if err != nil {
			l.cfg.Log.Debug("no rights to spend", "account", a.account.Budget, "error", err)
			return a.refusal(l.cfg.Ledger.Spent(a.account), g.at)
		}
		a.settle = settle
	}
	return nil
}

// giveRights ends what takeRights took: used of it was spent. What was spent without
// any of it having been taken is told, too.
func (g *Grant) giveRights(all []aside, used map[catalog.Unit]uint64) {
	for _, a := range all {
		switch spent := used[a.budget.Unit]; {
		case a.settle != nil:
			a.settle(spent)
		case spent > 0 && g.l.cfg.Rights != nil:
			g.l.cfg.Rights.Spent(a.account)
		}
	}
}

// tookRights says whether rights were taken for what is spent of an account.
func (g *Grant) tookRights(a crdt.Account) bool {
	return slices.ContainsFunc(g.aside, func(s aside) bool { return s.account == a && s.settle != nil })
}
