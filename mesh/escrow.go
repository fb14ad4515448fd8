package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// escrowWait bounds one question for rights, both ways and the giver's disk.
const escrowWait = 5 * time.Second

// leastGift is the part of the budget that is given at least, when the giver has it: one in a hundred.
const leastGift = 100

// escrowAsk asks the other side for rights of a hard budget.
type escrowAsk struct {
	Mesh   []byte `cbor:"1,keyasint"`
	Budget []byte `cbor:"2,keyasint"`
	Period []byte `cbor:"3,keyasint"`
	Store  uint64 `cbor:"4,keyasint"`           // who is to have them
	Need   uint64 `cbor:"5,keyasint,omitempty"` // micro-units, for a request that waits
	// Spare says that nothing waits: the giver keeps at least as much as it gives.
	Spare bool `cbor:"6,keyasint,omitempty"`
	// Total is how large the budget is set to be by the asker's catalog, when the steward is asked, who mints by its own; 0: it
	// does not matter.
	Total uint64 `cbor:"7,keyasint,omitempty"`
}

// of names the account.
func (a escrowAsk) of(account crdt.Account) escrowAsk {
	a.Budget, a.Period = []byte(account.Budget), []byte(account.Period)
	return a
}

func (a escrowAsk) account() crdt.Account {
	return crdt.Account{Budget: string(a.Budget), Period: string(a.Period)}
}

func (a escrowAsk) check() error {
	if len(a.Budget) > crdt.MaxNameBytes || len(a.Period) > crdt.MaxNameBytes || max(a.Need, a.Total) > crdt.MaxAmount {
		return fmt.Errorf("question for %d of a budget named by %d bytes: %w", a.Need, len(a.Budget)+len(a.Period), errFrame)
	}
	return nil
}

// escrowAnswer has all cells of the account that the giver writes, as they are on its disk: crdt.EncodeMoney.
type escrowAnswer struct {
	Cells []byte `cbor:"1,keyasint,omitempty"`
	// Differs says that nothing is given, for the giver's catalog has the budget as large as Total.
	Differs bool   `cbor:"2,keyasint,omitempty"`
	Total   uint64 `cbor:"3,keyasint,omitempty"`
}

// errNoGift: the giver has nothing to give.
var errNoGift = errors.New("no rights to give")

// totalsError: asker and steward have a budget in different sizes, as one of them has not heard of a change yet.
type totalsError struct{ asker, steward uint64 }

func (e *totalsError) Error() string {
	return fmt.Sprintf("the budget is %d micro-units by the asker's catalog and %d by the steward's", e.asker, e.steward)
}

// ask has a peer give rights to this box. It says whether there are more than before. Where the two do not agree how large
// the budget is both pull from each other, and it asks once more.
func (e *Escrow) ask(ctx context.Context, p peer.ID, ask escrowAsk) (gained bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, escrowWait)
	defer cancel()
	before := e.Rights(ask.account())
	err = e.askOnce(ctx, p, ask)
	if differ := new(totalsError); errors.As(err, &differ) {
		if err := errors.Join(e.m.pull(ctx, p), e.m.offerTo(ctx, p)); err != nil {
			return false, fmt.Errorf("ask %s for rights: %w: %w", p, differ, err)
		}
		if total, known := e.set(ask.account()); known {
			ask.Total = total
		}
		if ask.Total > 0 {
			err = e.askOnce(ctx, p, ask)
		}
	}
	if err != nil {
		return false, fmt.Errorf("ask %s for rights: %w", p, err)
	}
	return e.Rights(ask.account()) > before, nil
}

// set is how large the budget is by this box's own catalog, if it can tell.
func (e *Escrow) set(a crdt.Account) (total uint64, known bool) {
	if e.m.cfg.Budget == nil {
		return 0, false
	}
	total, err := e.m.cfg.Budget(a)
	if err != nil {
		e.m.log.Warn("it is not known how large a budget is", "budget", a.Budget, "err", err)
	}
	return min(total, crdt.MaxAmount), err == nil
}

func (e *Escrow) askOnce(ctx context.Context, p peer.ID, ask escrowAsk) error {
	s, err := e.m.open(ctx, p, protocolEscrow)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	if err := e.askOver(s, ask); err != nil {
		s.Reset()
		e.m.warden.blame(p, err)
		return err
	}
	return s.Close()
}

func (e *Escrow) askOver(s *stream, ask escrowAsk) error {
	v := e.m.view.Load()
	ask.Mesh, ask.Store = v.mesh[:], uint64(e.m.store.ID())
	if err := e.m.writeSync(s, ask); err != nil {
		return err
	}
	var answer escrowAnswer
	if err := e.m.readSync(s, &answer); err != nil {
		return err
	}
	if answer.Differs {
		return &totalsError{asker: ask.Total, steward: answer.Total}
	}
	if len(answer.Cells) == 0 {
		return nil
	}
	money, err := crdt.DecodeMoney(answer.Cells)
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	h, err := s.greet()
	if err != nil {
		return err
	}
	if !tellsOf(money, ask.account(), crdt.ReplicaID(h.Store)) {
		e.m.warden.offence(s.peer(), offenceWriter)
		return fmt.Errorf("rights of others than the giver: %w", errFrame)
	}
	return e.m.mergeMoney(v.generation, s.peer(), money)
}

// tellsOf says whether there is nothing but cells of one escrow that one store wrote.
func tellsOf(m crdt.Money, a crdt.Account, by crdt.ReplicaID) bool {
	return len(m.Spend)+len(m.Folds) == 0 && len(m.Escrows) == 1 && m.Escrows[0].Account == a && writtenAllBy(m, by)
}

// serveEscrow answers one question for rights.
func (m *Mesh) serveEscrow(s *stream) {
	if err := m.escrow.answer(s); err != nil {
		m.refuse(s, protocolEscrow, err)
		return
	}
	s.Close()
}

func (e *Escrow) answer(s *stream) error {
	var ask escrowAsk
	if err := e.m.readSync(s, &ask); err != nil {
		return err
	}
	if err := ask.check(); err != nil {
		return err
	}
	h, err := s.greet()
	if err != nil {
		return err
	}
	v := e.m.view.Load()
	switch {
	case string(ask.Mesh) != string(v.mesh[:]):
		return errMeshReplaced
	case ask.Store != h.Store || crdt.ReplicaID(ask.Store) == e.m.store.ID():
		return fmt.Errorf("question for another store's sake: %w", errFrame)
	case e.m.Serving() != nil:
		return e.m.Serving()
	case !e.m.money.known():
		return e.m.writeSync(s, escrowAnswer{}) // what it may give it does not know for sure yet
	}
	err = e.give(v.generation, ask)
	if errors.Is(err, errNoGift) {
		return e.m.writeSync(s, escrowAnswer{})
	}
	if differ := new(totalsError); errors.As(err, &differ) {
		return e.m.writeSync(s, escrowAnswer{Differs: true, Total: differ.steward})
	}
	if err != nil {
		return err
	}
	cells, err := e.ownCells(ask.account())
	if err != nil {
		return err
	}
	return e.m.writeSync(s, escrowAnswer{Cells: cells})
}

// give moves rights to the asker's store. They are on disk when it returns nil.
func (e *Escrow) give(generation uint64, ask escrowAsk) error {
	a := ask.account()
	e.m.swap.RLock()
	defer e.m.swap.RUnlock()
	if e.m.view.Load().generation != generation {
		return errMeshReplaced
	}
	if err := e.follow(a, ask.Total); err != nil {
		return err
	}
	want := max(e.Total(a)/leastGift, 2*ask.Need)
	if e.onDisk(a) < int64(want) {
		e.putBack(a, 0)
	}
	kept := e.reserved(a, crdt.ReplicaID(ask.Store))
	err := e.m.store.UpdateEscrow(a, func(self crdt.ReplicaID, es *crdt.Escrow) error {
		rights := uint64(max(es.Rights(self)-kept, 0))
		if ask.Spare {
			rights /= 2
		}
		if rights == 0 || crdt.ReplicaID(ask.Store) == self {
			return errNoGift
		}
		return es.Transfer(self, crdt.ReplicaID(ask.Store), min(want, rights))
	})
	if err != nil {
		return fmt.Errorf("give rights: %w", err)
	}
	return nil
}

// follow has the steward make a budget as large as its own catalog has it: it may serve no request of that budget itself. It
// never goes by what an asker says: one that lies, or has not heard of a raise, must not burn rights. A cut takes what is here.
func (e *Escrow) follow(a crdt.Account, stated uint64) error {
	if stated == 0 || e.m.steward() != e.m.self {
		return nil
	}
	switch own, known := e.set(a); {
	case !known:
		return nil
	case own != stated:
		return &totalsError{asker: stated, steward: own}
	case own < e.Total(a):
		_, err := e.burnOwn(a, own)
		return err
	default:
		return errors.Join(e.raise(a, own), e.pay(a))
	}
}

// ownCells encodes the cells of an escrow that this box's store writes.
func (e *Escrow) ownCells(a crdt.Account) ([]byte, error) {
	self, known := e.m.store.ID(), e.m.store.Escrow(a)
	own := slices.DeleteFunc(known.Entries(), func(c crdt.EscrowEntry) bool { return c.From != self })
	return crdt.EncodeMoney(crdt.Money{Escrows: []crdt.EscrowPart{{Account: a, Cells: own}}})
}
