package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/router/limits"
)

const (
	// booksFirst and booksEach: the books are closed a while after the start, when the
	// others have told what they know, and each day.
	booksFirst, booksEach = 10 * time.Minute, 24 * time.Hour
	// foldAnyway is how long after its end a period waits for members that are away.
	foldAnyway = 14 * 24 * time.Hour
	// usageKept is how long usage records are kept, spendKept how long what was spent in
	// days and months that are over.
	usageKept = 90 * 24 * time.Hour
	spendKept = 400 * 24 * time.Hour
)

// books keeps what was spent from growing for ever.
type books struct {
	store *store.Store
	// complete is since when this box has the counts of all other members; false when
	// it lacks some.
	complete func() (time.Time, bool)
	now      func() time.Time
	log      *slog.Logger
}

func (n *Node) books() books {
	return books{store: n.store, complete: n.mesh.MoneyFrom, now: n.now, log: n.log}
}

// run closes the books until ctx ends. A day on which that fails is made up for by the
// next one.
func (b books) run(ctx context.Context) error {
	timer := time.NewTimer(booksFirst)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := b.close(); err != nil {
			b.log.Error("the books were not closed", "error", err)
		}
		timer.Reset(booksEach)
	}
}

// close folds the accounts of periods that are over, and drops what is old.
func (b books) close() error {
	now := b.now()
	for _, step := range []func(time.Time) error{b.fold, b.dropSpend, b.dropUsage} {
		if err := step(now); err != nil {
			return fmt.Errorf("close books: %w", err)
		}
	}
	return nil
}

// fold waits until every member's counts are here, or long enough.
func (b books) fold(now time.Time) error {
	complete, all := b.complete()
	folded, err := b.store.FoldSpend(func(a crdt.Account) bool {
		return all && limits.Closed(a, complete) || limits.Closed(a, now.Add(-foldAnyway))
	})
	if folded > 0 {
		b.log.Info("spending of periods that are over was folded", "accounts", folded, "all_members_heard", all)
	}
	return err
}

func (b books) dropSpend(now time.Time) error {
	dropped, err := b.store.DropSpend(now.Add(-spendKept).UTC().Format("2006-01"))
	if dropped > 0 {
		b.log.Info("spending of old days and months was dropped", "accounts", dropped, "kept", spendKept)
	}
	return err
}

func (b books) dropUsage(now time.Time) error {
	dropped, err := b.store.DropUsage(now.Add(-usageKept))
	if dropped > 0 {
		b.log.Info("old usage records were dropped", "records", dropped, "kept", usageKept)
	}
	return err
}

// prepareEach is how often it is looked whether budgets of a period to come are to be
// divided.
const prepareEach = 10 * time.Minute

// prepareBudgets divides hard budgets among the boxes before their periods begin, until
// ctx ends.
func (n *Node) prepareBudgets(ctx context.Context) error {
	tick := time.NewTicker(prepareEach)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		all, err := n.budgetsAhead(n.meshTime.now())
		if err != nil {
			n.log.Error("budgets of the next period were not looked up", "error", err)
		}
		for _, due := range all {
			if err := n.mesh.Escrow().Prepare(ctx, due.Account, due.Amount); err != nil && ctx.Err() == nil {
				n.log.Debug("a share of the next period's budget is not here yet", "budget", due.Account.Budget, "period", due.Account.Period, "error", err)
			}
		}
	}
}

// budgetsAhead lists the hard budgets of which another period begins soon after now.
func (n *Node) budgetsAhead(now time.Time) ([]limits.Due, error) {
	keys, err := n.catalog.APIKeys()
	projects, err2 := n.catalog.Projects()
	tenants, err3 := n.catalog.Tenants()
	var out []limits.Due
	for _, k := range keys {
		out = append(out, limits.Ahead(limits.LevelKey, k.ID, k.Rules, now)...)
	}
	for _, p := range projects {
		out = append(out, limits.Ahead(limits.LevelProject, p.ID, p.Rules, now)...)
	}
	for _, t := range tenants {
		out = append(out, limits.Ahead(limits.LevelTenant, t.ID, t.Rules, now)...)
	}
	return out, errors.Join(err, err2, err3)
}

// hardBudget is how large the hard budget of an account is set to be; 0: it has none.
func (n *Node) hardBudget(a crdt.Account) (uint64, error) {
	b, set, err := limits.BudgetOf(a, n.rulesOf)
	if err != nil || !set || !b.Hard {
		return 0, err
	}
	return b.Amount, nil
}

// rulesOf reads what a key, project or tenant may use.
func (n *Node) rulesOf(level, id string) (catalog.Rules, bool, error) {
	switch level {
	case limits.LevelKey:
		k, err := n.catalog.APIKey(id)
		if errors.Is(err, catalog.ErrNotFound) {
			return catalog.Rules{}, false, nil
		}
		return k.Rules, err == nil, err
	case limits.LevelProject:
		all, err := n.catalog.Projects()
		i := slices.IndexFunc(all, func(p catalog.Project) bool { return p.ID == id })
		if err != nil || i < 0 {
			return catalog.Rules{}, false, err
		}
		return all[i].Rules, true, nil
	case limits.LevelTenant:
		all, err := n.catalog.Tenants()
		i := slices.IndexFunc(all, func(t catalog.Tenant) bool { return t.ID == id })
		if err != nil || i < 0 {
			return catalog.Rules{}, false, err
		}
		return all[i].Rules, true, nil
	}
	return catalog.Rules{}, false, nil
}

// rights lets the limits spend of hard budgets.
type rights struct {
	escrow *mesh.Escrow
	log    *slog.Logger
}

var _ limits.Rights = rights{}

// Take sets amount of a budget aside.
func (r rights) Take(ctx context.Context, a crdt.Account, budget, amount uint64) (settle func(used uint64), err error) {
	taken, err := r.escrow.Take(ctx, a, min(budget, crdt.MaxAmount), amount)
	if err != nil {
		return nil, err
	}
	return func(used uint64) {
		if err := taken.Settle(used); err != nil {
			r.log.Error("spending beyond what was reserved is not counted against a hard budget", "budget", a.Budget, "micros", used, "error", err)
		}
	}, nil
}

// Spent has debts paid.
func (r rights) Spent(a crdt.Account) { r.escrow.PayDebt(a) }
