package store

import (
	"log/slog"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// Badger's own compactors look each 50 ms, each of at least two, whether anything was written or not: on an idle box that is half
// of all that wakes it. So a store in a directory has none of them, and is compacted when it may be due: as often as a memtable
// is full, and when it was opened.

const (
	// compactors is how many tables are compacted at once: half of a small box.
	compactors = 2
	// crowded is how many flushed memtables have to lie there, some of which overlap all others. Below that badger would not
	// do it either; with 15 it takes no more.
	crowded = 6
	// compactAgain is when one that failed is tried again.
	compactAgain = time.Second
)

// compactor compacts one database.
type compactor struct {
	db     *badger.DB
	log    *slog.Logger
	filled <-chan struct{} // a memtable was full
	mu     sync.Mutex      // one compaction at a time: badger's Flatten is not made for two
	stop   chan struct{}
	done   chan struct{}
}

func newCompactor(db *badger.DB, log *slog.Logger, filled <-chan struct{}) *compactor {
	c := &compactor{db: db, log: log, filled: filled, stop: make(chan struct{}), done: make(chan struct{})}
	go c.run()
	return c
}

// end waits for the compaction in progress, which on a full disk may take until there is space.
func (c *compactor) end() {
	if c == nil {
		return
	}
	close(c.stop)
	<-c.done
}

func (c *compactor) run() {
	defer close(c.done)
	// The memtable that was full becomes a table some time after.
	later := time.NewTimer(compactAgain)
	defer later.Stop()
	for {
		if c.look() {
			later.Reset(compactAgain)
		}
		select {
		case <-c.stop:
			return
		case <-c.filled:
			later.Reset(compactAgain)
		case <-later.C:
		}
	}
}

// look compacts when it is due, and says whether it is due again, or still.
func (c *compactor) look() bool {
	if !c.due() {
		return false
	}
	if err := c.flatten(); err != nil {
		c.log.Warn("the store was not compacted", slog.String("error", err.Error()))
	}
	return c.due()
}

func (c *compactor) due() bool { return c.db.Levels()[0].NumTables >= crowded }

// flatten makes all tables one level.
func (c *compactor) flatten() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db.Flatten(compactors)
}
