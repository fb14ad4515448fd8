package mesh

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
)

// versions is a range of versions of the mesh's wire forms, both ends included.
type versions struct{ min, max uint16 }

// spoken are those that this llmgw speaks.
var spoken = versions{1, 1}

func (v versions) String() string {
	if v.min == v.max {
		return fmt.Sprintf("version %d", v.min)
	}
	return fmt.Sprintf("versions %d to %d", v.min, v.max)
}

// helloWait bounds how long an accepted stream may take to say hello.
const helloWait = 10 * time.Second

// ErrVersion: the other box speaks no version that this one does.
var ErrVersion = errors.New("no common protocol version")

// hello is the first frame of every llmgw stream, in both directions. Each side
// sends it without waiting for the other's.
type hello struct {
	Min      uint16   `cbor:"1,keyasint"`
	Max      uint16   `cbor:"2,keyasint"`
	Features []string `cbor:"3,keyasint,omitempty"`
	Store    uint64   `cbor:"4,keyasint"` // writer of this box's cells
	Index    uint64   `cbor:"5,keyasint"` // of its local log
	Wall     int64    `cbor:"6,keyasint"` // unix milliseconds; for display and for joins, never for liveness
	Boot     uint64   `cbor:"7,keyasint"`
	// Uptime is the mesh's time in seconds, as far as the sender knows.
	Uptime int64 `cbor:"8,keyasint,omitempty"`
	// Away is one of the stages of absence.
	Away uint8 `cbor:"9,keyasint,omitempty"`
}

func (m *Mesh) hello() hello {
	return hello{
		Min: m.cfg.speaks.min, Max: m.cfg.speaks.max, Store: uint64(m.store.ID()), Index: m.store.IndexID(),
		Wall: m.now().UnixMilli(), Boot: m.boot, Uptime: m.absence.seconds(), Away: m.absence.stage(),
	}
}

// maxUptime bounds what a peer can make this box believe: 200 years in seconds.
const maxUptime = 200 * 366 * 24 * 3600

func (h hello) uptime() time.Duration {
	return time.Duration(min(max(h.Uptime, 0), maxUptime)) * time.Second
}

func (h hello) speaks() versions { return versions{h.Min, h.Max} }

func (h hello) check(own versions) error {
	if h.Min > own.max || h.Max < own.min {
		return fmt.Errorf("peer speaks %s, this box %s: %w", h.speaks(), own, ErrVersion)
	}
	return nil
}

// skew is how far the sender's clock is ahead of ours.
func (h hello) skew(now time.Time) time.Duration {
	return time.UnixMilli(h.Wall).Sub(now.Round(0))
}

// readHello takes the peer's hello off the front of a stream. With ErrVersion the hello is
// what it says as far as it is understood.
func readHello(r io.Reader, own versions) (hello, error) {
	var h hello
	if err := readFrame(r, maxHello, &h); err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	return h, h.check(own)
}

// authorMap remembers which store a peer writes with, as its hello told. Its zero
// value is ready.
type authorMap struct {
	mu     sync.Mutex
	stores map[peer.ID]author
}

type author struct {
	store crdt.ReplicaID
	// doubted: it published cells of another store. Its store may have a new
	// identity, which its next hello tells.
	doubted bool
}

func (a *authorMap) learn(p peer.ID, id crdt.ReplicaID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stores == nil {
		a.stores = map[peer.ID]author{}
	}
	if a.stores[p].store != id {
		a.stores[p] = author{store: id}
	}
}

func (a *authorMap) forget(p peer.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.stores, p)
}

func (a *authorMap) store(p peer.ID) (crdt.ReplicaID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.stores[p]
	return known.store, ok
}

// doubt notes cells of another store under p's name; it tells whether that happened
// before under the same hello.
func (a *authorMap) doubt(p peer.ID) (again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.stores[p]
	if !ok {
		return false // forgotten meanwhile, so there is no hello to hold against it
	}
	again, known.doubted = known.doubted, true
	a.stores[p] = known
	return again
}
