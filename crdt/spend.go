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
//
// Closed accounts may be folded, see Fold: then cells holds only what came later than the fold.
type Spend struct {
	cells map[Account]map[SpendID]uint64
	folds map[Account]folded
}

// Add counts micros as spent by a writer, which MUST be the caller's own. It returns the new state of the cell, or
// ErrExhausted at the end of the range.
func (s *Spend) Add(a Account, by SpendID, micros uint64) (SpendEntry, error) {
	sum, err := plus(s.Of(a, by), micros)
	if err != nil {
		return SpendEntry{}, err
	}
	if sum > 0 {
		s.put(a, by, sum)
	}
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
		if e.Micros > s.Of(e.Account, e.By) {
			s.put(e.Account, e.By, e.Micros)
			news = append(news, e)
		}
	}
	return news
}

// Of returns the cell of one writer.
func (s *Spend) Of(a Account, by SpendID) uint64 { return max(s.cells[a][by], s.folds[a].of(by)) }

// Total is what was spent on an account by all.
func (s *Spend) Total(a Account) uint64 {
	f := s.folds[a]
	sum := f.total
	for by, micros := range s.cells[a] {
		sum = plusAtMost(sum, micros-min(micros, f.of(by)))
	}
	return sum
}

// ByStore is what each store spent on an account, under all its generations.
func (s *Spend) ByStore(a Account) map[ReplicaID]uint64 {
	f := s.folds[a]
	out := map[ReplicaID]uint64{}
	for _, c := range f.cells {
		out[c.By.Store] = plusAtMost(out[c.By.Store], c.Micros)
	}
	for by, micros := range s.cells[a] {
		out[by.Store] = plusAtMost(out[by.Store], micros-min(micros, f.of(by)))
	}
	return out
}

// Entries returns the cells beside the folds in a fixed order.
func (s *Spend) Entries() []SpendEntry {
	var out []SpendEntry
	for account, cells := range s.cells {
		for by, micros := range cells {
			out = append(out, SpendEntry{Account: account, By: by, Micros: micros})
		}
	}
	slices.SortFunc(out, func(a, b SpendEntry) int {
		return cmp.Or(a.Account.Compare(b.Account), a.By.compare(b.By))
	})
	return out
}
