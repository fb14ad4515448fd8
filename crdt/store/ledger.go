package store

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"llmgw/crdt"
)

const (
	// groupWait and groupSize bound a group commit: what a power cut may take is one group and what is in flight.
	groupWait = 50 * time.Millisecond
	groupSize = 256

	spendSpace  = "spend"
	foldSpace   = "fold"
	escrowSpace = "escrow"
)

// Usage is what one request used and what that costs: a record for reports, and amounts in micro-units for any number of
// accounts.
type Usage struct {
	Record  []byte // kept as it is, at most MaxValueBytes
	Charges []Charge
}

// Charge is one amount. What is not Reserved counts in the account's escrow too, once this store knows of one: then, and
// for what was spent until then when it hears of it.
type Charge struct {
	Account  crdt.Account
	Micros   uint64
	Reserved bool // the escrow has counted it as used already, or will
}

// ledger is the money side of the store: spend cells, and the group commit that writes them with the usage records. What it
// holds, but for the open group, changes under writer and mu, and is read under either: who asks what was spent does not wait for
// the disk. Lock order: writer, then mu.
type ledger struct {
	mu      sync.Mutex
	spend   crdt.Spend                    // what is on disk
	escrows map[crdt.Account]*crdt.Escrow // likewise
	sums    crdt.MoneySums                // of both
	log     moneyLog
	by      crdt.SpendID
	dropped string // spending of months before this one was dropped; empty: of none
	next    uint64 // number of the next usage record
	day     int64  // of the newest usage record, in days since 1970
	open    *group
	most    int // entries of a group
}

// reset forgets the counts of a mesh that was left; index begins another order of learning.
func (l *ledger) reset(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spend, l.escrows, l.sums = crdt.Spend{}, map[crdt.Account]*crdt.Escrow{}, crdt.MoneySums{}
	l.log, l.next, l.day, l.dropped = moneyLog{index: index}, 0, noDay, ""
}

// group is what one commit writes.
type group struct {
	entries []*entry
	timer   *time.Timer
	once    sync.Once
	done    chan struct{}
}

// entry is one caller's part of a group; err is set before the group is done.
type entry struct {
	usage Usage
	err   error
}

// RecordUsage writes a usage record and adds its charges to this store's own cells, both or neither. It returns once they are
// on disk, after 50 ms at most or with the 256th that waits. After an error nothing of it was counted; ErrFailed means
// that this is not known. It MUST NOT be called from within Update.
func (s *Store) RecordUsage(u Usage) error {
	if len(u.Record) > crdt.MaxValueBytes {
		return fmt.Errorf("record usage: %d bytes: %w", len(u.Record), crdt.ErrTooLarge)
	}
	for _, c := range u.Charges {
		if err := accountKey(c.Account, crdt.SpendID{}).Validate(); err != nil {
			return fmt.Errorf("record usage: %w", err)
		}
	}
	e := &entry{usage: u}
	g, full := s.ledger.join(e, s.commitGroup)
	if full {
		s.commitGroup(g)
	}
	<-g.done
	if e.err != nil {
		return fmt.Errorf("record usage: %w", e.err)
	}
	return nil
}

// join adds to the open group, and says whether that made it full.
func (l *ledger) join(e *entry, commit func(*group)) (g *group, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		g := &group{done: make(chan struct{})}
		g.timer = time.AfterFunc(groupWait, func() { commit(g) })
		l.open = g
	}
	g = l.open
	g.entries = append(g.entries, e)
	if len(g.entries) < l.most {
		return g, false
	}
	l.open = nil
	return g, true
}

// close ends the group for newcomers.
func (l *ledger) close(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == g {
		l.open = nil
	}
}

// commitGroup writes a group, once.
func (s *Store) commitGroup(g *group) {
	g.once.Do(func() {
		// In this order: join sets the timer under the lock that close takes.
		s.ledger.close(g)
		g.timer.Stop()
		s.writer.Lock()
		defer s.writer.Unlock()
		defer close(g.done)
		for rest := g.entries; len(rest) > 0; {
			n, err := s.writeUsages(rest)
			if err != nil {
				for _, e := range rest {
					e.err = err
				}
				return
			}
			rest = rest[n:]
		}
	})
}

// writeUsages writes as many as fit into a transaction, all or none. An entry whose charges cannot be counted is left out,
// and knows why. The caller holds writer.
func (s *Store) writeUsages(entries []*entry) (n int, err error) {
	if err := s.writable(); err != nil {
		return 0, err
	}
	b := s.begin()
	defer b.discard()
	next := s.ledger.next
	grown, loose := map[crdt.Account]uint64{}, map[crdt.Account]uint64{}
	for ; n < len(entries) && !b.full(); n++ {
		if entries[n].err = s.ledger.charge(grown, entries[n].usage.Charges); entries[n].err != nil {
			continue
		}
		if err := b.set(usageKey(next), entries[n].usage.Record); err != nil {
			return 0, err
		}
		for _, c := range entries[n].usage.Charges {
			if !c.Reserved {
				loose[c.Account] += c.Micros
			}
		}
		next++
	}
	day, err := s.markDay(b, next > s.ledger.next)
	if err != nil {
		return 0, err
	}
	var cells []crdt.SpendEntry
	for account, micros := range grown {
		e := crdt.SpendEntry{Account: account, By: s.ledger.by, Micros: micros}
		if err := b.set(counterKey(accountKey(e.Account, e.By)), number(e.Micros)); err != nil {
			return 0, err
		}
		cells = append(cells, e)
	}
	owed, err := s.overdraw(b, loose)
	if err != nil {
		return 0, err
	}
	if err := b.commit(); err != nil {
		return 0, err
	}
	s.ledger.mu.Lock()
	s.ledger.takeSpend(cells, crdt.SpendFold{})
	s.ledger.takeEscrow(owed)
	s.ledger.next, s.ledger.day = next, day
	s.ledger.mu.Unlock()
	if len(cells) > 0 {
		s.tellSpend()
	}
	return n, nil
}

// charge adds the charges of one request to what the own cells grow to, all or none. The caller holds writer.
func (l *ledger) charge(grown map[crdt.Account]uint64, charges []Charge) error {
	var one crdt.Spend
	for _, c := range charges {
		if one.Of(c.Account, l.by) == 0 {
			from := max(grown[c.Account], l.spend.Of(c.Account, l.by))
			one.Merge([]crdt.SpendEntry{{Account: c.Account, By: l.by, Micros: from}})
		}
		if _, err := one.Add(c.Account, l.by, c.Micros); err != nil {
			return err
		}
	}
	for _, e := range one.Entries() {
		grown[e.Account] = e.Micros
	}
	return nil
}

// Spent is what all stores spent on an account, as far as is known and on disk here, in micro-units.
func (s *Store) Spent(a crdt.Account) uint64 {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.spend.Total(a)
}

// SpendID is the writer under which this store counts now: its ID, and a generation drawn when it was opened.
func (s *Store) SpendID() crdt.SpendID {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.by
}

// mergeSpend merges as many cells as fit into a transaction. The caller holds writer.
func (s *Store) mergeSpend(entries []crdt.SpendEntry) (n int, err error) {
	if err := s.writable(); err != nil {
		return 0, err
	}
	b := s.begin()
	defer b.discard()
	passed := false
	for ; n < len(entries) && !b.full(); n++ {
		e := entries[n]
		key := accountKey(e.Account, e.By)
		if err := key.Validate(); err != nil {
			return 0, err
		}
		if e.Micros <= s.ledger.spend.Of(e.Account, e.By) {
			continue
		}
		passed = passed || e.By == s.ledger.by
		if err := b.set(counterKey(key), number(e.Micros)); err != nil {
			return 0, err
		}
	}
	by := s.ledger.by
	if passed {
		if by, err = s.newSpendID(); err != nil {
			return 0, err
		}
		s.log.Warn("a peer has counted more of this store's spending than the store itself; it counts on under a new number",
			slog.Uint64("store", uint64(by.Store)))
	}
	if err := b.commit(); err != nil {
		return 0, err
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.takeSpend(entries[:n], crdt.SpendFold{})
	s.ledger.by = by
	return n, nil
}

func (s *Store) newSpendID() (crdt.SpendID, error) {
	generation, err := s.random()
	return crdt.SpendID{Store: s.ID(), Generation: generation}, err
}

// loadLedger reads the spend cells and draws the generation under which this run counts.
func (s *Store) loadLedger() error {
	s.ledger.day = noDay
	halfDropped := map[crdt.Account]bool{}
	err := s.db.View(func(txn *badger.Txn) error {
		if err := s.ledger.loadDropped(txn); err != nil {
			return err
		}
		if err := s.loadFolds(txn); err != nil {
			return err
		}
		err := eachSpendCell(txn, func(e crdt.SpendEntry) {
			if news := s.ledger.spend.Merge([]crdt.SpendEntry{e}); len(news) == 0 {
				halfDropped[e.Account] = true
			}
		})
		if err != nil {
			return err
		}
		if s.ledger.next, err = nextUsage(txn); err != nil {
			return err
		}
		return s.ledger.loadEscrows(txn)
	})
	if err != nil {
		return err
	}
	for a := range halfDropped {
		if err := s.dropFolded(s.ledger.spend.FoldOf(a)); err != nil {
			return err
		}
	}
	if s.ledger.log.index, err = s.random(); err != nil {
		return err
	}
	s.ledger.sumUp()
	s.ledger.by, err = s.newSpendID()
	return err
}

// sumUp makes the sums of all cells.
func (l *ledger) sumUp() {
	for _, e := range l.spend.Entries() {
		// What lies beside a fold counts instead of what the fold has of that writer.
		if had := l.spend.FoldOf(e.Account).Of(e.By); had > 0 {
			l.sums.ToggleSpend(crdt.SpendEntry{Account: e.Account, By: e.By, Micros: had})
		}
		l.sums.ToggleSpend(e)
	}
	for _, f := range l.spend.Folds() {
		for _, e := range f.Entries() {
			l.sums.ToggleSpend(e)
		}
	}
	for a, e := range l.escrows {
		for _, c := range e.Entries() {
			l.sums.ToggleEscrow(a, c)
		}
	}
}

func eachSpendCell(txn *badger.Txn, each func(crdt.SpendEntry)) error {
	prefix := counterPrefix + string(crdt.NewKey(spendSpace))
	return eachValue(txn, prefix, func(name string, value []byte) error {
		parts, err := crdt.Key(strings.TrimPrefix(prefix, counterPrefix) + name).Parts()
		if err != nil || len(parts) != 4 || len(parts[2]) != 8 || len(parts[3]) != 8 || len(value) != 8 {
			return fmt.Errorf("spend cell: %w", ErrCorrupt)
		}
		each(crdt.SpendEntry{
			Account: crdt.Account{Budget: parts[0], Period: parts[1]},
			By:      crdt.SpendID{Store: crdt.ReplicaID(beUint64([]byte(parts[2]))), Generation: beUint64([]byte(parts[3]))},
			Micros:  beUint64(value),
		})
		return nil
	})
}

func counterKey(key crdt.Key) []byte { return append([]byte(counterPrefix), key...) }

func accountKey(a crdt.Account, by crdt.SpendID) crdt.Key {
	return crdt.NewKey(spendSpace, a.Budget, a.Period, string(number(uint64(by.Store))), string(number(by.Generation)))
}
