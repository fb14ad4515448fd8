package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// hardTotal is the hard budget of these tests.
const hardTotal = 20_000

// ofBudget is a catalog that has the budget in one size.
func ofBudget(total uint64) func(*Config) {
	return func(c *Config) { c.Budget = func(crdt.Account) (uint64, error) { return total, nil } }
}

// mint has all boxes make the budget that large, which the steward alone does.
func mint(t *testing.T, total uint64, boxes ...*box) {
	t.Helper()
	for _, b := range boxes {
		if err := b.mesh.Escrow().Mint(context.Background(), budget, total); err != nil {
			t.Fatal(err)
		}
	}
}

// stewardOf is the one of the boxes that mints.
func stewardOf(t *testing.T, boxes ...*box) (steward *box, others []*box) {
	t.Helper()
	eventually(t, "all agree on the steward", func() bool {
		for _, b := range boxes[1:] {
			if b.mesh.Steward() != boxes[0].mesh.Steward() {
				return false
			}
		}
		return true
	})
	for _, b := range boxes {
		if b.id() == boxes[0].mesh.Steward() {
			steward = b
		} else {
			others = append(others, b)
		}
	}
	return steward, others
}

// crash ends the box as a power cut does: nothing more gets to its disk.
func (b *box) crash() {
	b.t.Helper()
	if err := b.store.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.kill()
}

// takers spend the hard budget on all boxes at once until nobody gets any more, and say how
// much was taken. Some of what is taken goes back.
func takers(t *testing.T, total uint64, boxes ...*box) uint64 {
	t.Helper()
	var taken atomic.Uint64
	var all sync.WaitGroup
	for i, b := range boxes {
		for j := range 3 {
			all.Go(func() { taken.Add(takeAll(t, b, total, uint64(i+3*j))) })
		}
	}
	all.Wait()
	return taken.Load()
}

func takeAll(t *testing.T, b *box, total, seed uint64) (taken uint64) {
	for n := uint64(0); ; n++ {
		cost := 1 + (7*n+3*seed)%40
		got, err := b.mesh.Escrow().Take(context.Background(), budget, total, cost)
		switch {
		case err == nil:
			if err := got.Settle(cost - cost/4); err != nil {
				t.Error(err)
			}
			taken += cost - cost/4
		case !errors.Is(err, crdt.ErrRights):
			t.Error(err)
			return taken
		case cost <= 4:
			return taken
		}
	}
}

// TestHardBudgetIsNeverOverspent: by five boxes that spend at once, of which one minted
// all of it; nearly all of it is spent.
func TestHardBudgetIsNeverOverspent(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 5, ofBudget(hardTotal))
	_, others := stewardOf(t, boxes...)
	// One who is not asked anything itself mints when others ask.
	if _, err := others[0].mesh.Escrow().Take(context.Background(), budget, hardTotal, 1); err != nil {
		t.Fatal(err)
	}
	taken := takers(t, hardTotal, boxes...)
	if taken > hardTotal || taken < hardTotal*9/10 {
		t.Errorf("%d of %d were taken", taken, hardTotal)
	}
	for _, b := range boxes {
		eventually(t, b.cfg.Name+" knows what there is", func() bool { return b.mesh.Escrow().Total(budget) == hardTotal })
		if rights := b.mesh.Escrow().Rights(budget); rights < 0 {
			t.Errorf("%s has rights of %d", b.cfg.Name, rights)
		}
	}
}

// TestHardBudgetAcrossACut: the cut is made by running each side while the other is off.
// Each spends what it has; together they never spend more than there is.
func TestHardBudgetAcrossACut(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 4)
	mint(t, hardTotal, boxes...)
	left, right := boxes[:2], boxes[2:]
	taken := uint64(0)
	for _, b := range boxes {
		if _, err := b.mesh.Escrow().Take(context.Background(), budget, hardTotal, 500); err != nil {
			t.Fatal(err)
		}
		taken += 500
	}
	each := func(do func(*box), boxes ...*box) {
		for _, b := range boxes {
			do(b)
		}
	}
	each((*box).kill, right...)
	gotLeft := takers(t, hardTotal, left...)
	each((*box).kill, left...)
	each((*box).start, right...)
	allLive(t, right...)
	gotRight := takers(t, hardTotal, right...)
	each((*box).start, left...)
	allLive(t, boxes...)
	taken += gotLeft + gotRight + takers(t, hardTotal, boxes...)
	if taken > hardTotal || taken < hardTotal*9/10 || gotLeft == 0 || gotRight == 0 {
		t.Errorf("%d of %d were taken, %d and %d behind the cut", taken, hardTotal, gotLeft, gotRight)
	}
	eventually(t, "all know the same", func() bool {
		sums, _ := boxes[0].store.MoneyState()
		for _, b := range boxes[1:] {
			if own, _ := b.store.MoneyState(); own != sums {
				return false
			}
		}
		return true
	})
}

// TestRightsOfAKilledBoxAreStranded: nobody spends them until it comes back, and nothing
// that it had taken is spent again then.
func TestRightsOfAKilledBoxAreStranded(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 3)
	mint(t, hardTotal, boxes...)
	_, others := stewardOf(t, boxes...)
	dies := others[0]
	survivors := slices.DeleteFunc(slices.Clone(boxes), func(b *box) bool { return b == dies })
	taken := uint64(0)
	for range 21 {
		if _, err := dies.mesh.Escrow().Take(context.Background(), budget, hardTotal, 100); err != nil {
			t.Fatal(err)
		}
		taken += 100
	}
	dies.crash()
	stranded := dies.rightsOnDisk()
	taken += takers(t, hardTotal, survivors...)
	if taken > hardTotal-stranded || stranded == 0 {
		t.Errorf("%d of %d were taken although %d are on a box that is dead", taken, hardTotal, stranded)
	}
	dies.start()
	if rights := dies.mesh.Escrow().Rights(budget); rights != int64(stranded) {
		t.Errorf("rights of %d became %d by a crash", stranded, rights)
	}
	allLive(t, boxes...)
	if taken += takers(t, hardTotal, boxes...); taken > hardTotal {
		t.Errorf("%d of %d were taken", taken, hardTotal)
	}
}

// rightsOnDisk is what a box that does not run will have when it starts.
func (b *box) rightsOnDisk() uint64 {
	b.t.Helper()
	s, err := store.Open(b.dir, store.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer s.Close()
	rights, _ := s.Rights(budget, s.ID())
	return uint64(max(rights, 0))
}

// TestRightsOfARolledBackDiskAreNotSpentAgain: it learns from a peer what it had spent
// before it spends.
func TestRightsOfARolledBackDiskAreNotSpentAgain(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	mint(t, hardTotal, boxes...)
	if steward, others := stewardOf(t, boxes...); steward != boxes[0] {
		boxes = []*box{steward, others[0]}
	}
	old := t.TempDir()
	boxes[0].kill()
	if err := os.CopyFS(old, os.DirFS(boxes[0].dir)); err != nil {
		t.Fatal(err)
	}
	boxes[0].start()
	allLive(t, boxes...)
	taken := uint64(0)
	for range 10 {
		if _, err := boxes[0].mesh.Escrow().Take(context.Background(), budget, hardTotal, hardTotal/20); err != nil {
			t.Fatal(err)
		}
		taken += hardTotal / 20
	}
	eventually(t, "the peer knows", func() bool {
		known := boxes[1].store.Escrow(budget)
		return known.Used() >= taken
	})
	was := boxes[0].store.ID()
	boxes[0].kill()
	boxes[0].dir = old
	boxes[0].start()
	allLive(t, boxes...)
	if taken += takers(t, hardTotal, boxes...); taken > hardTotal {
		t.Errorf("%d of %d were taken", taken, hardTotal)
	}
	if boxes[0].store.ID() == was {
		t.Error("it goes on under the identity that had spent more")
	}
}

// TestRaiseAndCut: a raise makes rights, a cut takes them from others too, as far as they are
// not used; whoever is no steward changes nothing.
func TestRaiseAndCut(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 3)
	steward, others := stewardOf(t, boxes...)
	mint(t, 1000, others...)
	if got := others[0].mesh.Escrow().Total(budget); got != 0 {
		t.Fatalf("one who is no steward minted %d", got)
	}
	mint(t, 1000, boxes...)
	if _, err := others[0].mesh.Escrow().Take(context.Background(), budget, 1000, 300); err != nil {
		t.Fatal(err)
	}
	mint(t, 5000, boxes...)
	if got := steward.mesh.Escrow().Total(budget); got != 5000 {
		t.Errorf("raised to %d", got)
	}
	if _, err := others[1].mesh.Escrow().Take(context.Background(), budget, 5000, 2000); err != nil {
		t.Fatal(err)
	}
	mint(t, 2500, boxes...)
	if got := steward.mesh.Escrow().Total(budget); got != 2500 {
		t.Errorf("cut to %d", got)
	}
	if taken := takers(t, 2500, boxes...); 2300+taken > 2500 {
		t.Errorf("%d of 2500 were taken", 2300+taken)
	}
	mint(t, 100, boxes...)
	if got := steward.mesh.Escrow().Total(budget); got < 2300 {
		t.Errorf("what was used was burned: %d", got)
	}
}

// TestTakesThatCannotBe.
func TestTakesThatCannotBe(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBox(t, "b")
	e := b.mesh.Escrow()
	if _, err := e.Take(ctx, budget, 0, 1); !errors.Is(err, crdt.ErrRights) {
		t.Errorf("of nothing: %v", err)
	}
	if _, err := e.Take(ctx, budget, 0, 0); err != nil {
		t.Errorf("nothing: %v", err)
	}
	if _, err := e.Take(ctx, budget, 0, crdt.MaxAmount+1); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("too much: %v", err)
	}
	if err := e.Mint(ctx, budget, crdt.MaxAmount+1); !errors.Is(err, crdt.ErrTooLarge) {
		t.Errorf("minted: %v", err)
	}
	mint(t, 100, b)
	if _, err := e.Take(ctx, budget, 100, 101); !errors.Is(err, crdt.ErrRights) || e.Rights(budget) != 100 {
		t.Errorf("more than there is: %v, rights %d", err, e.Rights(budget))
	}
	taken, err := e.Take(ctx, budget, 100, 60)
	if err != nil {
		t.Fatal(err)
	}
	if err := taken.Settle(50); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what came back is there", func() bool { return e.Rights(budget) == 50 })
	if err := e.Overdraw(budget, 70); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is overdrawn", func() bool { return e.Rights(budget) == -20 })
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := e.Take(ended, budget, 100, 1); err == nil {
		t.Error("taken by one who is gone, of nothing")
	}
}

// TestLooseRightsAreKeptOverARestart: what was drawn and not spent is put back.
func TestLooseRightsAreKeptOverARestart(t *testing.T) {
	t.Parallel()
	b := newBox(t, "b")
	mint(t, 1000, b)
	for i := range 5 {
		taken, err := b.mesh.Escrow().Take(context.Background(), budget, 1000, 10)
		if err == nil && i < 2 {
			err = taken.Settle(0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.kill()
	b.start()
	if got := b.mesh.Escrow().Rights(budget); got != 970 {
		t.Errorf("rights %d", got)
	}
	taken, err := b.mesh.Escrow().Take(context.Background(), budget, 1000, 900)
	if err != nil {
		t.Fatal(err)
	}
	if err := taken.Settle(0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "much that is loose goes back to the disk", func() bool {
		known := b.store.Escrow(budget)
		return known.Rights(b.store.ID()) > 700
	})
}

// TestNothingComesBackUnderAnotherIdentity: after a rollback was found, what requests in
// flight had reserved counts as used for good.
func TestNothingComesBackUnderAnotherIdentity(t *testing.T) {
	t.Parallel()
	b := newBox(t, "b")
	mint(t, hardTotal, b)
	e := b.mesh.Escrow()
	taken, err := e.Take(context.Background(), budget, hardTotal, 5000)
	if err != nil {
		t.Fatal(err)
	}
	before := b.store.ID()
	lost := crdt.EscrowPart{Account: budget, Cells: []crdt.EscrowEntry{{From: before, To: crdt.Spent, Micros: hardTotal}}}
	if _, err := b.store.MergeMoney(crdt.Money{Escrows: []crdt.EscrowPart{lost}}); err != nil {
		t.Fatal(err)
	}
	if b.store.ID() == before {
		t.Fatal("the store did not see that it was rolled back")
	}
	rights := e.Rights(budget)
	if err := taken.Settle(0); err != nil {
		t.Fatal(err)
	}
	if got := e.Rights(budget); got != rights {
		t.Errorf("rights %d, before the request ended %d", got, rights)
	}
}

// TestABudgetMadeHardLater: what was spent while it was not leaves no rights, on whichever
// box it was spent.
func TestABudgetMadeHardLater(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	stewardOf(t, boxes...)
	const soft = hardTotal * 9 / 10
	for i, b := range boxes {
		share := uint64(soft/3) * uint64(1+i)
		if err := b.store.RecordUsage(store.Usage{Record: []byte("u"), Charges: []store.Charge{{Account: budget, Micros: share}}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range boxes {
		eventually(t, "all know what was spent", func() bool { return b.store.Spent(budget) == soft })
	}
	spendAll := func(total, left uint64) (got uint64) {
		t.Helper()
		eventually(t, "nearly all that is left can be spent", func() bool {
			got += takers(t, total, boxes...)
			return got >= left*9/10
		})
		if got > left {
			t.Errorf("%d spent of the %d that were left", got, left)
		}
		return got
	}
	before := soft + spendAll(hardTotal, hardTotal-soft)
	mint(t, 2*hardTotal, boxes...)
	spendAll(2*hardTotal, 2*hardTotal-before)
}

// TestABudgetMadeSoftForAWhile: what is spent meanwhile is not spent once more when it is hard again, also when a box
// that has rights hears of nobody any more then.
func TestABudgetMadeSoftForAWhile(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 3)
	mint(t, hardTotal, boxes...)
	steward, others := stewardOf(t, boxes...)
	if _, err := others[0].mesh.Escrow().Take(context.Background(), budget, hardTotal, hardTotal/4); err != nil {
		t.Fatal(err)
	}
	const soft = hardTotal / 2
	if err := others[1].store.RecordUsage(store.Usage{Record: []byte("u"), Charges: []store.Charge{{Account: budget, Micros: soft}}}); err != nil {
		t.Fatal(err)
	}
	for _, b := range boxes {
		eventually(t, "all know what was spent", func() bool { return b.store.Spent(budget) == soft })
	}
	others[1].kill()
	left := uint64(hardTotal - hardTotal/4 - soft)
	taken := uint64(0)
	eventually(t, "nearly all that is left can be spent", func() bool {
		taken += takers(t, hardTotal, steward, others[0])
		return taken >= left*9/10
	})
	others[1].start()
	allLive(t, boxes...)
	if taken += takers(t, hardTotal, boxes...); taken > left {
		t.Errorf("%d spent of the %d that were left", taken, left)
	}
}

// TestHostileQuestionsForRights: nothing is given to another store than the asker's, and
// none of it stops the giver.
func TestHostileQuestionsForRights(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, others := stewardOf(t, boxes...)
	b := others[0]
	mint(t, 1000, boxes...)
	eventually(t, "both have met", func() bool { return a.mesh.money.known() && b.mesh.money.known() })
	mesh := a.mesh.view.Load().mesh
	good := escrowAsk{Mesh: mesh[:], Budget: []byte(budget.Budget), Period: []byte(budget.Period), Store: uint64(b.store.ID()), Need: 1}
	for name, spoil := range map[string]func(*escrowAsk){
		"for another":     func(q *escrowAsk) { q.Store++ },
		"for the giver":   func(q *escrowAsk) { q.Store = uint64(a.store.ID()) },
		"another mesh":    func(q *escrowAsk) { q.Mesh = make([]byte, 32) },
		"too much":        func(q *escrowAsk) { q.Need = crdt.MaxAmount + 1 },
		"a name too long": func(q *escrowAsk) { q.Budget = make([]byte, crdt.MaxNameBytes+1) },
	} {
		q := good
		spoil(&q)
		s, err := b.mesh.open(context.Background(), a.peer(), protocolEscrow)
		if err != nil {
			t.Fatal(err)
		}
		var answer escrowAnswer
		err = b.mesh.writeSync(s, q)
		if err == nil {
			err = b.mesh.readSync(s, &answer)
		}
		s.Reset()
		if err == nil {
			t.Errorf("%s: answered with %d bytes", name, len(answer.Cells))
		}
	}
	if got := a.mesh.Escrow().Rights(budget); got != 1000 {
		t.Errorf("rights of %d are left", got)
	}
	if _, err := b.mesh.Escrow().Take(context.Background(), budget, 1000, 10); err != nil {
		t.Error(err)
	}
}

// rowBudget is a catalog in the rows of the box that is in at: the budget is what "budget" is there.
func rowBudget(at *atomic.Pointer[box]) func(*Config) {
	return func(c *Config) {
		c.Budget = func(crdt.Account) (uint64, error) {
			row, _, err := at.Load().store.Get(crdt.NewKey("things", "budget"))
			if err != nil {
				return 0, err
			}
			return strconv.ParseUint(cmp.Or(string(row.Cells["v"].Value), "0"), 10, 64)
		}
	}
}

// TestTheStewardGoesByItsOwnCatalog: an asker that states another size of the budget gets nothing and burns nothing, and
// where one of the two just has not heard of a change, it has then.
func TestTheStewardGoesByItsOwnCatalog(t *testing.T) {
	t.Parallel()
	var at [2]atomic.Pointer[box]
	var boxes []*box
	for i := range at {
		boxes = append(boxes, newBox(t, fmt.Sprint("n", i), rowBudget(&at[i])))
		at[i].Store(boxes[i])
	}
	boxes[1].join(boxes[0])
	allLive(t, boxes...)
	steward, others := stewardOf(t, boxes...)
	asker := others[0]
	steward.put("budget", "1000")
	eventually(t, "both have the budget", func() bool { return asker.get("budget") == "1000" })
	mint(t, 1000, boxes...)
	for _, stated := range []uint64{1, 500, 999, 1001, crdt.MaxAmount} {
		err := asker.mesh.Escrow().askOnce(context.Background(), steward.peer(), escrowAsk{Total: stated, Need: 1}.of(budget))
		var differ *totalsError
		if !errors.As(err, &differ) || *differ != (totalsError{asker: stated, steward: 1000}) {
			t.Errorf("stated %d: %v", stated, err)
		}
		if e := steward.mesh.Escrow(); e.Rights(budget) != 1000 || e.Total(budget) != 1000 {
			t.Fatalf("stated %d: the steward has rights of %d of %d", stated, e.Rights(budget), e.Total(budget))
		}
	}
	steward.put("budget", "900") // a cut that both know of
	eventually(t, "both know of the cut", func() bool { return asker.get("budget") == "900" })
	if gained, err := asker.mesh.Escrow().ask(context.Background(), steward.peer(), escrowAsk{Total: 900, Need: 1}.of(budget)); err != nil || !gained || steward.mesh.Escrow().Total(budget) != 900 {
		t.Errorf("after a cut: %v, there are %d", err, steward.mesh.Escrow().Total(budget))
	}
	// Nothing is gossiped or pulled by itself from here on.
	for _, b := range boxes {
		b.mesh.puller.hold()
		b.store.OnLocalWrite(func([]crdt.Item) {})
	}
	steward.put("budget", "2000")
	if _, err := asker.mesh.Escrow().Take(context.Background(), budget, 1000, 600); err != nil || asker.get("budget") != "2000" {
		t.Errorf("asked by an old size: %v, then it is %s", err, asker.get("budget"))
	}
	asker.put("budget", "3000")
	if _, err := asker.mesh.Escrow().Take(context.Background(), budget, 3000, 2000); err != nil || steward.get("budget") != "3000" {
		t.Errorf("the steward has an old size: %v, then it is %s", err, steward.get("budget"))
	}
	if got := steward.mesh.Escrow().Total(budget); got != 3000 {
		t.Errorf("there are %d", got)
	}
}

// TestGiftsOfWhatIsNotTheGiversAreRefused.
func TestGiftsOfWhatIsNotTheGiversAreRefused(t *testing.T) {
	own := func(m crdt.Money) bool { return tellsOf(m, budget, 7) }
	part := func(a crdt.Account, cells ...crdt.EscrowEntry) crdt.Money {
		return crdt.Money{Escrows: []crdt.EscrowPart{{Account: a, Cells: cells}}}
	}
	cell := crdt.EscrowEntry{From: 7, To: 8, Micros: 1}
	if !own(part(budget, cell)) {
		t.Error("the giver's own cell")
	}
	for name, m := range map[string]crdt.Money{
		"nothing":           {},
		"another's":         part(budget, cell, crdt.EscrowEntry{From: 8, To: 7, Micros: 1}),
		"another account":   part(crdt.Account{Budget: "x"}, cell),
		"two accounts":      {Escrows: append(part(budget, cell).Escrows, part(budget, cell).Escrows...)},
		"spending besides":  {Spend: []crdt.SpendEntry{{By: crdt.SpendID{Store: 7}}}, Escrows: part(budget, cell).Escrows},
		"a folded account ": {Folds: []crdt.SpendFold{{}}, Escrows: part(budget, cell).Escrows},
	} {
		if own(m) {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestLowBoxesAskBeforeTheyAreShort: in the background, of a box that has much.
func TestLowBoxesAskBeforeTheyAreShort(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	mint(t, 1000, boxes...)
	_, others := stewardOf(t, boxes...)
	poor := others[0].mesh.Escrow()
	if _, err := poor.Take(context.Background(), budget, 1000, 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has a quarter of its share", func() bool {
		if poor.low(budget) {
			poor.checkLow(budget)
		}
		return poor.Rights(budget) >= 1000/2/lowShare
	})
}

// TestRecordedSpendingOutlivesAPowerCut: what RecordUsage answered for is on the disk, and
// each box's counts reach the others when it is back.
func TestRecordedSpendingOutlivesAPowerCut(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 3)
	var all sync.WaitGroup
	for i, b := range boxes {
		for range 4 {
			all.Go(func() {
				for n := range 10 {
					charge := store.Charge{Account: budget, Micros: 1}
					if err := b.store.RecordUsage(store.Usage{Record: fmt.Append(nil, i, n), Charges: []store.Charge{charge}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	boxes[1].crash()
	boxes[1].start()
	allLive(t, boxes...)
	allSee(t, budget, 120, boxes...)
}
