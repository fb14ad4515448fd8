package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// The rights of a hard budget are divided among the boxes, see crdt.Escrow: each spends its own without asking anybody.
//
// What is spent while the budget is not hard counts all the same once its store knows of the escrow, see store.Charge: by the
// rights of the box as far as there are any, beyond them as a debt. Everybody leaves as many rights alone as the others owe,
// until that is paid: the steward pays when it mints, and the debtor asks as one does that is short. So however often a budget
// is made hard and soft again, and whoever is cut off then, not more is spent of it than was minted, but for debts that have
// not come here.
//
// What a box spends is counted as used on its disk before it is spent. It draws more than one request needs, so that few
// requests wait for the disk: what is drawn and spent by nobody yet is loose. A crash loses the loose rights: they count
// as used until the period ends.

const (
	// drawShare is the part of its rights that a box draws at once.
	drawShare = 16
	// looseShare of all that it has may lie loose; what is more goes back to the disk.
	looseShare = 4
	// lowShare of its fair share: a box with less asks others before a request needs it.
	lowShare = 4
	// sweepEach is the least time between two looks at what is loose or low.
	sweepEach = time.Second
	// dryFor is how long no peer is asked again when none had rights to give.
	dryFor = time.Second
)

// Escrow is this box's part in hard budgets. All methods may be called from any goroutine.
type Escrow struct {
	m    *Mesh
	wake chan struct{}

	mu     sync.Mutex
	purses map[crdt.Account]*purse
}

// purse is what is known of one account beside the disk.
type purse struct {
	turn  chan struct{}  // held by the one who draws, or asks peers
	disk  sync.Mutex     // held while rights are on their way between loose and the disk, where nobody sees them
	users int            // who hold it
	as    crdt.ReplicaID // under which loose was drawn: under another one it is worth nothing
	loose uint64
	dry   time.Time // until when no peer is asked
	low   bool      // peers are to be asked in the background
}

func newEscrow(m *Mesh) *Escrow {
	return &Escrow{m: m, wake: make(chan struct{}, 1), purses: map[crdt.Account]*purse{}}
}

// Escrow is the part of this box in hard budgets.
func (m *Mesh) Escrow() *Escrow { return m.escrow }

// Rights is what this box may spend of a hard budget without asking anybody, in micro-units; below zero by what was
// overdrawn.
func (e *Escrow) Rights(a crdt.Account) int64 {
	return e.onDisk(a) + int64(e.looseOf(a))
}

// onDisk is what is not drawn.
func (e *Escrow) onDisk(a crdt.Account) int64 {
	rights, _ := e.m.store.Rights(a, e.m.store.ID())
	return rights
}

// reserved is what this box leaves alone for what others owe, but for one of them.
func (e *Escrow) reserved(a crdt.Account, but crdt.ReplicaID) int64 {
	sum := uint64(0)
	for id, debt := range e.m.store.Debts(a) {
		if id != but {
			sum = min(sum+debt, crdt.MaxAmount)
		}
	}
	return int64(sum)
}

// free is what this box may spend, or give to some other that owes nothing, without asking anybody.
func (e *Escrow) free(a crdt.Account) int64 { return e.Rights(a) - e.reserved(a, 0) }

// Total is how large a hard budget is, as far as is known here, in micro-units.
func (e *Escrow) Total(a crdt.Account) uint64 {
	_, total := e.m.store.Rights(a, e.m.store.ID())
	return total
}

func (e *Escrow) looseOf(a crdt.Account) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, ok := e.purses[a]; ok {
		return p.count(e.m.store.ID())
	}
	return 0
}

// count is what is loose under the store's identity of now.
func (p *purse) count(as crdt.ReplicaID) uint64 {
	if p.as != as {
		p.as, p.loose = as, 0
	}
	return p.loose
}

// use runs fn with the account's purse, locked.
func (e *Escrow) use(a crdt.Account, fn func(p *purse)) *purse {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.purses[a]
	if !ok {
		p = &purse{turn: make(chan struct{}, 1)}
		e.purses[a] = p
	}
	p.count(e.m.store.ID())
	fn(p)
	return p
}

// Taken is what was set aside of a hard budget for a request.
type Taken struct {
	e       *Escrow
	account crdt.Account
	as      crdt.ReplicaID // the identity under which it counts as used
	micros  uint64
}

// Settle ends a Take once the request is known to have cost used micro-units, which may be more than what was taken. It is
// called once.
func (t *Taken) Settle(used uint64) error {
	if used > t.micros {
		return t.e.Overdraw(t.account, used-t.micros)
	}
	t.e.giveBack(t.account, t.as, t.micros-used)
	return nil
}

// Take reserves micros of a hard budget for a request. It is counted as used, on disk, when Take returns nil; what the
// request did not cost goes back by Taken.Settle. total is how large the budget is set to be: the steward mints what is missing,
// see Mint. When this box is short it asks the live peers, those with the most rights first. crdt.ErrRights: nobody who
// was reached has enough. The first call of a process waits up to 3 s until a peer has told what it holds for this box.
func (e *Escrow) Take(ctx context.Context, a crdt.Account, total, micros uint64) (*Taken, error) {
	if micros > crdt.MaxAmount {
		return nil, fmt.Errorf("take %d micro-units: %w", micros, crdt.ErrTooLarge)
	}
	taken := &Taken{e: e, account: a, micros: micros}
	enough := false
	p := e.use(a, func(p *purse) {
		// What was overdrawn, here or by others, is owed by what is loose as well.
		if enough = p.loose >= micros && e.onDisk(a)+int64(p.loose)-e.reserved(a, 0) >= int64(micros); enough {
			p.loose -= micros
			taken.as = p.as
			return
		}
		p.users++
	})
	if enough {
		return taken, nil
	}
	defer e.use(a, func(p *purse) { p.users-- })
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("take %d micro-units: %w", micros, ctx.Err())
	}
	defer func() { <-p.turn }()
	if err := e.takeInTurn(ctx, p, taken, total); err != nil {
		return nil, fmt.Errorf("take %d micro-units of %s: %w", micros, a.Budget, err)
	}
	e.checkLow(a)
	return taken, nil
}

// takeInTurn draws from the disk, and asks peers when there is not enough.
func (e *Escrow) takeInTurn(ctx context.Context, of *purse, t *Taken, total uint64) error {
	a := t.account
	if err := e.m.AwaitMoney(ctx); err != nil {
		return err
	}
	if err := e.Mint(ctx, a, total); err != nil {
		return err
	}
	err := e.draw(of, t)
	if !errors.Is(err, crdt.ErrRights) || e.isDry(a) {
		return err
	}
	for _, p := range e.givers(a, total) {
		gained, err := e.ask(ctx, p, escrowAsk{Total: total, Need: t.micros}.of(a))
		if err != nil {
			e.m.log.Debug("no rights from a peer", "peer", p.String(), "budget", a.Budget, "err", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !gained {
			continue
		}
		if err := e.draw(of, t); !errors.Is(err, crdt.ErrRights) {
			return err
		}
	}
	if err := e.draw(of, t); !errors.Is(err, crdt.ErrRights) {
		return err // a peer's signal was faster than its answer
	}
	e.use(a, func(p *purse) { p.dry = e.m.now().Add(dryFor) })
	return crdt.ErrRights
}

func (e *Escrow) isDry(a crdt.Account) (dry bool) {
	e.use(a, func(p *purse) {
		left := p.dry.Sub(e.m.now())
		dry = left > 0 && left <= dryFor // else the clock was set
	})
	return dry
}

// draw takes what t needs from what is loose and from the disk, and makes some more loose.
func (e *Escrow) draw(of *purse, t *Taken) error {
	of.disk.Lock()
	defer of.disk.Unlock()
	a, micros := t.account, t.micros
	kept := e.reserved(a, 0)
	if e.Rights(a)-kept < int64(micros) {
		return crdt.ErrRights
	}
	var had, drawn uint64
	var self crdt.ReplicaID
	e.use(a, func(p *purse) { self, had, p.loose = p.as, p.loose, 0 })
	err := error(nil)
	if had < micros {
		err = e.m.store.UpdateEscrow(a, func(id crdt.ReplicaID, es *crdt.Escrow) error {
			if id != self {
				had = 0 // it was drawn under an identity that the store has left
			}
			self = id
			rights := uint64(max(es.Rights(id)-kept, 0))
			drawn = max(micros-had, min(rights, micros-had+rights/drawShare))
			return es.Use(id, drawn)
		})
	}
	if err != nil {
		drawn, micros = 0, 0
	}
	t.as = self
	e.use(a, func(p *purse) {
		if p.as == self {
			p.loose += had + drawn - micros
		}
	})
	return err
}

// giveBack makes loose what was taken under as and not spent. Under an identity that the store has left since it counts as
// used for good: it would make rights from nothing.
func (e *Escrow) giveBack(a crdt.Account, as crdt.ReplicaID, micros uint64) {
	rights := uint64(max(e.onDisk(a), 0))
	much := false
	e.use(a, func(p *purse) {
		if p.as != as {
			return
		}
		p.loose = min(p.loose+min(micros, crdt.MaxAmount), crdt.MaxAmount)
		much = p.loose > (rights+p.loose)/looseShare
	})
	if much {
		wake(e.wake)
	}
}

// Overdraw counts what a request has cost beyond what was taken for it: it was served, so it counts, whether or not there
// are rights for it.
func (e *Escrow) Overdraw(a crdt.Account, micros uint64) error {
	e.use(a, func(p *purse) {
		loose := min(p.loose, micros)
		p.loose, micros = p.loose-loose, micros-loose
	})
	if micros == 0 {
		return nil
	}
	err := e.m.store.UpdateEscrow(a, func(self crdt.ReplicaID, es *crdt.Escrow) error { return es.Overdraw(self, micros) })
	if err != nil {
		return fmt.Errorf("overdraw %s: %w", a.Budget, err)
	}
	e.checkLow(a)
	return nil
}

// checkLow has peers asked in the background when this box has little left.
func (e *Escrow) checkLow(a crdt.Account) {
	if e.low(a) {
		e.askLater(a)
	}
}

// PayDebt has peers asked for rights in the background when this box has spent more of a budget than it had. It does
// not wait.
func (e *Escrow) PayDebt(a crdt.Account) {
	if e.Rights(a) < 0 {
		e.askLater(a)
	}
}

func (e *Escrow) askLater(a crdt.Account) {
	e.use(a, func(p *purse) { p.low = true })
	wake(e.wake)
}

// low says whether this box has less than a quarter of its fair share.
func (e *Escrow) low(a crdt.Account) bool {
	return e.Rights(a) < int64(e.share(a)/lowShare)
}

// share is what each live box would have if all had the same.
func (e *Escrow) share(a crdt.Account) uint64 { return e.Total(a) / uint64(1+len(e.m.links.live())) }

// run keeps what is loose small and what is left enough, until ctx ends.
func (e *Escrow) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		}
		for _, a := range e.accounts() {
			e.sweep(ctx, a)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEach):
		}
	}
}

// accounts lists those with a purse, without those that nobody needs any more.
func (e *Escrow) accounts() []crdt.Account {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []crdt.Account
	for a, p := range e.purses {
		if p.count(e.m.store.ID()) == 0 && p.users == 0 && !p.low {
			delete(e.purses, a)
			continue
		}
		out = append(out, a)
	}
	return out
}

func (e *Escrow) sweep(ctx context.Context, a crdt.Account) {
	rights := uint64(max(e.Rights(a), 0))
	if loose := e.looseOf(a); loose > rights/looseShare {
		e.putBack(a, rights/drawShare)
	}
	low := false
	e.use(a, func(p *purse) { low, p.low = p.low, false })
	if !low || !e.low(a) {
		return
	}
	givers := e.givers(a, 0)
	if len(givers) == 0 {
		return
	}
	need := max(int64(e.share(a)/lowShare)-e.Rights(a), 0)
	gained, err := e.ask(ctx, givers[0], escrowAsk{Need: min(uint64(need), crdt.MaxAmount), Spare: true}.of(a))
	if err != nil && ctx.Err() == nil {
		e.m.log.Debug("no rights from a peer", "peer", givers[0].String(), "budget", a.Budget, "err", err)
	}
	if gained {
		e.PayDebt(a) // the rest of it
	}
}

// putBack makes what is loose beyond keep rights on the disk again.
func (e *Escrow) putBack(a crdt.Account, keep uint64) {
	of := e.use(a, func(p *purse) { p.users++ })
	defer e.use(a, func(p *purse) { p.users-- })
	of.disk.Lock()
	defer of.disk.Unlock()
	var back uint64
	var as crdt.ReplicaID
	e.use(a, func(p *purse) {
		back, as = p.loose-min(p.loose, keep), p.as
		p.loose -= back
	})
	if back == 0 {
		return
	}
	err := e.m.store.UpdateEscrow(a, func(self crdt.ReplicaID, es *crdt.Escrow) error {
		if self != as {
			return nil
		}
		return es.Unuse(self, back)
	})
	if err != nil {
		e.m.log.Warn("unused rights of a budget not put back", "budget", a.Budget, "micros", back, "err", err)
	}
}

// close puts everything back that is loose.
func (e *Escrow) close() {
	for _, a := range e.accounts() {
		e.putBack(a, 0)
	}
}

// givers are the live peers, those with the most rights first, as far as is known here; before them the steward, when the
// budget is set to more than what was minted.
func (e *Escrow) givers(a crdt.Account, total uint64) []peer.ID {
	rank := map[peer.ID]int64{}
	var out []peer.ID
	for _, p := range e.m.links.live() {
		if id, ok := e.m.authors.store(p); ok {
			rank[p], _ = e.m.store.Rights(a, id)
			out = append(out, p)
		}
	}
	if e.Total(a) < total {
		rank[e.m.steward()] = math.MaxInt64
	}
	slices.SortFunc(out, func(x, y peer.ID) int { return cmp.Or(cmp.Compare(rank[y], rank[x]), cmp.Compare(x, y)) })
	return out
}

// Steward is the peer ID of the member that alone mints rights: the one that joined first of those in the roster, dead or
// not. Both sides of a cut agree on it.
func (m *Mesh) Steward() string { return m.steward().String() }

func (m *Mesh) steward() peer.ID {
	r := m.view.Load().roster
	var first *member
	for p, other := range r.members {
		if !r.active(p) {
			continue
		}
		if first == nil || cmp.Or(cmp.Compare(other.record.Joined, first.record.Joined), cmp.Compare(other.id, first.id)) < 0 {
			first = other
		}
	}
	if first == nil {
		return m.self
	}
	return first.id
}

// Mint makes a hard budget as large as total: on a raise the steward mints, on a cut it burns rights, those of others too,
// as far as they are not used. It does nothing on other boxes, and when the budget is that large already; so every box
// may call it whenever a budget is set. While the steward is away, boxes have in a period that begins what they got by Prepare.
func (e *Escrow) Mint(ctx context.Context, a crdt.Account, total uint64) error {
	if total > crdt.MaxAmount {
		return fmt.Errorf("mint %d micro-units: %w", total, crdt.ErrTooLarge)
	}
	if e.m.steward() != e.m.self || e.Total(a) == total && e.reserved(a, 0) == 0 {
		return nil
	}
	if err := e.m.AwaitMoney(ctx); err != nil {
		return fmt.Errorf("mint: %w", err)
	}
	err := e.raise(a, total)
	if err == nil {
		err = e.pay(a)
	}
	if err != nil || e.Total(a) <= total {
		return err
	}
	return e.burn(ctx, a, total)
}

// raise mints what is missing.
func (e *Escrow) raise(a crdt.Account, total uint64) error {
	if e.Total(a) >= total {
		return nil
	}
	err := e.m.store.UpdateEscrow(a, func(self crdt.ReplicaID, es *crdt.Escrow) error {
		return es.Mint(self, total-min(total, es.Total()))
	})
	if err != nil {
		return fmt.Errorf("mint: %w", err)
	}
	return nil
}

// pay gives to all that owe what they lack, as far as this box has it. One that is away for good keeps it: what it spent
// is spent.
func (e *Escrow) pay(a crdt.Account) error {
	if e.reserved(a, 0) == 0 {
		return nil
	}
	e.putBack(a, 0)
	debts := e.m.store.Debts(a)
	err := e.m.store.UpdateEscrow(a, func(self crdt.ReplicaID, es *crdt.Escrow) error {
		for _, to := range slices.Sorted(maps.Keys(debts)) {
			now := min(debts[to], uint64(max(es.Rights(self), 0)))
			if now == 0 || to == self {
				continue
			}
			if err := es.Transfer(self, to, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("pay what others owe: %w", err)
	}
	return nil
}

// burn takes the rights of this box until the budget is no larger than total, and asks for those of others.
func (e *Escrow) burn(ctx context.Context, a crdt.Account, total uint64) error {
	left, err := e.burnOwn(a, total)
	if err != nil || left == 0 || e.isDry(a) {
		return err
	}
	for _, p := range e.givers(a, 0) {
		if gained, err := e.ask(ctx, p, escrowAsk{Need: left}.of(a)); err != nil || !gained {
			continue
		}
		if left, err = e.burnOwn(a, total); err != nil || left == 0 {
			return err
		}
	}
	e.use(a, func(p *purse) { p.dry = e.m.now().Add(dryFor) })
	return ctx.Err() // what is left was used, or is on boxes that are away
}

// burnOwn burns what this box has, and says how much is still too much.
func (e *Escrow) burnOwn(a crdt.Account, total uint64) (left uint64, err error) {
	e.putBack(a, 0)
	kept := e.reserved(a, 0)
	err = e.m.store.UpdateEscrow(a, func(self crdt.ReplicaID, es *crdt.Escrow) error {
		much := es.Total() - min(es.Total(), total)
		now := min(much, uint64(max(es.Rights(self)-kept, 0)))
		left = much - now
		if now == 0 {
			return nil // of one that is overdrawn not even nothing can be taken
		}
		return es.Transfer(self, crdt.Burned, now)
	})
	if err != nil {
		return left, fmt.Errorf("burn: %w", err)
	}
	return left, nil
}
