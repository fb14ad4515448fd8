package mesh

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/mesh/discovery"
)

// A copied state directory makes two boxes with one identity. They cannot dial
// each other, so there are two ways to find out: a third member hears one peer under
// two boot numbers and tells both, and mDNS shows this box's ID at an address that
// is not its own, where a handshake proves that the key is there.

const (
	// bootOverlap: a lower boot number heard this long after a higher one began is
	// no echo of a restart; the older process still runs.
	bootOverlap = 3 * time.Second
	// cloneFor is how long a second boot number is reported after it was heard.
	cloneFor = time.Minute
	// cloneClaims members must say so before this box stops serving, or all that are
	// live: one that lies must not be able to stop another.
	cloneClaims = 2
)

// bootLog is what was heard of one peer's boot numbers. It is pure.
type bootLog struct {
	high  uint64
	since time.Time // when high was first heard
	low   uint64    // heard well after that
	lowAt time.Time
}

func (b *bootLog) note(boot uint64, now time.Time) {
	switch {
	case boot > b.high:
		b.high, b.since = boot, now
	case boot < b.high && now.Sub(b.since) >= bootOverlap:
		b.low, b.lowAt = boot, now
	}
}

// twin is the boot number of the other process that runs under the identity of
// the one with the given number; 0 when there is none.
func (b *bootLog) twin(boot uint64, now time.Time) uint64 {
	switch {
	case b.low == 0 || now.Sub(b.lowAt) > cloneFor:
		return 0
	case boot == b.high:
		return b.low
	}
	return b.high
}

// cloneWatch is what this box knows of copies of itself.
type cloneWatch struct {
	m *Mesh

	mu     sync.Mutex
	claims map[uint64]map[peer.ID]time.Time // by boot number: who heard it, and when last
	other  uint64                           // boot number of the copy seen last
	where  string
	at     time.Time
	stop   bool // this is the one that came later: it serves no more
}

func newCloneWatch(m *Mesh) *cloneWatch {
	return &cloneWatch{m: m, claims: map[uint64]map[peer.ID]time.Time{}}
}

// claimed takes a member's word that it hears this identity under another boot.
func (c *cloneWatch) claimed(by peer.ID, boot uint64, where string) {
	if boot == 0 || boot == c.m.boot {
		return
	}
	need := min(cloneClaims, max(len(c.m.links.live()), 1))
	c.mu.Lock()
	if c.claims[boot] == nil {
		if len(c.claims) > maxEvents {
			clear(c.claims)
		}
		c.claims[boot] = map[peer.ID]time.Time{}
	}
	c.claims[boot][by] = c.m.now()
	sure := c.claimants(boot) >= need
	c.mu.Unlock()
	c.seen(boot, where, sure)
}

// claimants counts the members that say so now: a process which ended is told of for
// cloneFor, and who is a member no more counts no more. It is called with mu held.
func (c *cloneWatch) claimants(boot uint64) (n int) {
	roster, now := c.m.view.Load().roster, c.m.now()
	for by, at := range c.claims[boot] {
		if now.Sub(at).Abs() <= cloneFor && roster.active(by) {
			n++
		}
	}
	return n
}

func (c *cloneWatch) seen(boot uint64, where string, sure bool) {
	c.mu.Lock()
	now := c.m.now()
	fresh := c.other != boot || now.Sub(c.at) > alarmFor
	c.other, c.where, c.at = boot, where, now
	stop := sure && boot < c.m.boot && !c.stop
	c.stop = c.stop || stop
	c.mu.Unlock()
	if fresh {
		c.m.log.Error("ANOTHER BOX RUNS UNDER THIS BOX'S IDENTITY: was the state directory copied?", "where", where, "boot", boot, "own_boot", c.m.boot)
	}
	if stop {
		c.m.log.Error("this box came later than its copy and stops serving until its identity is rotated")
		c.m.changes.notify()
	}
}

func (c *cloneWatch) alarms(now time.Time) []Alarm {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stop && (c.other == 0 || now.Sub(c.at) > alarmFor) {
		return c.m.peerClones(now)
	}
	a := Alarm{
		Kind: AlarmClone, Text: "another box runs under this box's identity: " + c.where,
		Fix: "run `llmgw identity rotate` on the copy; it is the one that does not serve",
	}
	if c.stop {
		a.Text, a.Fix = a.Text+"; this box came later and does not serve", "run `llmgw identity rotate` on this box"
	}
	return append(c.m.peerClones(now), a)
}

// peerClones names members that run twice.
func (m *Mesh) peerClones(now time.Time) []Alarm {
	var out []Alarm
	for _, l := range m.links.all() {
		l.mu.Lock()
		twin := l.boots.twin(l.boots.high, now)
		l.mu.Unlock()
		if twin != 0 {
			out = append(out, Alarm{
				Kind: AlarmClone, Text: fmt.Sprintf("two boxes run under the identity of %s", m.nameOf(l.peer.String())),
				Fix: "run `llmgw identity rotate` on the copy of it",
			})
		}
	}
	return out
}

func (c *cloneWatch) stopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop
}

// checkClone looks into an announcement of this box's own ID. One with the own boot
// number is our own, come back; so is whatever is at an own address. At any
// other a handshake shows whether the key is really there.
func (m *Mesh) checkClone(ctx context.Context, g discovery.Group) {
	if g.Source != "mdns" || g.Boot == 0 || g.Boot == m.boot || !m.sights.begin(m.self, m.now(), false) {
		return
	}
	defer m.sights.end(m.self)
	own := ownAddrs()
	for _, addr := range g.Addrs {
		at, err := netip.ParseAddrPort(addr)
		if err != nil || own[at.Addr().Unmap()] && int(at.Port()) == m.port() {
			continue
		}
		if id, err := m.whoIs(ctx, addr); err == nil && id == m.self {
			m.clones.seen(g.Boot, "it answers at "+addr, true)
			return
		}
	}
}

func ownAddrs() map[netip.Addr]bool {
	own := map[netip.Addr]bool{}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return own
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return own
}

// Rotation says what became of a change of identity.
type Rotation struct {
	Peer string // the new peer ID
	// Admitted: the mesh has this box under the new key. If not, it needs a token
	// after the restart: only an admin can vouch for its own new key.
	Admitted bool
	// Left: the old identity has left the mesh. It stays when a copy of this box
	// runs under it.
	Left bool
}

// errRotationAlone: nobody else knows of the new identity yet, and under it this box
// would be a stranger to all.
var errRotationAlone = errors.New("no other member took note of the new identity yet; try again when one is live")

// RotateIdentity prepares this box to go on under another key with the same store:
// the old identity vouches for the new one with its own role, where it is an admin,
// and leaves unless a copy of this box goes on under it. The store takes a new
// writer ID when there is a copy. It may be called again after an error.
//
// The caller MUST then keep key in place of the old one, Close this Mesh, and
// Open another with the key and the same store; nothing else takes effect before.
func (m *Mesh) RotateIdentity(ctx context.Context, key ed25519.PrivateKey) (Rotation, error) {
	m.joinMu.Lock()
	defer m.joinMu.Unlock()
	private, err := crypto.UnmarshalEd25519PrivateKey(key)
	if err != nil {
		return Rotation{}, fmt.Errorf("rotate identity: %w", err)
	}
	next, err := peer.IDFromPrivateKey(private)
	if err != nil {
		return Rotation{}, fmt.Errorf("rotate identity: %w", err)
	}
	if next == m.self {
		return Rotation{}, errors.New("rotate identity: the new key is the old one")
	}
	r := Rotation{Peer: next.String()}
	copied := m.clones.stopped()
	if copied {
		if err := m.store.Rotate(); err != nil {
			return Rotation{}, fmt.Errorf("rotate identity: %w", err)
		}
	}
	if r.Admitted, err = m.vouchForSuccessor(next); err != nil {
		return Rotation{}, fmt.Errorf("rotate identity: %w", err)
	}
	if r.Admitted {
		if err := m.insist(ctx); err != nil {
			return Rotation{}, fmt.Errorf("rotate identity: %w", err)
		}
		// The new identity is refused by whoever has not heard of it.
		m.tellAll(ctx, m.offerTo)
	}
	if !copied {
		if err := m.sayLeft(ctx); err != nil {
			return Rotation{}, fmt.Errorf("rotate identity: %w", err)
		}
		r.Left = true
	}
	m.log.Warn("identity rotated; it takes effect at the next start", "old", m.self.String(), "new", r.Peer, "admitted", r.Admitted, "left", r.Left)
	return r, nil
}

func (m *Mesh) vouchForSuccessor(next peer.ID) (admitted bool, err error) {
	err = m.writeMembers(func(v *view, tx rowWriter) error {
		self, ok := v.roster.members[m.self]
		switch {
		case v.roster.outcast:
			return m.Serving()
		case v.roster.active(next):
			admitted = true
			return nil
		case !ok || self.standing != active || !self.admin():
			return nil
		}
		admitted = true
		body := memberBody{Role: self.role, Serial: v.roster.floors[next] + 1, Joined: self.record.Joined}
		if err := m.writeRecord(v, tx, next, body); err != nil {
			return err
		}
		// Under the new key the others have to find this box at its old addresses.
		addrs, err := marshal(m.addresses())
		if err != nil {
			return err
		}
		return errors.Join(
			tx.Set(memberKey(next), cellName, []byte(m.Name())),
			tx.Set(memberKey(next), cellAddresses, addrs),
		)
	})
	return admitted, err
}

// insist offers until another member has what this box wrote. Alone in its mesh
// there is nobody to tell.
func (m *Mesh) insist(ctx context.Context) error {
	r := m.view.Load().roster
	others := 0
	for p, member := range r.members {
		if p != m.self && member.standing == active {
			others++
		}
	}
	if others <= 1 { // the successor itself
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, firstPull)
	defer cancel()
	for {
		if len(m.links.live()) > 0 && m.Offer(ctx) == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errRotationAlone
		case <-time.After(pullRetry / 4):
		}
	}
}
