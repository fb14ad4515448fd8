package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// What boxes spent, and the escrows of hard budgets, are counters, not rows: cells that grow, each with one writer. They
// travel twice. Changes of a box's own cells go to all members as signals, at most each 100 ms: a hint that may be lost.
// After each pull of rows the two sides' sums are compared, and where they differ the asker fetches what changed at the
// peer since the last time; the first time, and whenever the peer was started anew, everything of the accounts whose sums
// differ. A cell is taken from a signal only by its author, over the pull from any member, so that the counts of those who
// are gone stay. Nothing of this depends on whether rows may be exchanged: a counter that is older says nothing wrong.

const (
	// tellEach is the least time between two signals, and between two merges of what was signalled.
	tellEach = 100 * time.Millisecond
	// firstWait is how long the first write to an escrow waits for a peer to tell what it holds for this box.
	firstWait = 3 * time.Second
	// maxHeard bounds the cells that wait to be merged; what is more is pulled.
	maxHeard = 50_000
	// maxMoneyPages bounds the frames of one answer.
	maxMoneyPages = 1 << 14
)

// errMoneyCursor: the peer begins its order of learning anew.
var errMoneyCursor = errors.New("the peer was started anew meanwhile")

// moneyTold is what the first page of a pull says of the sender's counts.
type moneyTold struct {
	Index uint64 `cbor:"1,keyasint"`
	Seq   uint64 `cbor:"2,keyasint,omitempty"`
	Sum   uint64 `cbor:"3,keyasint,omitempty"`
}

// moneyPage is one answer to askMoney.
type moneyPage struct {
	Index uint64 `cbor:"1,keyasint"`
	Next  uint64 `cbor:"2,keyasint,omitempty"`
	More  bool   `cbor:"3,keyasint,omitempty"`
	Money []byte `cbor:"4,keyasint,omitempty"` // crdt.EncodeMoney
	// Again says that the asker's cursor is worth nothing.
	Again bool `cbor:"5,keyasint,omitempty"`
}

// money keeps the counts of all boxes equal.
type money struct {
	m     *Mesh
	news  chan struct{} // own cells changed
	heard chan struct{} // others told of theirs

	mu         sync.Mutex
	generation uint64
	peers      map[peer.ID]moneyPeer
	waiting    []crdt.Money // heard and not merged
	cells      int          // in waiting
	met        chan struct{}
	open       bool // met is closed
}

// moneyPeer is how far this box knows a peer's counts.
type moneyPeer struct {
	cursor store.MoneyCursor
	at     time.Time // when both were compared last
}

func newMoney(m *Mesh) *money {
	y := &money{m: m, news: make(chan struct{}, 1), heard: make(chan struct{}, 1)}
	y.begin(0)
	m.store.OnSpend(func() { wake(y.news) })
	return y
}

// begin forgets what is known of peers. It is called with y locked, or before anybody has y.
func (y *money) begin(generation uint64) {
	y.generation, y.peers, y.waiting, y.cells = generation, map[peer.ID]moneyPeer{}, nil, 0
	y.met, y.open = make(chan struct{}), false
}

// follow notices that the mesh was replaced.
func (y *money) follow(v *view) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if v.generation != y.generation {
		y.begin(v.generation)
	}
}

// AwaitMoney waits, for 3 s at most and once, until a peer has told what it holds for this box: only then it knows what it
// may spend, and a disk that was rolled back is found. A box that has no peers does not wait.
func (m *Mesh) AwaitMoney(ctx context.Context) error {
	y := m.money
	y.mu.Lock()
	met, open, generation := y.met, y.open, y.generation
	y.mu.Unlock()
	if open || m.alone() {
		return nil
	}
	limit := time.NewTimer(firstWait)
	defer limit.Stop()
	select {
	case <-met:
	case <-ctx.Done():
		return fmt.Errorf("wait for a peer's counts: %w", ctx.Err())
	case <-limit.C:
		m.log.Warn("no peer has told what it knows of this box's spending; it goes on with what is on its disk")
		y.letGo(generation)
	}
	return nil
}

// alone says whether this box is the only member.
func (m *Mesh) alone() bool {
	r := m.view.Load().roster
	for p := range r.members {
		if p != m.self && r.active(p) {
			return false
		}
	}
	return true
}

func (y *money) known() bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.open || y.m.alone()
}

// letGo ends the wait of the first write.
func (y *money) letGo(generation uint64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if generation == y.generation && !y.open {
		y.open = true
		close(y.met)
	}
}

// keep notes how far the counts of p are known.
func (y *money) keep(generation uint64, p peer.ID, c store.MoneyCursor) {
	y.mu.Lock()
	if generation == y.generation {
		y.peers[p] = moneyPeer{cursor: c, at: y.m.now()}
	}
	y.mu.Unlock()
	y.letGo(generation)
}

func (y *money) cursor(p peer.ID) store.MoneyCursor {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.peers[p].cursor
}

// forget has the next pull from p compare everything.
func (y *money) forget(p peer.ID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if known, ok := y.peers[p]; ok {
		known.cursor = store.MoneyCursor{}
		y.peers[p] = known
	}
}

// MoneyFrom is since when this box has the counts of every other member: nothing that one of them counted before is missing
// here. False: of some it has nothing yet.
func (m *Mesh) MoneyFrom() (time.Time, bool) {
	r, first := m.view.Load().roster, m.now()
	m.money.mu.Lock()
	defer m.money.mu.Unlock()
	for p := range r.members {
		if p == m.self || !r.active(p) {
			continue
		}
		known, ok := m.money.peers[p]
		if !ok {
			return time.Time{}, false
		}
		if known.at.Before(first) {
			first = known.at
		}
	}
	return first, true
}

// mergeMoney joins what p told, unless the mesh was replaced since.
func (m *Mesh) mergeMoney(generation uint64, p peer.ID, part crdt.Money) error {
	m.swap.RLock()
	defer m.swap.RUnlock()
	if m.view.Load().generation != generation {
		return errMeshReplaced
	}
	if m.store.Passes(part) && !m.absence.believes(p) {
		part = withoutStore(part, m.store.ID())
	}
	rolledBack, err := m.store.MergeMoney(part)
	if rolledBack {
		m.absence.setBack(p)
	}
	for _, e := range part.Escrows {
		m.escrow.PayDebt(e.Account) // it may be news here that there is an escrow
	}
	return err
}

// withoutStore leaves out what one store counted.
func withoutStore(m crdt.Money, id crdt.ReplicaID) (out crdt.Money) {
	for _, f := range m.Folds {
		out.Spend = append(out.Spend, f.Entries()...)
	}
	out.Spend = slices.DeleteFunc(append(out.Spend, m.Spend...), func(e crdt.SpendEntry) bool { return e.By.Store == id })
	for _, p := range m.Escrows {
		for _, c := range p.Cells {
			if c.From != id {
				out.AddEscrow(p.Account, c)
			}
		}
	}
	return out
}

// told is what the first page of an answer says.
func (y *money) told() moneyTold {
	sums, c := y.m.store.MoneyState()
	return moneyTold{Index: c.Index, Seq: c.Seq, Sum: sums.Total()}
}

// pull fetches what p has and this box lacks.
func (y *money) pull(ctx context.Context, p peer.ID, theirs moneyTold) error {
	generation := y.m.view.Load().generation
	sums, _ := y.m.store.MoneyState()
	now, had := store.MoneyCursor{Index: theirs.Index, Seq: theirs.Seq}, y.cursor(p)
	if theirs.Index == 0 || theirs.Sum == sums.Total() || now == had {
		y.keep(generation, p, now)
		return nil
	}
	ask := syncAsk{Kind: askMoney, Index: had.Index, Seq: had.Seq}
	if had.Index != now.Index {
		ask.Sums = sums.Encode()
	}
	if err := y.fetch(ctx, p, generation, ask); err != nil {
		y.forget(p)
		y.m.warden.blame(p, err)
		return fmt.Errorf("pull counts from %s: %w", p, err)
	}
	return nil
}

func (y *money) fetch(ctx context.Context, p peer.ID, generation uint64, ask syncAsk) error {
	v := y.m.view.Load()
	ask.Mesh = v.mesh[:]
	wait, cancel := context.WithTimeout(ctx, syncWait)
	s, err := y.m.open(wait, p, protocolSync)
	cancel()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	if err = y.m.writeSync(s, ask); err == nil {
		err = y.readPages(s, generation)
	}
	if err != nil {
		s.Reset()
		return err
	}
	return s.Close()
}

func (y *money) readPages(s *stream, generation uint64) error {
	for range maxMoneyPages {
		var page moneyPage
		if err := y.m.readSync(s, &page); err != nil {
			return err
		}
		if page.Again {
			return errMoneyCursor
		}
		if len(page.Money) > 0 {
			part, err := crdt.DecodeMoney(page.Money)
			if err != nil {
				return fmt.Errorf("%w: %w", errFrame, err)
			}
			if err := y.m.mergeMoney(generation, s.peer(), part); err != nil {
				return err
			}
		}
		if !page.More {
			y.keep(generation, s.peer(), store.MoneyCursor{Index: page.Index, Seq: page.Next})
			return nil
		}
	}
	return fmt.Errorf("%d pages of counts without an end: %w", maxMoneyPages, errFrame)
}

// answer tells the other side what it lacks.
func (y *money) answer(s *stream, ask syncAsk) error {
	if v := y.m.view.Load(); string(ask.Mesh) != string(v.mesh[:]) {
		return errMeshReplaced
	}
	part, next, ok := y.m.store.MoneySince(store.MoneyCursor{Index: ask.Index, Seq: ask.Seq})
	if len(ask.Sums) > 0 {
		sums, err := crdt.DecodeMoneySums(ask.Sums)
		if err != nil {
			return fmt.Errorf("%w: %w", errFrame, err)
		}
		part, next = y.m.store.MoneyIn(sums)
	} else if !ok {
		return y.m.writeSync(s, moneyPage{Again: true})
	}
	parts := part.Pack(pageBytes)
	for i := range max(len(parts), 1) {
		page := moneyPage{Index: next.Index, More: i < len(parts)-1}
		if !page.More {
			page.Next = next.Seq
		}
		if i < len(parts) {
			var err error
			if page.Money, err = crdt.EncodeMoney(parts[i]); err != nil {
				return err
			}
		}
		if err := y.m.writeSync(s, page); err != nil {
			return err
		}
	}
	return nil
}

// run tells of own changes and merges those of others until ctx ends.
func (y *money) run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		var told store.MoneyCursor
		y.paced(ctx, y.news, func() { told = y.tell(told) })
	})
	both.Go(func() { y.paced(ctx, y.heard, y.merge) })
}

// paced calls do after each wake, at most each 100 ms.
func (y *money) paced(ctx context.Context, wake <-chan struct{}, do func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		do()
		select {
		case <-ctx.Done():
			return
		case <-time.After(tellEach):
		}
	}
}

// tell signals what changed of the own cells.
func (y *money) tell(told store.MoneyCursor) store.MoneyCursor {
	own, now := y.m.store.OwnMoneySince(told)
	for _, part := range own.Pack(MaxSignal) {
		raw, err := crdt.EncodeMoney(part)
		if err == nil {
			err = y.m.Signal(SignalSpend, raw)
		}
		if err != nil {
			y.m.log.Debug("spending not signalled", "err", err)
		}
	}
	return now
}

// validate is that of signals about spending.
func (y *money) validate(author peer.ID, msg *pubsub.Message) pubsub.ValidationResult {
	part, err := crdt.DecodeMoney(msg.GetData()[1:])
	if err != nil || len(part.Folds) > 0 {
		y.m.warden.offence(author, offenceFrame)
		return pubsub.ValidationReject
	}
	if result := y.m.judgeWriter(author, func(by crdt.ReplicaID) bool { return writtenAllBy(part, by) }); result != pubsub.ValidationAccept {
		return result
	}
	msg.ValidatorData = part
	return pubsub.ValidationAccept
}

func writtenAllBy(m crdt.Money, by crdt.ReplicaID) bool {
	for _, e := range m.Spend {
		if e.By.Store != by {
			return false
		}
	}
	for _, p := range m.Escrows {
		for _, c := range p.Cells {
			if c.From != by {
				return false
			}
		}
	}
	return true
}

// take queues what a signal told.
func (y *money) take(from peer.ID, generation uint64, part crdt.Money) {
	n := len(part.Spend)
	for _, p := range part.Escrows {
		n += len(p.Cells)
	}
	y.mu.Lock()
	full := y.cells+n > maxHeard
	if !full && generation == y.generation {
		y.waiting, y.cells = append(y.waiting, part), y.cells+n
	}
	y.mu.Unlock()
	if full {
		y.m.puller.request(from)
		return
	}
	wake(y.heard)
}

// merge writes what was heard, all with one flush of the disk.
func (y *money) merge() {
	y.mu.Lock()
	parts, generation := y.waiting, y.generation
	y.waiting, y.cells = nil, 0
	y.mu.Unlock()
	var all crdt.Money
	for _, part := range parts {
		all.Spend = append(all.Spend, part.Spend...)
		all.Escrows = append(all.Escrows, part.Escrows...)
	}
	if all.Empty() {
		return
	}
	if err := y.m.mergeMoney(generation, y.m.self, all); err != nil {
		y.m.log.Debug("counts of others not merged", "err", err)
		y.m.puller.requestAny()
	}
}
