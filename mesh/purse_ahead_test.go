package mesh

import (
	"context"
	"testing"
	"time"

	"llmgw/crdt"
)

// TestAPeriodBeginsWithoutItsSteward: what was prepared can be spent by all others, and
// never more than there is, also once the steward is back.
func TestAPeriodBeginsWithoutItsSteward(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 4, ofBudget(hardTotal))
	steward, others := stewardOf(t, boxes...)
	prepare := func() {
		for _, b := range others { // the steward itself need not
			if err := b.mesh.Escrow().Prepare(context.Background(), budget, hardTotal); err != nil {
				t.Fatal(err)
			}
		}
	}
	prepare()
	fair := int64(hardTotal / len(boxes))
	shares := map[*box]int64{}
	for _, b := range others {
		shares[b] = b.mesh.Escrow().Rights(budget)
		if shares[b] < fair*3/4 || shares[b] > fair*5/4 {
			t.Errorf("%s has %d, a fair share is %d", b.cfg.Name, shares[b], fair)
		}
	}
	// Who has his share does not ask again.
	prepare()
	for _, b := range others {
		if now := b.mesh.Escrow().Rights(budget); now != shares[b] {
			t.Errorf("%s had %d and has %d", b.cfg.Name, shares[b], now)
		}
	}
	steward.kill()
	taken := takers(t, hardTotal, others...)
	if taken < uint64(fair)*3*9/10 {
		t.Errorf("without the steward %d of %d were spent", taken, fair*3)
	}
	steward.start()
	allLive(t, boxes...)
	if taken += takers(t, hardTotal, boxes...); taken > hardTotal || taken < hardTotal*9/10 {
		t.Errorf("%d of %d were taken in all", taken, hardTotal)
	}
}

func TestPrepareSaysThatTheStewardIsAway(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	steward, others := stewardOf(t, boxes...)
	steward.kill()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	account := crdt.Account{Budget: "team", Period: "2026-12"}
	if err := others[0].mesh.Escrow().Prepare(ctx, account, hardTotal); err == nil {
		t.Error("nothing is here, and no error says so")
	}
	if rights := others[0].mesh.Escrow().Rights(account); rights != 0 {
		t.Errorf("rights of %d came from nowhere", rights)
	}
}
