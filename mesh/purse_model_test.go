package mesh

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"llmgw/crdt"
)

// spenders are boxes that share one hard budget, with what the test knows of it.
type spenders struct {
	rt      *rapid.T
	all     []*Mesh
	account crdt.Account
	total   uint64
	spent   uint64 // by requests that have ended
	flying  []flight
	lost    bool // rights of some store are gone with its identity
}

type flight struct {
	by    *Mesh
	taken *Taken
}

func (s *spenders) one(label string) *Mesh { return oneOf(s.rt, s.all, label) }

func (s *spenders) amount(label string) uint64 { return rapid.Uint64Range(0, 400).Draw(s.rt, label) }

// take gets what fits into the rights, and nothing else.
func (s *spenders) take() {
	m, n := s.one("taker"), s.amount("cost")
	e := m.Escrow()
	fits := e.free(s.account) >= int64(n)
	cut := e.Total(s.account) > s.total // the steward burns before it spends
	taken, err := e.Take(context.Background(), s.account, s.total, n)
	switch {
	case err != nil && !errors.Is(err, crdt.ErrRights):
		s.rt.Fatal(err)
	case fits && err != nil && !cut:
		s.rt.Fatalf("%d fits into %d and is refused: %v", n, e.Rights(s.account), err)
	case !fits && err == nil && m.steward() != m.self: // else it may have minted
		s.rt.Fatalf("%d does not fit and is taken", n)
	case err == nil && e.Rights(s.account) < 0:
		s.rt.Fatalf("took %d, which leaves %d", n, e.Rights(s.account))
	case err == nil:
		s.flying = append(s.flying, flight{m, taken})
	}
}

// settle ends a request, which may have cost more than was taken for it.
func (s *spenders) settle() {
	if len(s.flying) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.flying)-1).Draw(s.rt, "flight")
	f := s.flying[i]
	s.flying = slices.Delete(s.flying, i, i+1)
	used := f.taken.micros * rapid.Uint64Range(0, 5).Draw(s.rt, "quarters") / 4
	if err := f.taken.Settle(used); err != nil {
		s.rt.Fatal(err)
	}
	s.spent += used
}

// give moves rights from one to another; the cells may get lost on their way.
func (s *spenders) give() {
	from, to := s.one("giver"), s.one("asker")
	if from == to {
		return
	}
	ask := escrowAsk{Store: uint64(to.store.ID()), Need: s.amount("need"), Spare: rapid.Bool().Draw(s.rt, "spare")}.of(s.account)
	before := from.Escrow().Rights(s.account)
	err := from.Escrow().give(from.view.Load().generation, ask)
	after := from.Escrow().Rights(s.account)
	switch {
	case err != nil && !errors.Is(err, errNoGift):
		s.rt.Fatal(err)
	case err != nil && after != before, before >= 0 && after < 0:
		s.rt.Fatalf("rights of %d became %d by a gift: %v", before, after, err)
	case err == nil && ask.Spare && after < before-after:
		s.rt.Fatalf("gave %d of %d although nothing waits for it", before-after, before)
	}
	if err == nil && rapid.Bool().Draw(s.rt, "arrives") {
		s.deliver(from, to)
	}
}

func (s *spenders) deliver(from, to *Mesh) {
	raw, err := from.Escrow().ownCells(s.account)
	if err != nil {
		s.rt.Fatal(err)
	}
	part, err := crdt.DecodeMoney(raw)
	if err != nil {
		s.rt.Fatal(err)
	}
	if !tellsOf(part, s.account, from.store.ID()) {
		s.rt.Fatal("the giver's own cells are not taken for its own")
	}
	if err := to.mergeMoney(to.view.Load().generation, from.self, part); err != nil {
		s.rt.Fatal(err)
	}
}

// meet lets everybody know all cells, those of identities that are gone too.
func (s *spenders) meet() {
	for _, to := range s.all {
		if err := to.mergeMoney(to.view.Load().generation, to.self, s.everything()); err != nil {
			s.rt.Fatal(err)
		}
	}
}

func (s *spenders) everything() crdt.Money {
	var part crdt.EscrowPart
	for _, m := range s.all {
		known := m.store.Escrow(s.account)
		part.Account, part.Cells = s.account, append(part.Cells, known.Entries()...)
	}
	return crdt.Money{Escrows: []crdt.EscrowPart{part}}
}

// resize has the steward make the budget larger or smaller.
func (s *spenders) resize() {
	s.total = rapid.Uint64Range(0, 3000).Draw(s.rt, "total")
	for _, m := range s.all { // all may call it, one acts
		if err := m.Escrow().Mint(context.Background(), s.account, s.total); err != nil {
			s.rt.Fatal(err)
		}
	}
}

// check compares what all boxes hold together with what the test knows.
func (s *spenders) check() {
	var known crdt.Escrow
	for _, part := range s.everything().Escrows {
		known.Merge(part.Cells)
	}
	reserved, loose, rights := s.spent, uint64(0), int64(0)
	for _, f := range s.flying {
		reserved += f.taken.micros
	}
	for _, m := range s.all {
		loose += m.Escrow().looseOf(s.account)
	}
	counted := map[crdt.ReplicaID]bool{}
	for _, c := range known.Entries() {
		for _, id := range []crdt.ReplicaID{c.From, c.To} {
			if id < crdt.Owed && id != crdt.Burned && !counted[id] {
				counted[id] = true
				rights += known.Rights(id)
			}
		}
	}
	if used := known.Used(); used < reserved+loose || !s.lost && used != reserved+loose {
		s.rt.Fatalf("%d count as used: %d reserved or spent, %d loose", used, reserved, loose)
	}
	if got := int64(known.Total()) - int64(known.Used()); got != rights {
		s.rt.Fatalf("rights of %d in all, and %d minted and not used", rights, got)
	}
}

// TestRightsAreConserved: over any sequence of takes, ends, gifts that arrive or do not,
// raises, cuts and lost identities nothing is spent that was not minted, but for what
// requests cost beyond their reservation, and no right gets lost but with an identity.
func TestRightsAreConserved(t *testing.T) {
	t.Parallel()
	all := bareMeshes(t, 3)
	for _, m := range all {
		m.money.letGo(m.view.Load().generation) // nobody has to tell them anything first
	}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		for _, m := range all {
			clear(m.Escrow().purses) // those of other rounds
		}
		s := &spenders{rt: rt, all: all, account: crdt.Account{Budget: "b", Period: fmt.Sprint(round)}}
		s.resize()
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 12).Draw(rt, "step") {
			case 0, 1, 2, 3:
				s.take()
			case 4, 5, 6:
				s.settle()
			case 7, 8:
				s.give()
			case 9:
				s.meet()
			case 10:
				m := s.one("sweeper")
				m.Escrow().sweep(context.Background(), s.account)
			case 11:
				s.resize()
			case 12:
				if err := s.one("rotated").store.Rotate(); err != nil {
					rt.Fatal(err)
				}
				s.lost = true
			}
			s.check()
		}
		s.meet()
		for len(s.flying) > 0 {
			s.settle()
			s.check()
		}
		for _, m := range all {
			m.Escrow().close()
			if loose := m.Escrow().looseOf(s.account); loose != 0 {
				rt.Fatalf("%d loose after the end", loose)
			}
		}
		s.check()
	})
}

// TestCutOfAnOverdrawnBudget: the steward has nothing to burn, and others may.
func TestCutOfAnOverdrawnBudget(t *testing.T) {
	t.Parallel()
	e := bareMesh(t, "a").Escrow()
	ctx := context.Background()
	if err := errors.Join(e.Mint(ctx, budget, 100), e.Overdraw(budget, 120)); err != nil {
		t.Fatal(err)
	}
	if err := e.Mint(ctx, budget, 50); err != nil {
		t.Errorf("cut: %v", err)
	}
	if e.Rights(budget) != -20 || e.Total(budget) != 100 || !e.isDry(budget) {
		t.Errorf("rights %d of %d", e.Rights(budget), e.Total(budget))
	}
	if err := e.Mint(ctx, budget, 150); err != nil || e.Rights(budget) != 30 {
		t.Errorf("raise: %v, rights %d", err, e.Rights(budget))
	}
}

// TestOverdraftIsOwedByWhatIsLoose: what a request cost beyond its reservation is not spent
// once more from what another one gave back.
func TestOverdraftIsOwedByWhatIsLoose(t *testing.T) {
	t.Parallel()
	e := bareMesh(t, "a").Escrow()
	take := func(micros uint64) (*Taken, error) { return e.Take(context.Background(), budget, 100, micros) }
	first, err := take(70)
	if err != nil {
		t.Fatal(err)
	}
	second, err := take(30)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Settle(90), second.Settle(0)); err != nil {
		t.Fatal(err)
	}
	if got := e.Rights(budget); got != 10 {
		t.Fatalf("rights %d", got)
	}
	if _, err := take(11); !errors.Is(err, crdt.ErrRights) {
		t.Errorf("took 11 of 10: %v", err)
	}
	if _, err := take(10); err != nil {
		t.Errorf("took 10 of 10: %v", err)
	}
	if got := e.Rights(budget); got != 0 {
		t.Errorf("rights of %d are left", got)
	}
}

// TestTakeWaitsForWhatIsPutBack: while a gift or a cut moves loose rights to the disk they
// are neither here nor there, and a request of that moment waits for them.
func TestTakeWaitsForWhatIsPutBack(t *testing.T) {
	t.Parallel()
	b := newBox(t, "b") // on a real disk, which takes its time
	e := b.mesh.Escrow()
	generation := b.mesh.view.Load().generation
	for round := range 20 {
		a := crdt.Account{Budget: "b", Period: fmt.Sprint(round)}
		taken, err := e.Take(context.Background(), a, 1000, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if err := taken.Settle(0); err != nil {
			t.Fatal(err)
		}
		gone := make(chan error, 1)
		if round%2 == 0 {
			go func() { gone <- e.give(generation, escrowAsk{Store: 7, Spare: true}.of(a)) }()
		} else {
			go func() { _, err := e.burnOwn(a, 1000); gone <- err }()
		}
		for e.looseOf(a) == 1000 {
			runtime.Gosched()
		}
		if _, err := e.Take(context.Background(), a, 1000, 900); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if err := <-gone; err != nil && !errors.Is(err, errNoGift) {
			t.Fatal(err)
		}
	}
}

// TestLooseRightsStayWithTheirIdentity: takes that race with a change of the store's
// identity make no rights under the new one.
func TestLooseRightsStayWithTheirIdentity(t *testing.T) {
	t.Parallel()
	m := bareMesh(t, "a")
	e := m.Escrow()
	for round := range 100 {
		a := crdt.Account{Budget: "b", Period: fmt.Sprint(round)}
		taken, err := e.Take(context.Background(), a, 1000, 500)
		if err == nil {
			err = taken.Settle(100)
		}
		if err != nil {
			t.Fatal(err)
		}
		rotated := make(chan error, 1)
		go func() { rotated <- m.store.Rotate() }()
		for range 5 {
			if taken, err := e.Take(context.Background(), a, 1000, 450); err == nil {
				if err := taken.Settle(0); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := <-rotated; err != nil {
			t.Fatal(err)
		}
		if got := e.Rights(a); got > 0 {
			t.Fatalf("round %d: rights of %d under an identity that got none", round, got)
		}
	}
}

// TestFairShare: how much is low goes by the boxes that are live.
func TestFairShare(t *testing.T) {
	m := bareMesh(t, "a")
	e := m.Escrow()
	if err := e.Mint(context.Background(), budget, 1200); err != nil {
		t.Fatal(err)
	}
	for live, want := range []uint64{1200, 600, 400, 300} {
		if live > 0 {
			m.speaksTo(peerOf(t, byte(live)), crdt.ReplicaID(live))
		}
		if got := e.share(budget); got != want {
			t.Errorf("with %d others: %d, want %d", live, got, want)
		}
	}
	if e.low(budget) {
		t.Error("one that has everything is low")
	}
	if err := e.Overdraw(budget, 1126); err != nil { // 74 are left, a quarter of 300 is 75
		t.Fatal(err)
	}
	if !e.low(budget) || !e.purses[budget].low {
		t.Error("one that has less than a quarter of its share does not ask")
	}
}

// TestGiversInOrder: those who have most first, the steward before all when the budget is
// to grow, and nobody whose store is not known.
func TestGiversInOrder(t *testing.T) {
	m := bareMesh(t, "a")
	e := m.Escrow()
	rich, poor, unknown := peerOf(t, 1), peerOf(t, 2), peerOf(t, 3)
	for p, id := range map[string]crdt.ReplicaID{string(rich): 11, string(poor): 12, string(unknown): 13} {
		for _, q := range []byte{1, 2, 3} {
			if string(peerOf(t, q)) == p {
				m.speaksTo(peerOf(t, q), id)
			}
		}
	}
	m.authors.forget(unknown)
	cells := []crdt.EscrowEntry{{From: 12, To: 12, Micros: 10}, {From: 11, To: 11, Micros: 500}}
	if _, err := m.store.MergeMoney(crdt.Money{Escrows: []crdt.EscrowPart{{Account: budget, Cells: cells}}}); err != nil {
		t.Fatal(err)
	}
	if got := e.givers(budget, 0); len(got) != 2 || got[0] != rich || got[1] != poor {
		t.Errorf("givers %v, want %v then %v", got, rich, poor)
	}
}
