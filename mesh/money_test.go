package mesh

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

var budget = crdt.Account{Budget: "team", Period: "2026-11"}

// spend counts what a request on b cost.
func (b *box) spend(a crdt.Account, micros uint64) {
	b.t.Helper()
	if err := b.store.RecordUsage(store.Usage{Charges: []store.Charge{{Account: a, Micros: micros}}}); err != nil {
		b.t.Fatal(err)
	}
}

// newBoxes starts n boxes of one mesh that are all live to each other.
func newBoxes(t *testing.T, n int, change ...func(*Config)) []*box {
	t.Helper()
	var boxes []*box
	for i := range n {
		boxes = append(boxes, newBox(t, fmt.Sprint("n", i), change...))
		if i > 0 {
			boxes[i].join(boxes[0])
		}
	}
	allLive(t, boxes...)
	return boxes
}

// allSee waits until every box counts micros as spent.
func allSee(t *testing.T, a crdt.Account, micros uint64, boxes ...*box) {
	t.Helper()
	for _, b := range boxes {
		eventually(t, fmt.Sprintf("%s counts %d as spent, has %d", b.cfg.Name, micros, b.store.Spent(a)), func() bool { return b.store.Spent(a) == micros })
	}
}

// TestSpendingIsSignalled: with no pull at all every box hears what the others spent.
func TestSpendingIsSignalled(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 3)
	eventually(t, "all know each other's stores and topics", func() bool {
		for _, b := range boxes {
			if len(b.mesh.signals.topic.joined.ListPeers()) < len(boxes)-1 {
				return false
			}
		}
		return true
	})
	for _, b := range boxes {
		b.mesh.puller.hold()
	}
	for i := range 20 {
		boxes[i%3].spend(budget, 5)
	}
	allSee(t, budget, 100, boxes...)
}

// TestSpendingIsPulled: what was spent while a box was away reaches it at once when it
// comes back, and what it had spent alone reaches the others; nothing is fetched again
// after that.
func TestSpendingIsPulled(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 3)
	a, b, c := boxes[0], boxes[1], boxes[2]
	c.kill()
	for i := range 300 {
		if i%30 == 0 {
			a.spend(crdt.Account{Budget: fmt.Sprint("b", i), Period: "2026-11"}, 1)
		}
	}
	a.spend(budget, 7)
	s, err := store.Open(c.dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RecordUsage(store.Usage{Charges: []store.Charge{{Account: budget, Micros: 3}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.start()
	allLive(t, boxes...)
	allSee(t, budget, 10, boxes...)
	equal := func() bool {
		sums, _ := a.store.MoneyState()
		for _, o := range boxes[1:] {
			if own, _ := o.store.MoneyState(); own != sums {
				return false
			}
		}
		return true
	}
	eventually(t, "all counts are equal", equal)
	seq := func() (out [3]uint64) {
		for i, o := range boxes {
			_, at := o.store.MoneyState()
			out[i] = at.Seq
		}
		return out
	}
	before := seq()
	for _, x := range boxes {
		for _, y := range boxes {
			if x != y {
				if err := x.mesh.pull(context.Background(), y.peer()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if after := seq(); after != before {
		t.Errorf("something was news although nothing was spent: %v, then %v", before, after)
	}
	if _, ok := b.mesh.MoneyFrom(); !ok {
		t.Error("b does not know that it has the counts of all")
	}
}

// TestCountsOfThoseWhoAreGoneStay: of a removed box, and of a member that is away, to
// one that joins later.
func TestCountsOfThoseWhoAreGoneStay(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 3)
	boxes[1].spend(budget, 4)
	boxes[2].spend(budget, 5)
	allSee(t, budget, 9, boxes...)
	if err := boxes[0].mesh.Ban(context.Background(), boxes[1].id(), "gone"); err != nil {
		t.Fatal(err)
	}
	boxes[2].kill()
	late := newBox(t, "late")
	late.join(boxes[0])
	allLive(t, boxes[0], late)
	allSee(t, budget, 9, boxes[0], late)
}

// TestDroppedSpendingStaysAway from a box although others have it still, and is not
// fetched again and again; what is spent now goes on being told.
func TestDroppedSpendingStaysAway(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	month := func(n int) crdt.Account {
		return crdt.Account{Budget: "team", Period: time.Date(2026, 11-time.Month(n), 1, 0, 0, 0, 0, time.UTC).Format("2006-01")}
	}
	var u store.Usage
	for n := range 20 {
		u.Charges = append(u.Charges, store.Charge{Account: month(n), Micros: 6})
	}
	if err := b.store.RecordUsage(u); err != nil {
		t.Fatal(err)
	}
	if err := b.store.UpdateEscrow(month(19), func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Mint(self, 9) }); err != nil {
		t.Fatal(err)
	}
	allSee(t, month(19), 6, boxes...)
	if n, err := a.store.DropSpend("2025-10"); err != nil || n < 6 {
		t.Fatalf("dropped %d, %v", n, err)
	}
	for round := range 2 {
		b.spend(month(0), 1)
		allSee(t, month(0), uint64(7+round), boxes...)
		a.kill() // its order of learning begins anew: everything is compared
		a.start()
		allLive(t, boxes...)
		if err := a.mesh.pull(context.Background(), b.peer()); err != nil {
			t.Fatal(err)
		}
		for n := 14; n < 20; n++ {
			if here, there := a.store.Spent(month(n)), b.store.Spent(month(n)); here != 0 || there != 6 {
				t.Errorf("%d months ago: %d here, %d there", n, here, there)
			}
		}
		if _, total := a.store.Rights(month(19), b.store.ID()); total != 0 {
			t.Errorf("an escrow of %d came back", total)
		}
	}
	if _, err := b.store.DropSpend("2025-10"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are equal", func() bool {
		mine, _ := a.store.MoneyState()
		theirs, _ := b.store.MoneyState()
		return mine == theirs
	})
}

// TestCellsOfOthersAreRefusedFromSignals: over the pull they are taken.
func TestCellsOfOthersAreRefusedFromSignals(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	foreign := crdt.Money{Spend: []crdt.SpendEntry{{Account: budget, By: crdt.SpendID{Store: 99, Generation: 1}, Micros: 50}}}
	raw, err := crdt.EncodeMoney(foreign)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a names who publishes cells of others", func() bool {
		if err := b.mesh.Signal(SignalSpend, raw); err != nil {
			t.Fatal(err)
		}
		return hasAlarm(a, AlarmMisbehaving)
	})
	if got := a.store.Spent(budget); got != 0 {
		t.Fatalf("a counts %d", got)
	}
	if _, err := b.store.MergeMoney(foreign); err != nil {
		t.Fatal(err)
	}
	allSee(t, budget, 50, a)
}

// TestNonsenseAboutSpending is named, and ends nothing.
func TestNonsenseAboutSpending(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	a, b := boxes[0], boxes[1]
	folds, err := crdt.EncodeMoney(crdt.Money{Folds: []crdt.SpendFold{{Account: budget}}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a names b", func() bool {
		for _, raw := range [][]byte{nil, {1}, {1, 0x83}, folds, make([]byte, 1000)} {
			_ = b.mesh.Signal(SignalSpend, raw) // its own validator may refuse it
		}
		return hasAlarm(a, AlarmMisbehaving)
	})
	b.spend(budget, 8)
	allSee(t, budget, 8, boxes...)
}

// TestFirstWriteWaitsForAPeer: with peers that cannot be reached for 3 s, without any
// not at all.
func TestFirstWriteWaitsForAPeer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	lone := newBox(t, "lone")
	if err := lone.mesh.AwaitMoney(ctx); err != nil || !lone.mesh.money.known() {
		t.Error(err)
	}
	boxes := newBoxes(t, 2)
	for _, b := range boxes {
		eventually(t, "both have met", b.mesh.money.known)
	}
	boxes[1].kill()
	boxes[0].kill()
	boxes[0].start()
	if boxes[0].mesh.money.known() {
		t.Fatal("a box that has met nobody says that it knows")
	}
	began := time.Now()
	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	if err := boxes[0].mesh.AwaitMoney(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := boxes[0].mesh.AwaitMoney(ctx); err != nil || time.Since(began) < firstWait {
		t.Errorf("waited %s, %v", time.Since(began), err)
	}
	if !boxes[0].mesh.money.known() {
		t.Error("it would wait again")
	}
}

// TestCountsOfALeftMeshStayThere.
func TestCountsOfALeftMeshStayThere(t *testing.T) {
	t.Parallel()
	boxes := newBoxes(t, 2)
	boxes[0].spend(budget, 4)
	allSee(t, budget, 4, boxes...)
	if err := boxes[1].mesh.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	boxes[1].spend(budget, 1)
	if got := boxes[1].store.Spent(budget); got != 1 {
		t.Errorf("it took %d along", got)
	}
	boxes[0].spend(budget, 1)
	allSee(t, budget, 5, boxes[0])
	if got := boxes[1].store.Spent(budget); got != 1 {
		t.Errorf("it still hears of the other: %d", got)
	}
}
