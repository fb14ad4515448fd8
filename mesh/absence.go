package mesh

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt/store"
)

// A box that comes back after a long time, or whose disk was set back, holds rows
// that the others deleted, and forgot that they did. Before two boxes exchange
// rows they therefore tell each other, in the hello, how long the mesh was up as far
// as each knows, and in the first frames how far each knows the other's log:
//
//	stage   | meaning                                            | left when
//	inStep  | rows go both ways                                  | a peer in step was up for long without this box, or the store was set back
//	tooLong | no rows but membership; it re-seeds from any peer  | re-seeded: inStep; for half a minute no live peer is in step: alone
//	        | that is in step                                    |
//	alone   | as tooLong; nobody is there to re-seed from        | re-seeded: inStep; all live peers are alone or went on: wentOn
//	wentOn  | as inStep, but nobody re-seeds from it             | after 10 min: inStep
//
// Nothing here is told by a wall clock. A mesh that was switched off as a whole ages
// nobody, and all its boxes are in step when they come back.

// Stages, as hellos tell them. A value never changes its meaning.
const (
	inStep  = 0
	tooLong = 1
	alone   = 2
	wentOn  = 3
)

const (
	// aloneAfter without a live peer in step, some peer being live, a box stops waiting
	// for one.
	aloneAfter = 30 * time.Second
	// wentOnFor is how long it is told that a box went on: the others may still be
	// about to.
	wentOnFor = 10 * time.Minute
)

// absence knows whether this box was away for too long, and what others know of it.
type absence struct {
	m *Mesh
	// told is MeshUptime and now the stage, kept here because a hello must not wait for
	// the disk.
	told atomic.Int64 // seconds
	now  atomic.Uint32
	// fresh: the rows are those with which a mesh was entered just now.
	fresh atomic.Bool
	epoch atomic.Uint64 // counts re-seeds

	// index and begun are the own log as it was when this process started.
	index, begun uint64

	mu      sync.Mutex
	peers   map[peer.ID]*counterpart
	since   time.Time // of being away with live peers, none of which is in step
	went    time.Time // when it went on
	archive string
}

// counterpart is what is known between this box and one peer. It outlives a
// membership: what it says of the log stays true.
type counterpart struct {
	stage  uint8
	uptime time.Duration
	acked  store.Cursor // how far it has this box's log
	at     time.Time    // when it said so
	served uint64       // how far this process has sent the log that it started with
	blocks int          // deletions kept for its sake
	moved  bool         // its mere word has moved this box's store to a new identity
}

// terms is what a meeting of two boxes allows.
type terms struct {
	give   bool // rows of this box may go to the other
	take   bool // rows of the other may be merged here
	reseed bool // this box has to take over the other's state
}

func newAbsence(m *Mesh) *absence {
	a := &absence{m: m, peers: map[peer.ID]*counterpart{}, index: m.store.IndexID(), begun: m.store.Sequence()}
	a.refresh()
	if m.store.Overdue(0) {
		a.now.Store(tooLong)
	}
	return a
}

func (a *absence) refresh() { a.told.Store(int64(a.m.store.MeshUptime() / time.Second)) }

func (a *absence) seconds() int64 { return a.told.Load() }

func (a *absence) stage() uint8 { return uint8(a.now.Load()) }

// overdue says whether this box has to re-seed before it exchanges rows.
func (a *absence) overdue() bool {
	now := a.stage()
	return now == tooLong || now == alone
}

// of is called with a locked.
func (a *absence) of(p peer.ID) *counterpart {
	c, ok := a.peers[p]
	if !ok {
		c = &counterpart{}
		a.peers[p] = c
	}
	return c
}

// heard takes what a member's hello tells. A stage that this llmgw does not know is
// one to be careful with.
func (a *absence) heard(p peer.ID, h hello) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.of(p)
	c.stage, c.uptime = min(h.Away, wentOn), h.uptime()
	if h.Away > wentOn {
		c.stage = tooLong
	}
}

// behind says whether the rows of p are not to be taken.
func (a *absence) behind(p peer.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.peers[p]
	return ok && (c.stage == tooLong || c.stage == alone)
}

// enters notes that the rows are now those with which another mesh begins.
func (a *absence) enters() {
	a.fresh.Store(true)
	a.now.Store(inStep)
	a.refresh()
}

// meets compares the two sides of a stream. It waits for the disk.
func (a *absence) meets(p peer.ID, h hello) (terms, error) {
	if err := a.copied(p, h); err != nil {
		return terms{}, err
	}
	sound := h.Away == inStep || h.Away == wentOn
	var told time.Duration
	if sound {
		told = h.uptime()
	}
	overdue := a.overdue() || a.m.store.Overdue(told)
	if overdue && a.fresh.Load() {
		// It holds nothing yet that could have been deleted.
		if err := a.m.store.MergeNormally(told); err != nil {
			return terms{}, fmt.Errorf("begin in a mesh: %w", err)
		}
		a.refresh()
		overdue = false
	}
	if overdue && a.now.CompareAndSwap(inStep, tooLong) {
		a.m.log.Warn("this box was away for so long that the others may have forgotten deletions; it takes over their state before it exchanges rows again",
			"peer", p.String(), "mesh_uptime", told)
		a.m.changes.notify()
	}
	return terms{give: !overdue, take: !overdue && sound, reseed: overdue && h.Away == inStep}, nil
}

// copied finds that another box writes under the identity of this one's store: it was
// begun with a copy of it. Both go on under new ones.
func (a *absence) copied(p peer.ID, h hello) error {
	if h.Store != uint64(a.m.store.ID()) && h.Index != a.m.store.IndexID() {
		return nil
	}
	if !a.believes(p) {
		return errOwnStore
	}
	if err := a.m.store.Rotate(); err != nil {
		return fmt.Errorf("leave a store identity that is in use twice: %w", err)
	}
	name := a.m.nameOf(p.String())
	a.m.log.Error("ANOTHER BOX WRITES UNDER THE IDENTITY OF THIS BOX'S STORE: was the state directory copied? The store goes on under a new one", "peer", p.String(), "name", name)
	a.m.events.note(a.m.now(), p.String(), Alarm{
		Kind: AlarmRolledBack, Text: fmt.Sprintf("%s runs on a copy of this box's store; both go on under new store identities", name),
		Fix: "nothing; set up new boxes with an empty state directory",
	})
	a.m.spread()
	return nil
}

// errOwnStore: a peer that was believed once says again that it writes under the identity of this box's store.
var errOwnStore = errors.New("it passes off this box's store as its own")

// believes says whether what p says of this box's own store, and cannot prove, is to move that to a new identity: once for
// each peer while this process runs. Of a store that was copied or set back all others learn the new identity then, so who
// says so again is wrong.
func (a *absence) believes(p peer.ID) bool {
	a.mu.Lock()
	c := a.of(p)
	again := c.moved
	c.moved = true
	a.mu.Unlock()
	if again {
		a.m.warden.offence(p, offenceStore)
	}
	return !again
}

// served notes what p is about to get of the log.
func (a *absence) served(p peer.ID, page store.Page) {
	if page.IndexID != a.index {
		return // of another log than at the start, so nothing of it can be lost
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.of(p)
	c.served = max(c.served, page.Next)
}

// acknowledged takes in how far p has this box's log. A place that the log had not
// reached when this process started, and that p did not get from it since, is from a
// past that this disk has lost, when p can prove that it got it; else it is made up.
func (a *absence) acknowledged(p peer.ID, c store.Cursor) error {
	a.mu.Lock()
	known := a.of(p)
	unknown := c.IndexID == a.index && c.Seq > max(a.begun, known.served) ||
		c.IndexID == a.m.store.IndexID() && c.Seq > a.m.store.Sequence()
	if !unknown {
		known.acked, known.at = c, a.m.now()
	}
	a.mu.Unlock()
	if unknown && !a.m.proofs.holds(p, c) {
		a.m.warden.offence(p, offenceCursor)
		return nil
	}
	if unknown {
		c.Seq = math.MaxUint64 // however much was written meanwhile
	}
	lost, err := a.m.store.NoteAck(c)
	if err != nil || !lost {
		return err
	}
	a.setBack(p)
	return nil
}

// setBack notes that the store has a new identity, because p knows more of what it wrote.
func (a *absence) setBack(p peer.ID) {
	a.now.Store(tooLong)
	a.m.log.Error("THIS BOX'S DISK WAS SET BACK OR COPIED: others know more of what it wrote than it does. Its store goes on under a new identity, with the state of another box", "peer", p.String())
	a.m.events.note(a.m.now(), "", Alarm{
		Kind: AlarmRolledBack, Text: fmt.Sprintf("this box's disk was set back to an earlier state, or is in use twice, as %s knows more of it; its store goes on under a new identity", a.m.nameOf(p.String())),
		Fix: "nothing, if an old image was put back on purpose; else check the disk, and whether a copy of this box runs",
	})
	a.m.changes.notify()
	a.m.puller.requestAll()
}

// synced notes that everything was pulled from a peer that told this uptime before.
func (a *absence) synced(told time.Duration) error {
	if err := a.m.store.NoteSync(told); err != nil {
		return fmt.Errorf("note sync: %w", err)
	}
	a.fresh.Store(false)
	a.refresh()
	return nil
}

func (a *absence) keepArchive(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.archive = path
}

// reseeded ends the absence. The others learn the new identity, if there is one, and
// what this box wrote alone.
func (a *absence) reseeded(from peer.ID) {
	a.now.Store(inStep)
	a.refresh()
	a.mu.Lock()
	a.since = time.Time{}
	archive := a.archive
	a.mu.Unlock()
	text := fmt.Sprintf("this box was away for too long, or its store was restored; it took over the state of %s and kept what only it had written", a.m.nameOf(from.String()))
	fix := "nothing"
	if archive != "" {
		fix = "nothing; its old state is kept in " + archive
	}
	a.m.events.note(a.m.now(), "", Alarm{Kind: AlarmAway, Text: text, Fix: fix})
	a.m.changes.notify()
	a.m.puller.requestAll()
	a.m.spread()
}

func (a *absence) alarms() []Alarm {
	if !a.overdue() {
		return nil
	}
	return []Alarm{{
		Kind: AlarmAway, Text: "this box was away for so long, or its store was restored, that the others may have forgotten deletions; until it has taken over the state of another box it exchanges no rows",
		Fix: "nothing, when a box that was not away is live; else start one",
	}}
}
