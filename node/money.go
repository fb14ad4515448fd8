package node

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh"
	"llmgw/router/limits"
)

const (
	// booksFirst and booksEach: the books are closed a while after the start, when the
	// others have told what they know, and each day.
	booksFirst, booksEach = 10 * time.Minute, 24 * time.Hour
	// foldAnyway is how long after its end a period waits for members that are away.
	foldAnyway = 14 * 24 * time.Hour
	// usageKept is how long usage records are kept.
	usageKept = 90 * 24 * time.Hour
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

// close folds the accounts of periods that are over, once every member's counts are here
// or have been waited for, and drops old usage records.
func (b books) close() error {
	now := b.now()
	complete, all := b.complete()
	folded, err := b.store.FoldSpend(func(a crdt.Account) bool {
		return all && limits.Closed(a, complete) || limits.Closed(a, now.Add(-foldAnyway))
	})
	if folded > 0 {
		b.log.Info("spending of periods that are over was folded", "accounts", folded, "all_members_heard", all)
	}
	if err != nil {
		return fmt.Errorf("close books: %w", err)
	}
	dropped, err := b.store.DropUsage(now.Add(-usageKept))
	if dropped > 0 {
		b.log.Info("old usage records were dropped", "records", dropped, "kept", usageKept)
	}
	if err != nil {
		return fmt.Errorf("close books: %w", err)
	}
	return nil
}

// rights lets the limits spend of hard budgets.
type rights struct {
	escrow *mesh.Escrow
	log    *slog.Logger
}

var _ limits.Rights = rights{}

// Take sets amount of a budget aside.
func (r rights) Take(ctx context.Context, a crdt.Account, budget, amount uint64) error {
	return r.escrow.Take(ctx, a, min(budget, crdt.MaxAmount), amount)
}

// Return ends a Take. What was spent beyond it was served, so it counts.
func (r rights) Return(a crdt.Account, amount, used uint64) {
	if used <= amount {
		r.escrow.Return(a, amount-used)
		return
	}
	if err := r.escrow.Overdraw(a, used-amount); err != nil {
		r.log.Error("spending beyond what was reserved is not counted against a hard budget", "budget", a.Budget, "micros", used-amount, "error", err)
	}
}
