package crdtsim

import (
	"errors"
	"fmt"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// hard is a budget that is divided beforehand.
var hard = crdt.Account{Budget: "hard", Period: "2026-11"}

// soft is a budget that is counted, in one of its periods.
func soft(period int) crdt.Account {
	return crdt.Account{Budget: "soft", Period: fmt.Sprint("p", period)}
}

// period is the one of now.
func (s *sim) period() int { return s.report.Steps / 30 }

// minted is what the first box makes of the hard budget.
const minted = 1000

func (s *sim) mint(b *box) error {
	return b.store.UpdateEscrow(hard, func(self crdt.ReplicaID, e *crdt.Escrow) error { return e.Mint(self, minted) })
}

// spend counts what a request cost; now and then late, in a period that is closed.
func (s *sim) spend(b *box) error {
	account, micros := soft(s.period()), uint64(1+s.rand.IntN(20))
	if s.rand.IntN(4) == 0 {
		account = soft(s.rand.IntN(s.period() + 1))
	}
	if _, err := s.spent.Add(account, b.store.SpendID(), micros); err != nil {
		return err
	}
	return b.store.RecordUsage(store.Usage{Charges: []store.Charge{{Account: account, Micros: micros}}})
}

// fold closes the books of former periods, on one box, whatever the others have.
func (s *sim) fold(b *box) error {
	now := soft(s.period())
	accounts, err := b.store.FoldSpend(func(a crdt.Account) bool { return a != now })
	if accounts > 0 {
		s.count("period folded")
	}
	return err
}

// useRights spends of the hard budget, or gives rights to another box. A box does so only after it has met a peer, which
// tells what it has of this box's cells; twins are stopped by an alarm.
func (s *sim) useRights(b *box) error {
	if !b.met || b.twin || b.doubtful {
		return nil
	}
	to, micros := s.box(), uint64(s.rand.IntN(120))
	err := b.store.UpdateEscrow(hard, func(self crdt.ReplicaID, e *crdt.Escrow) error {
		if other := to.store.ID(); other != self && s.rand.IntN(2) == 0 {
			return e.Transfer(self, other, micros)
		}
		if s.rand.IntN(4) == 0 {
			if err := e.Unuse(self, micros/2); !errors.Is(err, crdt.ErrRights) {
				return err
			}
		}
		return e.Use(self, micros)
	})
	if err != nil && !errors.Is(err, crdt.ErrRights) {
		return err
	}
	e := b.store.Escrow(hard)
	if rights := e.Rights(b.store.ID()); rights < 0 {
		s.violate("%s has rights of %d", b.name, rights)
	}
	return nil
}

// tellCounts lets to know all counters that from knows: as the mesh does it, what is new since the last time, or what differs.
func (s *sim) tellCounts(to, from *box) error {
	money, next, known := from.store.MoneySince(to.money[from.name])
	if !known {
		sums, _ := to.store.MoneyState()
		money, next = from.store.MoneyIn(sums)
	}
	for _, part := range money.Pack(pageBytes) {
		rolledBack, err := to.store.MergeMoney(part)
		if rolledBack {
			s.count("escrow of a rolled back store noticed")
		}
		if err != nil {
			return err
		}
	}
	to.money[from.name] = next
	return nil
}

// checkMoney: nothing that a surviving store counted is missing or counted twice, and nobody overspent.
func (s *sim) checkMoney() error {
	sums, _ := s.boxes[0].store.MoneyState()
	for _, b := range s.boxes {
		if own, _ := b.store.MoneyState(); own != sums {
			s.violate("%s and %s sum up their counts differently", b.name, s.boxes[0].name)
		}
		for p := range s.period() + 1 {
			if got, want := b.store.Spent(soft(p)), s.spent.Total(soft(p)); got != want {
				s.violate("%s counts %d as spent in period %d, which is %d", b.name, got, p, want)
			}
		}
		e := b.store.Escrow(hard)
		if used := e.Used(); used > minted {
			s.violate("%s: %d of %d were used", b.name, used, minted)
		}
		for _, c := range e.Entries() {
			if rights := e.Rights(c.From); rights < 0 {
				s.violate("%s: store %d has rights of %d", b.name, c.From, rights)
			}
		}
		report, err := b.store.Verify()
		if err != nil {
			return fmt.Errorf("verify %s: %w", b.name, err)
		}
		for _, problem := range report.Problems {
			s.violate("%s: %s", b.name, problem)
		}
	}
	return nil
}
