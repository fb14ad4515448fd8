// Package mesh owns everything that passes between boxes: the libp2p host, who
// is a member, who is alive, and how shared state and streams travel. Nothing
// above it sees libp2p.
//
// # Membership
//
// A mesh is named by the hash of its genesis record. A box is a member while its
// signed record chains to that genesis through records of admins, and neither
// a later leave record of its own nor a ban by an admin stands against it. The
// roster is derived from the rows of namespace "members" each time they change,
// never updated beside them. Everybody else is a guest: the join protocol and
// identify answer, streams are refused, pubsub is silent, and the connection
// is closed after 15 s.
//
// A ban or demotion ends what its subject signed as an admin, but for the records
// that the ruling itself names: for those its issuer vouches. Rulings are judged
// on every box from all signed cells, in the order of their hybrid stamps (see
// court): an earlier ban makes a later one of the banned void, and a ruling
// that would leave no active admin is void. Only a pardon and a new token bring a
// banned box back. A box that was removed is told by whomever it connects to, and
// serves no more.
//
// # Liveness
//
// Each pair of members keeps one heartbeat stream. What decides is when this box
// last heard the other, on this box's own monotonic clock:
//
//	state    | entered when                                   | left when
//	live     | a heartbeat or the answer to a probe came      | silence
//	suspect  | 3 s of silence and a direct probe failed       | heard: live; 10 s of silence: dead
//	dead     | 10 s of silence, or never heard since the start| heard: live
//
// While a peer is suspect up to three others probe it too: one that reaches it
// keeps it from being called dead, not from being unrouted here. Relays to a suspect
// that have not had a byte yet are reset, so that they can be picked again. A box
// that finds itself late doubles its patience; one whose wall clock jumped
// probes and pulls at once.
//
// A dead member is still a member: its connection is closed and it is dialled
// each second. Only a leave record or a ban ends membership.
//
// # State
//
// Local writes go out over gossip, at most each 50 ms, as the cells that changed; that
// is a hint and may be lost. A pull by cursor at each connect, every 10 to 30 s,
// and whenever pubsub reports a loss makes it correct. Membership rows are checked
// before they are merged, whichever way they came. Every 5 to 10 min a digest of
// the whole store is compared with a random peer's; a difference is an alarm.
// What boxes spent and the escrows of hard budgets are counters that travel beside
// the rows, see money.
//
// Before any row changes hands the two of a stream find out whether one of them was
// away for too long or lost a part of its past, see absence: it then takes over the
// state of the others but for what it wrote alone. A deletion is forgotten once every
// member has acknowledged it, or when that rule covers those who have not.
//
// # Concurrency
//
// All methods may be called from any goroutine. A view (mesh ID and roster) is
// immutable and swapped whole. Replacing the mesh (join, leave) excludes every
// merge of remote rows, so that no row of the old mesh can reach the new one.
package mesh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"

	"llmgw/crdt"
	"llmgw/crdt/store"
	"llmgw/mesh/catalog"
)

// Config is what a mesh is built from. Key, Listen and Store are required.
type Config struct {
	Key     ed25519.PrivateKey
	Name    string // label of this box, for people
	Version string
	// Listen is the mesh port: "0.0.0.0:8771", "[::]:8771", or ":8771" for IPv4
	// and IPv6. Port 0 takes a free one.
	Listen string
	Store  *store.Store
	// Secret makes every holder a member of the mesh derived from it; nil when
	// membership goes by token.
	Secret []byte
	Peers  []string // static peers: host:port or multiaddr, with or without /p2p/<peer ID>
	MDNS   bool     // setting discovery.lan: announce and look for boxes by mDNS; see SetLAN
	// DHT is the setting discovery.dht: look for missing members over a table that the
	// members keep among themselves; see SetDHT. DHTBootstrap, the setting
	// discovery.dht_bootstrap, are members to begin with, in the form of Peers.
	DHT          bool
	DHTBootstrap []string
	// NoAutoJoin is the setting discovery.auto_join, off: see SetAutoJoin.
	NoAutoJoin bool
	// ArchiveDir is where a join that replaces a mesh with content keeps the old
	// state. Empty: such a join is refused.
	ArchiveDir string
	// Budget is how large the hard budget of an account is set to be by this box's own catalog, in micro-units; 0: it
	// has none. An error, or nil for Budget: that is not known, and what is minted stays as it is when others ask.
	Budget func(crdt.Account) (uint64, error)
	// OfferWait bounds how long an admin's write waits for a second box, 2 s
	// unless set.
	OfferWait time.Duration
	Log       *slog.Logger
	Metrics   prometheus.Registerer
	Now       func() time.Time
	Entropy   io.Reader

	speaks versions // for tests
}

func (c *Config) setDefaults() {
	if c.speaks == (versions{}) {
		c.speaks = spoken
	}
	if c.OfferWait == 0 {
		c.OfferWait = 2 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Entropy == nil {
		c.Entropy = rand.Reader
	}
}

// Mesh is this box's part in a mesh. There is one per process.
type Mesh struct {
	cfg   Config
	log   *slog.Logger
	store *store.Store
	self  peer.ID
	boot  uint64

	host   host.Host
	gater  *gater
	conns  connmgr.ConnManager
	pubsub *pubsub.PubSub
	guests *guestList
	counts counters

	name atomic.Pointer[string]
	view atomic.Pointer[view]
	// swap is held shared by whoever merges remote rows or writes membership
	// rows, exclusively while the mesh is replaced.
	swap     sync.RWMutex
	reloadMu sync.Mutex // one reload of the roster at a time
	joinMu   sync.Mutex // one Join or Leave at a time

	links    *linkSet
	presence *presenceBoard
	changes  notifier
	gossip   *gossip
	signals  *signals
	money    *money
	escrow   *Escrow
	puller   *puller
	sights   *sightings
	authors  authorMap
	handlers tracker
	refusals refusalLog
	others   otherVersions
	unread   unreadStreams
	clones   *cloneWatch
	absence  *absence
	proofs   proofs
	warden   *warden
	lan      toggle
	dht      toggle
	autoJoin atomic.Bool
	events   events

	// life ends when Close is called; work that outlives a request hangs on it.
	life   context.Context
	cancel context.CancelFunc
	closed sync.Once
}

// view is what is true of the mesh at one moment. It is immutable.
type view struct {
	generation uint64 // counts replacements of the mesh in this process
	mesh       meshID
	roster     *roster
}

// Open builds the host and everything on it. A store that has no mesh founds one:
// the mesh of the secret, else a provisional mesh of one. Nothing runs in
// the background that dials out until Run. A port in use is a *net.OpError.
func Open(cfg Config) (*Mesh, error) {
	cfg.setDefaults()
	m, err := newMesh(cfg)
	if err != nil {
		return nil, fmt.Errorf("open mesh: %w", err)
	}
	// The roster must stand before the host does: an empty one locks all out.
	if err := m.openMembership(); err != nil {
		m.cancel()
		return nil, fmt.Errorf("open mesh: %w", err)
	}
	if err := m.openHost(); err != nil {
		m.cancel()
		return nil, fmt.Errorf("open mesh: %w", err)
	}
	if err := m.openGossip(); err != nil {
		m.Close()
		return nil, fmt.Errorf("open mesh: %w", err)
	}
	m.keyDigest(m.view.Load())
	m.handleProtocols()
	m.presence.touch()
	if err := m.publishSelf(); err != nil {
		m.Close()
		return nil, fmt.Errorf("open mesh: %w", err)
	}
	return m, nil
}

func newMesh(cfg Config) (*Mesh, error) {
	key, err := crypto.UnmarshalEd25519PrivateKey(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("read identity key: %w", err)
	}
	self, err := peer.IDFromPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("derive peer ID: %w", err)
	}
	m := &Mesh{cfg: cfg, log: cfg.Log, store: cfg.Store, self: self}
	m.life, m.cancel = context.WithCancel(context.Background())
	m.boot, err = nextBoot(cfg.Store, cfg.Now())
	if err != nil {
		return nil, err
	}
	if err := m.loadName(); err != nil {
		return nil, err
	}
	m.lan.on.Store(cfg.MDNS)
	m.dht.on.Store(cfg.DHT)
	m.autoJoin.Store(!cfg.NoAutoJoin)
	m.gater = newGater(m)
	m.guests = newGuestList(m)
	m.links = newLinkSet(m)
	m.presence = newPresenceBoard(m)
	m.puller = newPuller(m)
	m.money = newMoney(m)
	m.escrow = newEscrow(m)
	m.sights = newSightings(m)
	m.clones = newCloneWatch(m)
	m.warden = newWarden(m)
	m.absence = newAbsence(m)
	m.proofs = newProofs(cfg.Key)
	m.counts, err = newCounters(cfg.Metrics)
	return m, err
}

// Run keeps the mesh going: discovery, dialling, heartbeats, gossip and pulls. It
// returns when ctx ends; Close then closes the host.
func (m *Mesh) Run(ctx context.Context) error {
	var actors sync.WaitGroup
	m.links.start(ctx)
	for _, actor := range []func(context.Context){
		m.gossip.run, m.signals.run, m.puller.run, m.runDiscovery, m.watchAddresses, m.watchClock, m.runAudit, m.runCompare, m.runAbsence,
		m.money.run, m.escrow.run,
	} {
		actors.Go(func() { actor(ctx) })
	}
	<-ctx.Done()
	actors.Wait()
	m.links.stop()
	return nil
}

// Close closes the host and with it every stream. The store stays open.
func (m *Mesh) Close() error {
	var err error
	m.closed.Do(func() {
		m.cancel()
		m.links.stop()
		m.escrow.close()
		m.store.OnSpend(func() {})
		if m.gossip != nil {
			m.gossip.close()
			m.signals.topic.close()
		}
		if m.host != nil {
			err = m.host.Close()
		}
		if !m.handlers.close() {
			m.log.Warn("a stream handler did not end with its stream")
		}
	})
	return err
}

// Self is this box's peer ID.
func (m *Mesh) Self() string { return m.self.String() }

// MeshID is the text of the ID of the mesh that this box belongs to now.
func (m *Mesh) MeshID() string { return m.view.Load().mesh.String() }

// Boot is the number of this run of the daemon: higher than those before.
func (m *Mesh) Boot() uint64 { return m.boot }

// SetPresence takes what this box tells of itself. Peer, Boot, Sequence, Name,
// Version and Addresses are filled in here. Changes go out at most once a
// second, small moves of measured values with the full repeat each 30 s.
func (m *Mesh) SetPresence(p catalog.Presence) { m.presence.set(p) }

// Changes tells that membership, liveness or a presence changed.
func (m *Mesh) Changes() *Watch { return m.changes.watch() }

func (m *Mesh) now() time.Time { return m.cfg.Now() }

func (m *Mesh) replica() crdt.ReplicaID { return m.store.ID() }
