package crdt

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrRights: a store has not the rights to spend or to give that much.
var ErrRights = errors.New("not enough rights on this node")

// Burned is where the rights go that a cut of a budget takes back.
const Burned ReplicaID = 0

// EscrowEntry is one cell of an escrow: what From gave To so far, in micro-units. It only grows, and From alone writes it.
//
//	From == To     minted: made by the budget's steward for itself
//	To == Spent    used by From
//	To == Unspent  given back by From of what it had used
//	To == Owed     spent by From without having had the rights
//	otherwise      transferred
type EscrowEntry struct {
	From, To ReplicaID
	Micros   uint64
}

// Spent, Unspent and Owed stand as the receivers of what was used, of what of that was given back because a request cost less
// than was reserved for it, and of what was spent beyond a store's rights. No store has one of these IDs or Burned's.
const (
	Spent   = ^ReplicaID(0)
	Unspent = Spent - 1
	Owed    = Spent - 2
)

// Escrow divides a hard budget among stores, so that each can spend its part without asking anybody, and all together never
// spend more than was minted:
//
//	rights(i) = minted by i + transferred to i - transferred by i - used by i + given back by i - owed by i
//
// What was spent without rights, because the budget was not hard or a request cost more than was reserved for it, makes the
// rights of its spender negative: a debt, which others keep free for it until it is paid, see Debts.
//
// Cells join by the maximum. A store knows its own cells exactly and may lack what others gave it, so what it takes for
// its rights is never too much. The zero Escrow is empty. It is not safe for use by several goroutines.
type Escrow struct {
	cells map[[2]ReplicaID]uint64
}

// Rights is what a store may still spend or give, as far as is known here. Of another store it may be negative as long as
// something that was given to it is not known; of the own one by what was overdrawn.
func (e *Escrow) Rights(of ReplicaID) int64 {
	var in, out uint64
	for cell, micros := range e.cells {
		if cell[1] == of || cell == [2]ReplicaID{of, Unspent} {
			in = plusAtMost(in, micros)
		} else if cell[0] == of {
			out = plusAtMost(out, micros)
		}
	}
	return clamp(in) - clamp(out)
}

func clamp(n uint64) int64 { return int64(min(n, 1<<62)) }

// Mint makes rights, for a new budget or a raise. Only the budget's steward does.
func (e *Escrow) Mint(steward ReplicaID, micros uint64) error {
	return e.grow(steward, steward, micros)
}

// Transfer gives rights of from to another store, or to Burned. It MUST be on disk before to is told.
func (e *Escrow) Transfer(from, to ReplicaID, micros uint64) error {
	if from == to {
		return fmt.Errorf("transfer from %d to itself: %w", from, ErrMalformed)
	}
	return e.spend(from, to, micros)
}

// Use counts what a request of by costs, which has to fit into its rights.
func (e *Escrow) Use(by ReplicaID, micros uint64) error { return e.spend(by, Spent, micros) }

// Unuse gives back some of what by has used.
func (e *Escrow) Unuse(by ReplicaID, micros uint64) error {
	if used := e.usedBy(by); micros > used {
		return fmt.Errorf("give back %d of %d micro-units: %w", micros, used, ErrRights)
	}
	return e.grow(by, Unspent, micros)
}

func (e *Escrow) usedBy(by ReplicaID) uint64 {
	used := e.cells[[2]ReplicaID{by, Spent}]
	return used - min(used, e.cells[[2]ReplicaID{by, Unspent}])
}

// Overdraw counts what was spent without being reserved: it was served, so it counts, by the rights of by as far as there are
// any, the rest as owed.
func (e *Escrow) Overdraw(by ReplicaID, micros uint64) error {
	covered := min(micros, uint64(max(e.Rights(by), 0)))
	if err := e.grow(by, Spent, covered); err != nil {
		return err
	}
	return e.grow(by, Owed, micros-covered)
}

// Counted is what by has spent or reserved as far as the escrow tells.
func (e *Escrow) Counted(by ReplicaID) uint64 {
	return plusAtMost(e.usedBy(by), e.cells[[2]ReplicaID{by, Owed}])
}

// Debts is what each store lacks for what it spent without rights, as far as is known here; spent is what each has spent
// in all. A store of which more is known to be spent than it has counted has not heard of the escrow yet, or never will. Who
// has rights MUST leave as much of them alone: only so all together spend no more than was minted whoever is cut off. A store
// that lacks rights and owes nothing was given some that are not known of here.
func (e *Escrow) Debts(spent map[ReplicaID]uint64) map[ReplicaID]uint64 {
	owes := map[ReplicaID]uint64{}
	for cell, micros := range e.cells {
		if cell[1] == Owed {
			owes[cell[0]] = micros
		}
	}
	for id, all := range spent {
		if counted := e.Counted(id); all > counted {
			owes[id] = plusAtMost(owes[id], all-counted)
		}
	}
	debts := map[ReplicaID]uint64{}
	for id, owed := range owes {
		outside := spent[id] - min(spent[id], e.Counted(id))
		if lacks := clamp(outside) - e.Rights(id); lacks > 0 {
			debts[id] = min(owed, uint64(lacks))
		}
	}
	return debts
}

func (e *Escrow) spend(from, to ReplicaID, micros uint64) error {
	if rights := e.Rights(from); rights < 0 || micros > uint64(rights) {
		return fmt.Errorf("%d of %d micro-units: %w", micros, rights, ErrRights)
	}
	return e.grow(from, to, micros)
}

func (e *Escrow) grow(from, to ReplicaID, micros uint64) error {
	if micros == 0 {
		return nil
	}
	sum, err := plus(e.cells[[2]ReplicaID{from, to}], micros)
	if err != nil {
		return err
	}
	e.put(from, to, sum)
	return nil
}

func (e *Escrow) put(from, to ReplicaID, micros uint64) {
	if e.cells == nil {
		e.cells = map[[2]ReplicaID]uint64{}
	}
	e.cells[[2]ReplicaID{from, to}] = micros
}

// Merge joins cells and returns those that were news.
func (e *Escrow) Merge(entries []EscrowEntry) (news []EscrowEntry) {
	for _, c := range entries {
		if c.Micros > e.cells[[2]ReplicaID{c.From, c.To}] {
			e.put(c.From, c.To, c.Micros)
			news = append(news, c)
		}
	}
	return news
}

// Minted is all that was ever made.
func (e *Escrow) Minted() uint64 { return e.sum(func(c [2]ReplicaID) bool { return c[0] == c[1] }) }

// Total is how large the budget is: what was minted without what was burned.
func (e *Escrow) Total() uint64 {
	minted := e.Minted()
	return minted - min(minted, e.sum(func(c [2]ReplicaID) bool { return c[1] == Burned }))
}

// Used is what all stores have used.
func (e *Escrow) Used() uint64 {
	used := e.sum(func(c [2]ReplicaID) bool { return c[1] == Owed })
	for cell := range e.cells {
		if cell[1] == Spent {
			used = plusAtMost(used, e.usedBy(cell[0]))
		}
	}
	return used
}

func (e *Escrow) sum(wanted func([2]ReplicaID) bool) uint64 {
	sum := uint64(0)
	for cell, micros := range e.cells {
		if wanted(cell) {
			sum = plusAtMost(sum, micros)
		}
	}
	return sum
}

// Clone returns a copy that shares nothing with e.
func (e *Escrow) Clone() Escrow { return Escrow{cells: maps.Clone(e.cells)} }

// Of returns one cell.
func (e *Escrow) Of(from, to ReplicaID) uint64 { return e.cells[[2]ReplicaID{from, to}] }

// Entries returns all cells in a fixed order.
func (e *Escrow) Entries() []EscrowEntry {
	out := make([]EscrowEntry, 0, len(e.cells))
	for cell, micros := range e.cells {
		out = append(out, EscrowEntry{From: cell[0], To: cell[1], Micros: micros})
	}
	slices.SortFunc(out, func(a, b EscrowEntry) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return out
}
