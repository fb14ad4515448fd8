package limits

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
)

// Policy says how heads agree on limits of a minute.
type Policy string

// Policies; see the package comment.
const (
	Share Policy = "share"
	Owner Policy = "owner"
	Loose Policy = "loose"
)

// Head is a member that may admit requests: it neither left nor is it stopping, and
// it was heard in the last ten minutes. Its part of a limit is kept for it.
type Head struct {
	Peer string // peer ID
	// Silent heads are not heard now: they may be admitting on the other side of a cut.
	Silent bool
}

// Book tells whom a key counts for and what things cost. It is asked for requests
// and must not block.
type Book interface {
	Project(id string) (catalog.Project, bool)
	Tenant(id string) (catalog.Tenant, bool)
	// Price is of the model of a provider, else of the provider, else of the model.
	Price(model, provider string) (catalog.Price, bool)
}

// Ledger keeps what was spent; see store.Store.
type Ledger interface {
	RecordUsage(store.Usage) error
	Spent(crdt.Account) uint64
}

// Rights divides hard budgets among the nodes. Its methods may be called at once.
type Rights interface {
	// Take sets amount of the account's budget aside, asking peers if need be. An
	// error means that none is left within reach; nothing is set aside then. settle
	// is called once, when used of it, or more, was spent.
	Take(ctx context.Context, a crdt.Account, budget, amount uint64) (settle func(used uint64), err error)
	// Spent tells that something was spent of which nothing was taken: the ledger has
	// counted it, and there may be a debt to pay if the budget is hard somewhere, or was.
	Spent(a crdt.Account)
}

// Asker carries a question to a head and its answer back; Answer is called there.
type Asker interface {
	Ask(ctx context.Context, peer string, question []byte) ([]byte, error)
}

// Config of a Limiter. Self, Peer, Book and Ledger are needed.
type Config struct {
	Self crdt.Incarnation // MUST never have counted before
	Peer string           // own peer ID
	// Now is the mesh's time; nil: the system's.
	Now func() time.Time
	// Heads lists the heads of the mesh, this one included; nil: there are no
	// others. It is asked by Tick.
	Heads func() []Head
	// Publish gives a message to all other heads, TakeSignal being called there;
	// it must not block and may lose messages. Nil: there are none.
	Publish func(msg []byte)
	Book    Book
	Ledger  Ledger
	Policy  func() Policy // nil: Share
	Asker   Asker         // for Owner; nil: Share stands in
	Rights  Rights        // nil: hard budgets are as others
	Log     *slog.Logger
}

// Limiter decides what may run. All methods may be called at once.
type Limiter struct {
	cfg   Config
	stats counters

	mu      sync.Mutex
	meters  map[crdt.Meter]*meter
	pending map[crdt.Account]uint64 // set aside by requests of this head
	changed map[*meter]struct{}     // with counts that were not told yet
	heads   heads
	repeat  time.Time // when all counts are told again
	outputs learned
	// recording counts usages on their way to the disk; ended tells that one is there.
	recording int
	ended     *sync.Cond
}

// New makes a Limiter that has counted nothing yet. Its Tick has to be called every
// 100 ms.
func New(cfg Config) *Limiter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Policy == nil {
		cfg.Policy = func() Policy { return Share }
	}
	if cfg.Heads == nil {
		self := []Head{{Peer: cfg.Peer}}
		cfg.Heads = func() []Head { return self }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &Limiter{
		cfg: cfg, meters: map[crdt.Meter]*meter{}, pending: map[crdt.Account]uint64{}, changed: map[*meter]struct{}{},
		outputs: learned{},
	}
	l.ended = sync.NewCond(&l.mu)
	l.heads.reset(cfg.Peer, cfg.Self)
	l.heads.set(cfg.Heads(), cfg.Now())
	return l
}

// Close waits until what was settled is on disk. Requests that settle later are
// recorded all the same.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.recording > 0 {
		l.ended.Wait()
	}
}

// Taken is how much of a limit is used and held over all heads, as far as is known
// here: in the minute back from now, or of parallel requests now.
func (l *Limiter) Taken(level, id string, metric catalog.Metric) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, ok := l.meters[crdt.Meter{Limit: level, Subject: id, Metric: string(metric)}]
	if !ok {
		return 0
	}
	return uint64(l.read(m, l.cfg.Now()).taken + 0.5)
}

// counters of a Limiter.
type counters struct {
	admitted, released, settled atomic.Uint64
	sent, taken, bad            atomic.Uint64
	asked, unanswered           atomic.Uint64
	lost                        atomic.Uint64
	refused                     sync.Map // [2]string{level, metric} -> *atomic.Uint64
}

func (c *counters) refuse(level, metric string) {
	n, ok := c.refused.Load([2]string{level, metric})
	if !ok {
		n, _ = c.refused.LoadOrStore([2]string{level, metric}, new(atomic.Uint64))
	}
	n.(*atomic.Uint64).Add(1)
}

// Stats is what a Limiter did since it was made, and what it holds now.
type Stats struct {
	Admitted, Released, Settled uint64
	Refused                     map[[2]string]uint64 // by level and metric
	Sent, Taken, Bad            uint64               // messages; Bad could not be read
	Asked, Unanswered           uint64               // questions to owners
	Lost                        uint64               // usage records that could not be written
	Meters                      int
	InFlight                    int // grants that have not ended
}

// Stats reads the counters.
func (l *Limiter) Stats() Stats {
	c := &l.stats
	s := Stats{
		Admitted: c.admitted.Load(), Released: c.released.Load(), Settled: c.settled.Load(), Refused: map[[2]string]uint64{},
		Sent: c.sent.Load(), Taken: c.taken.Load(), Bad: c.bad.Load(), Asked: c.asked.Load(), Unanswered: c.unanswered.Load(),
		Lost: c.lost.Load(),
	}
	c.refused.Range(func(key, n any) bool {
		s.Refused[key.([2]string)] = n.(*atomic.Uint64).Load()
		return true
	})
	s.InFlight = int(s.Admitted - s.Released - s.Settled)
	l.mu.Lock()
	s.Meters = len(l.meters)
	l.mu.Unlock()
	return s
}
