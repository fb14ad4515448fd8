package mesh

import (
	"context"
	"fmt"

	"llmgw/crdt"
)

// Prepare has the rights of a period that is to come minted, and takes this box's share of them, so that it can spend when
// the period begins, whoever is away by then. Each box calls it from a while before the period on, again and again: it does
// nothing once the share is here. An error means that the steward was not reached, or a disk failed.
func (e *Escrow) Prepare(ctx context.Context, a crdt.Account, total uint64) error {
	if err := e.Mint(ctx, a, total); err != nil {
		return err
	}
	steward := e.m.steward()
	share := total / uint64(1+len(e.m.links.live()))
	missing := int64(share) - e.Rights(a)
	if steward == e.m.self || missing <= int64(share/lowShare) {
		return nil
	}
	if err := e.m.AwaitMoney(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	// It gives twice what is needed.
	_, err := e.ask(ctx, steward, escrowAsk{Total: total, Need: uint64(missing)/2 + 1, Spare: true}.of(a))
	return err
}
