package crdt

import (
	"cmp"
	"slices"
)

// SpendID is the only writer of a spend cell: a store, and a generation of it that is drawn anew each time the store is
// opened. What a generation wrote is never written on by another one, so that a disk which was rolled back or cloned
// cannot count under a number that was used already.
type SpendID struct {
	Store      ReplicaID
	Generation uint64
}

// Account is a budget in a period, such as "2026-11".
type Account struct{ Budget, Period string }

// SpendEntry is what one writer spent on an account so far, in micro-units. It only grows.
type SpendEntry struct {
	Account Account
	By      SpendID
	Micros  uint64
}

// Spend holds spend cells. They join by the maximum; the sum of the cells of an account is what was spent. The zero Spend is
// empty. It is not safe for use by several goroutines.
type Spend struct {
	cells map[Account]map[SpendID]uint64
}

// Add counts micros as spent by a writer, which MUST be the caller's own. It returns the new state of the cell, or
// ErrExhausted at the end of the range.
func (s *Spend) Add(a Account, by SpendID, micros uint64) (SpendEntry, error) {
	sum, err := plus(s.cells[a][by], micros)
	if err != nil {
		return SpendEntry{}, err
	}
	s.put(a, by, sum)
	return SpendEntry{Account: a, By: by, Micros: sum}, nil
}

func (s *Spend) put(a Account, by SpendID, micros uint64) {
	if s.cells == nil {
		s.cells = map[Account]map[SpendID]uint64{}
	}
	if s.cells[a] == nil {
		s.cells[a] = map[SpendID]uint64{}
	}
	s.cells[a][by] = micros
}

// Merge joins cells and returns those that were news.
func (s *Spend) Merge(entries []SpendEntry) (news []SpendEntry) {
	for _, e := range entries {
		if e.Micros > s.cells[e.Account][e.By] {
			s.put(e.Account, e.By, e.Micros)
			news = append(news, e)
		}
	}
	return news
}

// Of returns the cell of one writer.
func (s *Spend) Of(a Account, by SpendID) uint64 { return s.cells[a][by] }

// Total is what was spent on an account by all.
func (s *Spend) Total(a Account) uint64 {
	sum := uint64(0)
	for _, micros := range s.cells[a] {
		sum = plusAtMost(sum, micros)
	}
	return sum
}

// Entries returns all cells in a fixed order.
func (s *Spend) Entries() []SpendEntry {
	var out []SpendEntry
	for account, cells := range s.cells {
		for by, micros := range cells {
			out = append(out, SpendEntry{Account: account, By: by, Micros: micros})
		}
	}
	slices.SortFunc(out, func(a, b SpendEntry) int {
		return cmp.Or(cmp.Compare(a.Account.Budget, b.Account.Budget), cmp.Compare(a.Account.Period, b.Account.Period),
			cmp.Compare(a.By.Store, b.By.Store), cmp.Compare(a.By.Generation, b.By.Generation))
	})
	return out
}
