package mesh

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// A member may be broken or hostile. What it can cost the others is bounded per
// peer; beyond that its messages and streams are dropped, counted and named in an
// alarm, and nobody else's. Nothing here ends a membership: that is for an admin.

// Kinds of offences.
const (
	offenceGossipFlood = "gossip_flood"
	offenceStreamFlood = "stream_flood"
	offenceBeatFlood   = "heartbeat_flood"
	offenceFrame       = "bad_frame"   // oversize, or no llmgw form
	offenceWriter      = "other_cells" // gossip with cells of another writer
	offenceRows        = "wrong_rows"  // rows that their signer may not write
	offenceSignature   = "bad_signature"
	offenceCursor      = "made_up_cursor" // a place in this box's log that it never gave out
	offenceStore       = "own_store"      // what only this box's own store can be, or have written
)

var offenceWords = map[string]string{
	offenceGossipFlood: "publishes more than this box takes",
	offenceStreamFlood: "opens more streams than this box takes",
	offenceBeatFlood:   "sends more heartbeats than there are",
	offenceFrame:       "sends what no llmgw sends",
	offenceWriter:      "publishes cells that another box wrote",
	offenceRows:        "passes on membership rows that do not hold",
	offenceSignature:   "passes on messages with a signature that does not hold",
	offenceCursor:      "says that it has more of this box's log than it was given",
	offenceStore:       "passes off this box's store as its own, or tells of spending by this box that there was not",
}

// allowance is a token bucket: burst at once, then rate a second.
type allowance struct{ rate, burst float64 }

var (
	// A mesh under load gossips some 20 batches a second from one box; an import of
	// thousands of rows comes as one burst. What is dropped is pulled.
	gossipMessages = allowance{50, 1000}
	gossipBytes    = allowance{2 << 20, 64 << 20}
	// Rate counts and routing decisions, many times a second each.
	signalMessages = allowance{200, 1000}
	signalBytes    = allowance{4 << 20, 16 << 20}
	// An admin write opens one sync stream; a script makes many.
	syncStreams   = allowance{20, 200}
	beatStreams   = allowance{10, 100}
	doctorStreams = allowance{0.5, 5}
	// A box asks for rights when it is short, once for all requests that wait.
	escrowStreams = allowance{20, 200}
	// One each time that a removed box connects, and it redials each second.
	verdictStreams = allowance{guestRate, guestBurst}
	// One pulse a second and one presence at most; a stream that was held up
	// delivers several at once.
	beatFrames = allowance{5, 60}

	// streamLimits are for those whom this box knows; a join has a limit of its own, and
	// what is above the mesh bounds itself.
	streamLimits = map[string]allowance{
		protocolSync: syncStreams, protocolHeartbeat: beatStreams, protocolDoctor: doctorStreams,
		protocolEscrow: escrowStreams, protocolVerdict: verdictStreams,
	}
)

// syncAtOnce is how many sync streams of one peer are served at a time.
const syncAtOnce = 16

const (
	// muteAfter drops in a row a peer's gossip is not even decoded for muteFor.
	muteAfter = 500
	muteFor   = 30 * time.Second
)

// errFlood: a peer is over its allowance.
var errFlood = errors.New("more than this box takes from one peer")

// bucket is what is left of an allowance. Its zero value is a full one.
type bucket struct {
	used float64 // tokens taken and not regained
	at   time.Time
}

// take takes n tokens if they are there. A clock that was set back gives none, and
// counts on from where it is.
func (b *bucket) take(now time.Time, a allowance, n float64) bool {
	b.used = max(0, b.used-max(0, now.Sub(b.at).Seconds())*a.rate)
	b.at = now
	if b.used+n > a.burst {
		return false
	}
	b.used += n
	return true
}

// conduct is the record of one peer.
type conduct struct {
	messages, bytes bucket
	signals, noise  bucket             // messages and bytes of signals
	streams         map[string]*bucket // by protocol
	beats           bucket
	syncs           int // being served
	dropped         int // gossip messages since one was taken
	mutedUntil      time.Time
}

// warden keeps the conduct of members.
type warden struct {
	m *Mesh

	mu    sync.Mutex
	peers map[peer.ID]*conduct
}

func newWarden(m *Mesh) *warden { return &warden{m: m, peers: map[peer.ID]*conduct{}} }

// of is called with w locked. Only those have a record who are or were members.
func (w *warden) of(p peer.ID) *conduct {
	c, ok := w.peers[p]
	if !ok {
		c = &conduct{streams: map[string]*bucket{}}
		w.peers[p] = c
	}
	return c
}

func (w *warden) forget(p peer.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.peers, p)
}

// gossip says whether a message of this size is taken from its author.
func (w *warden) gossip(p peer.ID, size int) bool {
	now := w.m.now()
	w.mu.Lock()
	c := w.of(p)
	ok := c.messages.take(now, gossipMessages, 1) && c.bytes.take(now, gossipBytes, float64(size))
	if ok {
		c.dropped = 0
	} else if c.dropped++; c.dropped >= muteAfter {
		c.dropped, c.mutedUntil = 0, now.Add(muteFor)
	}
	w.mu.Unlock()
	if !ok {
		w.offence(p, offenceGossipFlood)
	}
	return ok
}

// signal says whether a signal of this size is taken from its author. One that is
// not is no offence: a head that routes more than this one keeps up with is lost on it.
func (w *warden) signal(p peer.ID, size int) bool {
	now := w.m.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.of(p)
	return c.signals.take(now, signalMessages, 1) && c.noise.take(now, signalBytes, float64(size))
}

// muted says whether a peer's gossip is dropped unread for now.
func (w *warden) muted(p peer.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.peers[p]
	return ok && w.m.now().Before(c.mutedUntil)
}

// stream says whether a stream that p opened is served, until done is called.
func (w *warden) stream(p peer.ID, proto string) (done func(), err error) {
	limit, limited := streamLimits[proto]
	if !limited || !everMembers(w.m.view.Load().roster, p) {
		return func() {}, nil
	}
	now := w.m.now()
	w.mu.Lock()
	c := w.of(p)
	if c.streams[proto] == nil {
		c.streams[proto] = &bucket{}
	}
	ok := c.streams[proto].take(now, limit, 1) && (proto != protocolSync || c.syncs < syncAtOnce)
	if ok && proto == protocolSync {
		c.syncs++
	}
	w.mu.Unlock()
	if !ok {
		w.offence(p, offenceStreamFlood)
		return nil, fmt.Errorf("%s of %s: %w", proto, p, errFlood)
	}
	return func() {
		if proto == protocolSync {
			w.mu.Lock()
			c.syncs--
			w.mu.Unlock()
		}
	}, nil
}

// beat says whether another heartbeat frame is taken.
func (w *warden) beat(p peer.ID) error {
	w.mu.Lock()
	ok := w.of(p).beats.take(w.m.now(), beatFrames, 1)
	w.mu.Unlock()
	if ok {
		return nil
	}
	w.offence(p, offenceBeatFlood)
	return errFlood
}

// offence counts what a member did and names it.
func (w *warden) offence(p peer.ID, kind string) {
	w.m.counts.offences.WithLabelValues(kind).Inc()
	if !w.m.view.Load().roster.active(p) {
		return // strangers have limits of their own and are nobody to name
	}
	a := Alarm{
		Kind: AlarmMisbehaving, Text: fmt.Sprintf("%s %s", w.m.nameOf(p.String()), offenceWords[kind]),
		Fix: "update llmgw there and look into its log; a box that is not yours any more can be removed",
	}
	if w.m.events.note(w.m.now(), p.String()+" "+kind, a) {
		w.m.log.Warn("member misbehaves and is limited", "peer", p.String(), "offence", kind)
	}
}

// blame notes an error that only a peer's own doing explains.
func (w *warden) blame(p peer.ID, err error) {
	if errors.Is(err, errFrame) {
		w.offence(p, offenceFrame)
	}
}
