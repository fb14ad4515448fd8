package crdt

import (
	"cmp"
	"slices"
)

// MaxFold bounds the writers of a folded account. More stay as cells beside it.
const MaxFold = 8 << 10

// SpendCell is what one writer spent on the account that the cell belongs to.
type SpendCell struct {
	By     SpendID
	Micros uint64
}

// SpendFold is a closed account as one entry: its cells in order of their writers, each once, and nothing else. It is the
// same state as its cells, just smaller (some 25 bytes for a writer, where a cell takes hundreds in memory and on disk), so that
// nobody has to agree on when an account is folded: folds join with folds and with cells, in any order. They keep the
// writers because a cell that comes late can only so be told from one that was counted.
type SpendFold struct {
	Account Account
	Cells   []SpendCell
}

// folded is a fold with its sum, as Spend keeps it.
type folded struct {
	cells []SpendCell
	total uint64
}

func fold(cells []SpendCell) folded {
	f := folded{cells: cells}
	for _, c := range cells {
		f.total = plusAtMost(f.total, c.Micros)
	}
	return f
}

func (f folded) of(by SpendID) uint64 {
	at, known := slices.BinarySearchFunc(f.cells, by, func(c SpendCell, by SpendID) int { return c.By.compare(by) })
	if !known {
		return 0
	}
	return f.cells[at].Micros
}

func (by SpendID) compare(o SpendID) int {
	return cmp.Or(cmp.Compare(by.Store, o.Store), cmp.Compare(by.Generation, o.Generation))
}

// join merges two lists in order of writers.
func join(a, b []SpendCell) []SpendCell {
	out := make([]SpendCell, 0, max(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch order := a[0].By.compare(b[0].By); {
		case order < 0:
			out, a = append(out, a[0]), a[1:]
		case order > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			out = append(out, SpendCell{By: a[0].By, Micros: max(a[0].Micros, b[0].Micros)})
			a, b = a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// Fold takes the cells of an account into one entry and returns it. It returns false when no cells lie beside the entry, or
// too many for one. Spending goes on being counted after it.
func (s *Spend) Fold(a Account) (SpendFold, bool) {
	if len(s.cells[a]) == 0 {
		return SpendFold{}, false
	}
	cells := make([]SpendCell, 0, len(s.cells[a]))
	for by, micros := range s.cells[a] {
		cells = append(cells, SpendCell{By: by, Micros: micros})
	}
	slices.SortFunc(cells, func(a, b SpendCell) int { return a.By.compare(b.By) })
	return s.takeFold(SpendFold{Account: a, Cells: cells})
}

// MergeFold joins an entry of another. It returns the entry as it is now and true when it changed.
func (s *Spend) MergeFold(f SpendFold) (SpendFold, bool) {
	had := s.folds[f.Account].cells
	now, taken := s.takeFold(f)
	if !taken {
		s.Merge(f.Entries())
		return now, false
	}
	return now, !slices.Equal(had, now.Cells)
}

func (s *Spend) takeFold(f SpendFold) (SpendFold, bool) {
	joined := join(s.folds[f.Account].cells, f.Cells)
	if len(joined) > MaxFold {
		return SpendFold{}, false
	}
	if s.folds == nil {
		s.folds = map[Account]folded{}
	}
	now := fold(joined)
	s.folds[f.Account] = now
	for by, micros := range s.cells[f.Account] {
		if micros <= now.of(by) {
			delete(s.cells[f.Account], by)
		}
	}
	if len(s.cells[f.Account]) == 0 {
		delete(s.cells, f.Account)
	}
	return SpendFold{Account: f.Account, Cells: joined}, true
}

// Cells returns what lies beside the fold of one account, in no order.
func (s *Spend) Cells(a Account) []SpendEntry {
	out := make([]SpendEntry, 0, len(s.cells[a]))
	for by, micros := range s.cells[a] {
		out = append(out, SpendEntry{Account: a, By: by, Micros: micros})
	}
	return out
}

// FoldOf returns the fold of one account; it has no cells when there is none.
func (s *Spend) FoldOf(a Account) SpendFold { return SpendFold{Account: a, Cells: s.folds[a].cells} }

// Folds returns the folded accounts in a fixed order. They share memory with s and MUST NOT be changed.
func (s *Spend) Folds() []SpendFold {
	out := make([]SpendFold, 0, len(s.folds))
	for account, f := range s.folds {
		out = append(out, SpendFold{Account: account, Cells: f.cells})
	}
	slices.SortFunc(out, func(a, b SpendFold) int { return a.Account.Compare(b.Account) })
	return out
}

// Accounts returns the accounts of which cells lie beside the folds, in a fixed order.
func (s *Spend) Accounts() []Account {
	out := make([]Account, 0, len(s.cells))
	for account := range s.cells {
		out = append(out, account)
	}
	slices.SortFunc(out, Account.Compare)
	return out
}

// Drop forgets all that was spent on an account. It is the caller's to see that it does not come back.
func (s *Spend) Drop(a Account) {
	delete(s.cells, a)
	delete(s.folds, a)
}

// Compare orders accounts by their names.
func (a Account) Compare(o Account) int {
	return cmp.Or(cmp.Compare(a.Budget, o.Budget), cmp.Compare(a.Period, o.Period))
}

// Of returns what the fold has of one writer.
func (f SpendFold) Of(by SpendID) uint64 { return folded{cells: f.Cells}.of(by) }

// Entries is the fold as cells.
func (f SpendFold) Entries() []SpendEntry {
	out := make([]SpendEntry, len(f.Cells))
	for i, c := range f.Cells {
		out[i] = SpendEntry{Account: f.Account, By: c.By, Micros: c.Micros}
	}
	return out
}
