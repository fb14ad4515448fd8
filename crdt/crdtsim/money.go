package crdtsim

import (
	"errors"
	"fmt"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// hard is a budget that is divided beforehand.
var hard = crdt.Account{Budget: "hard", Period: "2026-11"}

// soft is a budget that is counted, in one of its months.
func soft(period int) crdt.Account {
	return crdt.Account{Budget: "soft", Period: fmt.Sprintf("%d-%02d", 2024+period/12, 1+period%12)}
}

// history is how many months had passed before the run.
const history = 12

// period is the one of now.
func (s *sim) period() int { return history + s.report.Steps/30 }

// remember has the first box spend in each month of the history: old months are dropped only where there are many.
func (s *sim) remember(b *box) error {
	for month := range history {
		if err := s.charge(b, soft(month), uint64(1+month)); err != nil {
			return err
		}
	}
	return nil
}

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
	return s.charge(b, account, micros)
}

func (s *sim) charge(b *box, account crdt.Account, micros uint64) error {
	if _, err := s.spent.Add(account, b.store.SpendID(), micros); err != nil {
		return err
	}
	delete(b.gone, account) // what comes late is its own
	return b.store.RecordUsage(store.Usage{Charges: []store.Charge{{Account: account, Micros: micros}}})
}

// drop forgets the months before this one but for those that are always kept, on one box, whatever the others have.
func (s *sim) drop(b *box) error {
	had := map[crdt.Account]bool{}
	for p := range s.period() {
		had[soft(p)] = b.store.Spent(soft(p)) > 0
	}
	accounts, err := b.store.DropSpend(soft(s.period()).Period)
	if accounts == 0 || err != nil {
		return err
	}
	s.count("months dropped")
	if b.gone == nil {
		b.gone = map[crdt.Account]bool{}
	}
	for a := range had {
		if had[a] && b.store.Spent(a) == 0 {
			b.gone[a] = true
		}
	}
	return nil
}

// checkGone: nothing that a disk dropped comes back to it from others.
func (s *sim) checkGone(b *box) {
	for p := range s.period() {
		a := soft(p)
		if micros := b.store.Spent(a); b.gone[a] && micros > 0 {
			s.violate("%s has %d of %s again, which it dropped", b.name, micros, a.Period)
		}
	}
}

// dropEverywhere has all boxes drop the same months, and meet once more: nothing of them may come back.
func (s *sim) dropEverywhere() error {
	for _, b := range s.boxes {
		if err := s.drop(b); err != nil {
			return err
		}
	}
	return s.syncAll()
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
	s.checkGone(to)
	return nil
}

// isDropped says whether a month is older than those that are always kept: the newest 13 in which anything was spent, the
// hard budget's among them. A month in which nothing was spent makes it no older than it looks.
func (s *sim) isDropped(period int) bool {
	const always = 13
	newer := 1 // the hard budget's
	for p := period + 1; p <= s.period(); p++ {
		if s.spent.Total(soft(p)) > 0 {
			newer++
		}
	}
	return newer >= always
}

// checkMoney: nothing that a surviving store counted is missing or counted twice, and nobody overspent.
func (s *sim) checkMoney() error {
	sums, _ := s.boxes[0].store.MoneyState()
	for _, b := range s.boxes {
		if own, _ := b.store.MoneyState(); own != sums {
			s.violate("%s and %s sum up their counts differently", b.name, s.boxes[0].name)
		}
		for p := range s.period() + 1 {
			got, want := b.store.Spent(soft(p)), s.spent.Total(soft(p))
			if got != want && !(got == 0 && s.isDropped(p)) {
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
