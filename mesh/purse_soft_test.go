package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// payers are boxes that share one budget, each of which takes it for hard or not for itself: an admin's change reaches them
// one by one. A request on a box that takes it for soft goes by what is known to be spent there, as in router/limits.
type payers struct {
	rt      *rapid.T
	all     []*Mesh
	account crdt.Account
	total   uint64
	hard    map[*Mesh]bool
	flying  []payment
}

type payment struct {
	by     *Mesh
	micros uint64
	taken  *Taken // nil: the budget was soft
}

// quickMeshes are n meshes of one whose usage is on disk at once.
func quickMeshes(t *testing.T, n int) []*Mesh {
	t.Helper()
	var all []*Mesh
	for i := range n {
		s, err := store.Open("", store.Options{Disk: store.NewDisk(), Group: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		all = append(all, bareMesh(t, fmt.Sprintf("m%d", i), func(c *Config) { c.Store = s }))
	}
	unite(t, all)
	for _, m := range all {
		m.money.letGo(m.view.Load().generation) // nobody has to tell them anything first
	}
	return all
}

func (p *payers) one(label string) *Mesh { return oneOf(p.rt, p.all, label) }

// begin admits a request, if it is admitted.
func (p *payers) begin() {
	m, n := p.one("payer"), rapid.Uint64Range(1, 400).Draw(p.rt, "cost")
	f := payment{by: m, micros: n}
	if !p.hard[m] {
		if m.store.Spent(p.account)+p.pending(m)+n > p.total {
			return
		}
		p.flying = append(p.flying, f)
		return
	}
	var err error
	switch f.taken, err = m.Escrow().Take(context.Background(), p.account, p.total, n); {
	case err == nil:
		p.flying = append(p.flying, f)
	case !errors.Is(err, crdt.ErrRights):
		p.rt.Fatal(err)
	}
}

func (p *payers) pending(m *Mesh) (sum uint64) {
	for _, f := range p.flying {
		if f.by == m {
			sum += f.micros
		}
	}
	return sum
}

// end settles one request as router/limits does: first the disk, then the rights.
func (p *payers) end() {
	if len(p.flying) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.flying)-1).Draw(p.rt, "request")
	f := p.flying[i]
	p.flying = slices.Delete(p.flying, i, i+1)
	used := f.micros * rapid.Uint64Range(0, 4).Draw(p.rt, "quarters") / 4
	charge := store.Charge{Account: p.account, Micros: used, Reserved: f.taken != nil}
	err := f.by.store.RecordUsage(store.Usage{Record: []byte("u"), Charges: []store.Charge{charge}})
	if err == nil && f.taken != nil {
		err = f.taken.Settle(used)
	}
	if err != nil {
		p.rt.Fatal(err)
	}
}

// tell gives some of what a box knows to another; the rest is lost.
func (p *payers) tell() {
	from, to := p.one("teller"), p.one("hearer")
	all, _ := from.store.MoneyIn(crdt.MoneySums{})
	var part crdt.Money
	arrives := func() bool { return rapid.Bool().Draw(p.rt, "arrives") }
	for _, e := range all.Spend {
		if e.Account == p.account && arrives() {
			part.Spend = append(part.Spend, e)
		}
	}
	for _, escrow := range all.Escrows {
		for _, c := range escrow.Cells {
			if escrow.Account == p.account && arrives() {
				part.AddEscrow(p.account, c)
			}
		}
	}
	p.merge(to, part)
}

func (p *payers) merge(to *Mesh, part crdt.Money) {
	if err := to.mergeMoney(to.view.Load().generation, to.self, part); err != nil {
		p.rt.Fatal(err)
	}
}

// meet lets everybody know everything. Twice: what a box spent it counts when it hears of the escrow.
func (p *payers) meet() {
	for range 2 {
		for _, from := range p.all {
			all, _ := from.store.MoneyIn(crdt.MoneySums{})
			for _, to := range p.all {
				p.merge(to, all)
			}
		}
	}
}

// give moves rights from one to another, who may not hear of it.
func (p *payers) give() {
	from, to := p.one("giver"), p.one("asker")
	if from == to {
		return
	}
	ask := escrowAsk{Store: uint64(to.store.ID()), Need: rapid.Uint64Range(0, 400).Draw(p.rt, "need"), Spare: rapid.Bool().Draw(p.rt, "spare")}
	if err := from.Escrow().give(from.view.Load().generation, ask.of(p.account)); err != nil && !errors.Is(err, errNoGift) {
		p.rt.Fatal(err)
	}
	if rapid.Bool().Draw(p.rt, "comes") {
		raw, err := from.Escrow().ownCells(p.account)
		if err != nil {
			p.rt.Fatal(err)
		}
		part, err := crdt.DecodeMoney(raw)
		if err != nil {
			p.rt.Fatal(err)
		}
		p.merge(to, part)
	}
}

// known joins what all know.
func (p *payers) known() (spend crdt.Spend, escrow crdt.Escrow) {
	for _, m := range p.all {
		all, _ := m.store.MoneyIn(crdt.MoneySums{})
		spend.Merge(all.Spend)
		own := m.store.Escrow(p.account)
		escrow.Merge(own.Entries())
	}
	return spend, escrow
}

// bound is what was spent and what may be spent by requests that were admitted.
func (p *payers) bound() uint64 {
	spend, _ := p.known()
	sum := spend.Total(p.account)
	for _, f := range p.flying {
		sum += f.micros
	}
	return sum
}

// check: what a box spent or reserved counts in the escrow exactly once, from when it knows of it, and in none before.
func (p *payers) check() {
	spend, all := p.known()
	for _, m := range p.all {
		own := m.store.Escrow(p.account)
		counted := own.Counted(m.store.ID())
		want := spend.ByStore(p.account)[m.store.ID()] + m.Escrow().looseOf(p.account)
		for _, f := range p.flying {
			if f.by == m && f.taken != nil {
				want += f.micros
			}
		}
		if len(own.Entries()) == 0 {
			want = 0
		}
		if counted != want {
			p.rt.Fatalf("%s has %d spent, reserved and loose, and %d of it count", m.Name(), want, counted)
		}
	}
	rights := int64(0)
	for _, m := range p.all {
		rights += all.Rights(m.store.ID())
	}
	if got := int64(all.Total()) - int64(all.Used()); got != rights {
		p.rt.Fatalf("rights of %d in all, and %d minted and not used", rights, got)
	}
}

func (p *payers) step(soft bool) {
	switch rapid.IntRange(0, 11).Draw(p.rt, "step") {
	case 0, 1, 2, 3:
		p.begin()
	case 4, 5, 6:
		p.end()
	case 7, 8:
		p.tell()
	case 9:
		p.give()
	case 10:
		p.one("sweeper").Escrow().sweep(context.Background(), p.account)
	case 11:
		if m := p.one("switched"); soft {
			p.hard[m] = !p.hard[m]
		}
	}
	p.check()
}

// TestABudgetThatIsHardAndSoftInTurn: whichever boxes take a budget for hard or soft when, and whatever of what they tell
// is lost: once all take it for hard again, and what was spent until then has come to all, nothing is admitted beyond the
// budget, though from then on nobody may hear of anybody.
func TestABudgetThatIsHardAndSoftInTurn(t *testing.T) {
	t.Parallel()
	all := quickMeshes(t, 3)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		for _, m := range all {
			clear(m.Escrow().purses) // those of other rounds
		}
		p := &payers{rt: rt, all: all, account: crdt.Account{Budget: "b", Period: fmt.Sprint(round)}, total: 1000, hard: map[*Mesh]bool{}}
		for range rapid.IntRange(1, 30).Draw(rt, "steps before") {
			p.step(true)
		}
		p.flying = slices.DeleteFunc(p.flying, func(f payment) bool { return f.taken == nil }) // they cost nothing
		for _, m := range all {
			p.hard[m] = true
		}
		p.meet()
		p.check()
		limit := max(p.total, p.bound())
		for range rapid.IntRange(1, 30).Draw(rt, "steps after") {
			p.step(false)
			if got := p.bound(); got > limit {
				rt.Fatalf("%d spent and reserved of %d", got, limit)
			}
		}
	})
}

// TestWhatABoxThatIsGoneSpentLeavesNoRights: nobody else counts it, and it never comes back to do so.
func TestWhatABoxThatIsGoneSpentLeavesNoRights(t *testing.T) {
	t.Parallel()
	m := bareMesh(t, "a")
	e, ctx := m.Escrow(), context.Background()
	tell := func(micros uint64) {
		t.Helper()
		spent := crdt.SpendEntry{Account: budget, By: crdt.SpendID{Store: 7, Generation: 1}, Micros: micros}
		if err := m.mergeMoney(m.view.Load().generation, m.self, crdt.Money{Spend: []crdt.SpendEntry{spent}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, told := range []uint64{300, 450} { // before it is minted, and after
		tell(told)
		if _, err := e.Take(ctx, budget, 1000, 1001-told); !errors.Is(err, crdt.ErrRights) {
			t.Errorf("with %d spent there are rights of %d: %v", told, e.free(budget), err)
		}
	}
	if got := e.free(budget); got != 550 {
		t.Errorf("%d are left of 1000 when 450 are spent", got)
	}
}
