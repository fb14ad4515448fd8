package store

import (
	"errors"
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

// Charge is one amount.
type Charge struct {
	Account crdt.Account
	Micros  uint64
}

// ledger is the money side of the store: spend cells, and the group commit that writes them with the usage records. What it
// holds, but for the open group, changes under writer and mu, and is read under either: who asks what was spent does not wait for
// the disk. Lock order: writer, then mu.
type ledger struct {
	mu    sync.Mutex
	spend crdt.Spend // what is on disk
	by    crdt.SpendID
	next  uint64 // number of the next usage record
	open  *group
	most  int // entries of a group
}

// reset forgets the counts of a mesh that was left.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spend, l.next = crdt.Spend{}, 0
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
	grown := map[crdt.Account]uint64{}
	for ; n < len(entries) && !b.full(); n++ {
		if entries[n].err = s.ledger.charge(grown, entries[n].usage.Charges); entries[n].err != nil {
			continue
		}
		if err := b.set(usageKey(next), entries[n].usage.Record); err != nil {
			return 0, err
		}
		next++
	}
	var cells []crdt.SpendEntry
	for account, micros := range grown {
		e := crdt.SpendEntry{Account: account, By: s.ledger.by, Micros: micros}
		if err := b.set(counterKey(accountKey(e.Account, e.By)), number(e.Micros)); err != nil {
			return 0, err
		}
		cells = append(cells, e)
	}
	if err := b.commit(); err != nil {
		return 0, err
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.spend.Merge(cells)
	s.ledger.next = next
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

// SpendEntries returns the spend cells in a fixed order, but for those that were folded: what peers pull.
func (s *Store) SpendEntries() []crdt.SpendEntry {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.spend.Entries()
}

// SpendID is the writer under which this store counts now: its ID, and a generation drawn when it was opened.
func (s *Store) SpendID() crdt.SpendID {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.by
}

// MergeSpend joins spend cells of peers. One of this store's own that is higher than here shows that this process itself was
// copied or set back, memory and all: the cell stays as the peer has it, and this store counts on under a new
// generation.
func (s *Store) MergeSpend(entries []crdt.SpendEntry) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if err := s.mergeSpendPages(entries); err != nil {
		return fmt.Errorf("merge spend: %w", err)
	}
	return nil
}

// mergeSpendPages merges in as many transactions as it takes. The caller holds writer.
func (s *Store) mergeSpendPages(entries []crdt.SpendEntry) error {
	for len(entries) > 0 {
		n, err := s.mergeSpend(entries)
		if err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

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
	s.ledger.spend.Merge(entries[:n])
	s.ledger.by = by
	return n, nil
}

func (s *Store) newSpendID() (crdt.SpendID, error) {
	generation, err := s.random()
	return crdt.SpendID{Store: s.ID(), Generation: generation}, err
}

// UsageRecords calls each with the usage records from number from on, oldest first, until it returns false.
func (s *Store) UsageRecords(from uint64, each func(n uint64, record []byte) bool) error {
	return s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(usagePrefix), PrefetchValues: true, PrefetchSize: 100})
		defer it.Close()
		for it.Seek(usageKey(from)); it.Valid(); it.Next() {
			n, err := parseUsageKey(it.Item().Key())
			if err != nil {
				return err
			}
			record, err := it.Item().ValueCopy(nil)
			if err != nil {
				return fmt.Errorf("read usage: %w", err)
			}
			if !each(n, record) {
				return nil
			}
		}
		return nil
	})
}

// loadLedger reads the spend cells and draws the generation under which this run counts.
func (s *Store) loadLedger() error {
	halfDropped := map[crdt.Account]bool{}
	err := s.db.View(func(txn *badger.Txn) error {
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
		s.ledger.next, err = nextUsage(txn)
		return err
	})
	if err != nil {
		return err
	}
	for a := range halfDropped {
		if err := s.dropFolded(s.ledger.spend.FoldOf(a)); err != nil {
			return err
		}
	}
	s.ledger.by, err = s.newSpendID()
	return err
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

// nextUsage is one more than the newest usage record.
func nextUsage(txn *badger.Txn) (uint64, error) {
	it := txn.NewIterator(badger.IteratorOptions{Reverse: true})
	defer it.Close()
	it.Seek(append(usageKey(^uint64(0)), 0xff))
	if !it.ValidForPrefix([]byte(usagePrefix)) {
		return 0, nil
	}
	n, err := parseUsageKey(it.Item().Key())
	return n + 1, err
}

var errUsageKey = errors.New("usage key of another length")

func parseUsageKey(key []byte) (uint64, error) {
	if len(key) != len(usagePrefix)+8 {
		return 0, fmt.Errorf("%w: %w", errUsageKey, ErrCorrupt)
	}
	return beUint64(key[len(usagePrefix):]), nil
}

func usageKey(n uint64) []byte { return append([]byte(usagePrefix), number(n)...) }

func counterKey(key crdt.Key) []byte { return append([]byte(counterPrefix), key...) }

func accountKey(a crdt.Account, by crdt.SpendID) crdt.Key {
	return crdt.NewKey(spendSpace, a.Budget, a.Period, string(number(uint64(by.Store))), string(number(by.Generation)))
}
