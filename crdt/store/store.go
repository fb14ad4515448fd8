// Package store keeps llmgw's rows on disk. It owns the badger database of one node: rows, the local log that peers
// pull from, peers' cursors, local meta values, the clock's ceiling and the identity of the store itself.
//
// # Layout
//
//	a/<key>         cells of a row that wait aside: crdt.EncodeRow
//	c/<key>         counter (8 bytes): a spend or escrow cell; the key has budget, period and the writer. Or the folded
//	                spending of a budget in a closed period: crdt.EncodeFolds
//	g/<seq>         local log: block of entries, under the sequence number (8 bytes, big endian) of the first; see logblock.go
//	m/sys/<name>    the store's own: schema, ID, index ID, clock ceiling, uptime, running reset or swap, ...
//	m/user/<name>   meta values, never shared
//	n/<key>         row of a re-seed in progress: crdt.EncodeRow
//	o/<key>         outbox: what of the row was written here and no peer is known to have; see unsent
//	p/<peer>        how far this store has pulled from a peer
//	r/<key>         row: its sequence number (8 bytes), then crdt.EncodeRow
//	t/<key>         tombstone: uptime (8 bytes) at which this store learned of it
//	u/<number>      usage record
//
// # Writing
//
// One writer at a time. Local writes and remote items go through the same function: merge with what is there, and when
// that changed the row, give it the next sequence number and an entry at the end of the log, which makes the one that it had
// there stale. A write is on disk (synced) before it is returned, before it is served to a peer by Since, and before watchers and the hook of
// local writes hear of it. After a failed sync nobody can say what is on disk, so the store takes no further
// writes and says why; reopening settles it.
//
// The function given to Update runs with the writer held: it MUST NOT write to the store but through its Tx, nor close
// or reset it. Reading is allowed. Readers never wait for a writer.
//
// # Ownership
//
// All methods may be called from any goroutine. The hook runs in the goroutine of Update, after the writer is let go;
// hooks of concurrent updates have no order among each other. Watches coalesce and never block a writer.
package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"golang.org/x/sys/unix"

	"llmgw/crdt"
)

// Options is what a store gets passed in. Zero fields get the system's clock and entropy, and no log.
type Options struct {
	Now     func() time.Time
	Entropy io.Reader
	Log     *slog.Logger
	// Disk, when set, keeps the store in memory instead of in a directory.
	Disk *Disk
	// Reserve is how many bytes have to be free on the disk for a write to be taken; 0 stands for DefaultReserve.
	Reserve int64
	// Group is how many usage records one commit takes at most; 0 stands for 256. With 1 none waits for another.
	Group int
	// Free tells how many bytes are free on the disk of a directory. Without it the system is asked.
	Free func(dir string) (int64, error)
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Entropy == nil {
		o.Entropy = rand.Reader
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Reserve == 0 {
		o.Reserve = DefaultReserve
	}
	if o.Group == 0 {
		o.Group = groupSize
	}
	if o.Free == nil && o.Disk == nil {
		o.Free = freeSpace
	}
	return o
}

// Store is an open database.
type Store struct {
	db      *badger.DB
	disk    *Disk // nil: a directory
	dir     string
	reserve int64
	free    func(string) (int64, error) // nil: memory
	mapped  *mappedDir                  // nil: memory
	log     *slog.Logger
	entropy io.Reader
	now     func() time.Time
	flush   func() error // makes the last commit durable; tests let it fail

	// Written under writer and state, and read by anybody.
	id    atomic.Uint64
	index atomic.Uint64
	seq   atomic.Uint64

	// writer is held by the one write in progress. Lock order: writer, then state.
	writer sync.Mutex
	failed error       // set once a sync failed; guarded by writer, like the next ones
	list   unix.Stat_t // the list of tables when it was last allocated ahead
	large  bool        // the commit has a value that badger keeps in its value log
	tx     *batch      // of the Update in progress
	saved  crdt.HLC    // ceiling of the clock that is on disk
	clock  *crdt.Clock
	times  times
	outbox map[crdt.Key]uint64 // rows in the outbox and the log entries that tell of them
	raised map[crdt.Key]bool   // those that this process made or deleted
	opened uint64              // end of the log when the store was opened
	blocks logBlocks

	// state is held for reading by each read, for writing by Reset and Close. No function of a
	// caller runs under it, so that callers cannot nest it.
	state  sync.RWMutex
	closed bool // written under writer and state

	hook    atomic.Pointer[func([]crdt.Item)]
	spent   atomic.Pointer[func()]
	watches watchers
	leads   leads
	digest  digest
	ledger  ledger

	restored  atomic.Bool // overdue whatever the peers say: restored or rolled back
	reseeding atomic.Bool
	behind    atomic.Int64  // see SetBehind
	asideFrom atomic.Uint64 // lowest stamp that waits aside; the highest of all when none does. Written under writer
}

// Open opens the store in dir and makes both when they do not exist. It reads every row once. Errors: *LockedError when
// another process has it open, *NewerSchemaError when a newer llmgw wrote it, *CorruptError when it is damaged, ErrNoSpace when
// the disk is full. None of them changes what is stored in dir.
func Open(dir string, o Options) (*Store, error) {
	o = o.withDefaults()
	db, mapped, err := openBadger(dir, o)
	if err != nil {
		return nil, err
	}
	s := &Store{
		db: db, mapped: mapped, disk: o.Disk, dir: dir, reserve: o.Reserve, free: o.Free, log: o.Log, entropy: o.Entropy, now: o.Now,
		ledger: ledger{most: o.Group}, outbox: map[crdt.Key]uint64{}, raised: map[crdt.Key]bool{},
	}
	s.flush = s.flushLog
	if mapped != nil {
		// Without it, which every write asks for, reads go on.
		if err := mapped.keepSpare(); err != nil {
			o.Log.Warn("no space can be kept for the store", slog.String("error", err.Error()))
		}
	}
	if err := s.load(dir, o); err != nil {
		if errors.Is(err, ErrCorrupt) {
			err = &CorruptError{Dir: dir, Err: err}
		}
		return nil, errors.Join(fmt.Errorf("open store: %w", err), s.Close())
	}
	return s, nil
}

// openBadger opens the database, and has the files allocated that it maps; that is nil in memory.
func openBadger(dir string, o Options) (*badger.DB, *mappedDir, error) {
	if o.Disk != nil {
		db, err := o.Disk.open(badgerOptions("", badgerLog{log: o.Log}))
		return db, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("open store: %w", err)
	}
	if err := roomToOpen(dir, o.Free); err != nil {
		return nil, nil, fmt.Errorf("open store: %w", err)
	}
	if err := checkFiles(dir); err != nil {
		return nil, nil, err
	}
	mapped, err := watchMaps(dir, o.Log)
	if err != nil {
		return nil, nil, fmt.Errorf("open store: %w", err)
	}
	var lost atomic.Bool
	db, err := tryBadger(badgerOptions(dir, badgerLog{log: o.Log, lost: &lost}).WithNumCompactors(0))
	if err != nil {
		mapped.leave()
		return nil, nil, openError(dir, err)
	}
	if lost.Load() {
		return nil, nil, errors.Join(&CorruptError{Dir: dir, Err: errTableLost}, closeBadger(db, nil, mapped))
	}
	mapped.compactor = newCompactor(db, o.Log, mapped.filled)
	return db, mapped, nil
}

// tryBadger turns a panic of badger over what it finds in the directory into an error.
func tryBadger(o badger.Options) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("badger: %v", r)
		}
	}()
	return badger.Open(o)
}

const (
	memTableBytes = 16 << 20
	// vlogBytes is what badger makes a value log long. It begins a new one after half of that, so that the largest row of a
	// transaction still fits.
	vlogBytes = 6 << 20
)

// badgerOptions sizes badger for thousands of small rows on a box whose memory belongs to engines.
func badgerOptions(dir string, log badgerLog) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(log).
		// A damaged table shows when the store is opened, not when a row of it is first read.
		WithChecksumVerificationMode(options.OnTableRead).
		WithMetricsEnabled(false).
		// Each commit is followed by one flush, which costs less than a sync per log file and entry.
		WithSyncWrites(false).
		WithMemTableSize(memTableBytes).
		WithNumMemtables(2).
		WithBlockCacheSize(32 << 20).
		WithCompactL0OnClose(true).
		// Only rows over 1 MiB go to the value log; the default would map a file of 2 GiB for them.
		WithValueLogFileSize(vlogBytes / 2).
		WithNumCompactors(compactors).
		// One writer at a time: there are no conflicts to detect.
		WithDetectConflicts(false)
}

// ID is the identity of this store as a writer. It is made with the store, and changes when the store was restored, rolled
// back or copied, see Rotate and NoteAck: a caller that told it to somebody asks again.
func (s *Store) ID() crdt.ReplicaID { return crdt.ReplicaID(s.id.Load()) }

// IndexID is random per database and log: a cursor of a peer counts only under the same IndexID.
func (s *Store) IndexID() uint64 { return s.index.Load() }

// Sequence is the number of the newest log entry that is on disk; 0 when the log is empty.
func (s *Store) Sequence() uint64 { return s.seq.Load() }

// OnLocalWrite sets the function that is called after each Update with exactly the cells that it wrote.
// The function may read and write the store; Update returns only after it.
func (s *Store) OnLocalWrite(fn func([]crdt.Item)) { s.hook.Store(&fn) }

// Close waits for the write in progress and closes the database. Later calls of any method give ErrClosed. ErrNoSpace means that
// the disk is full: everything is on it, but not where it belongs. The next Open sets that right; until there is space, or the
// process ends, the directory stays locked.
func (s *Store) Close() error {
	s.writer.Lock()
	defer s.writer.Unlock()
	s.state.Lock()
	defer s.state.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if err := closeBadger(s.db, s.disk, s.mapped); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// view runs a read against one consistent state of the database.
func (s *Store) view(fn func(txn *badger.Txn) error) error {
	s.state.RLock()
	defer s.state.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return s.db.View(fn)
}

// commit makes a transaction durable. The caller holds writer.
func (s *Store) commit(txn *badger.Txn) error {
	if err := txn.Commit(); err != nil {
		return fmt.Errorf("commit: %w", badgerError(err))
	}
	return s.sync()
}

// flushLog is one flush of the disk.
func (s *Store) flushLog() error {
	if s.mapped != nil && !s.large {
		if known, err := s.mapped.syncLog(); known {
			return err
		}
	}
	s.large = false
	return s.db.Sync()
}

// sync follows each commit before the next one: it reaches only the newest memtable, so a commit that waited
// while another one filled that memtable up would be missed.
func (s *Store) sync() error {
	if err := s.flush(); err != nil {
		s.failed = fmt.Errorf("%w: %w", ErrFailed, err)
		return s.failed
	}
	return nil
}
