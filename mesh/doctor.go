package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/mesh/discovery"
)

// Names of checks, in the order in which they are made.
const (
	CheckMDNS      = "mdns"       // seen by mDNS
	CheckTCP       = "tcp"        // an address takes a connection
	CheckHandshake = "handshake"  // the one who answers there proves the expected identity
	CheckMesh      = "mesh"       // both sides take each other for members of one mesh
	CheckVersion   = "version"    // of llmgw
	CheckClock     = "clock"      // how far its clock is ahead
	CheckPath      = "path"       // address in use
	CheckRoundTrip = "round_trip" // of a question and its answer
)

// Results of a check.
const (
	CheckOK      = "ok"
	CheckFailed  = "failed"
	CheckUnknown = "unknown"
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `cbor:"1,keyasint"`
	Result string `cbor:"2,keyasint"`
	Text   string `cbor:"3,keyasint"` // what was found, or the error
}

// Diagnosis is what was found out about one peer.
type Diagnosis struct {
	ID     string // empty: nobody said who is there
	Name   string
	Addrs  []string // host:port that were tried
	Member bool
	Static bool    // given by hand
	Out    []Check // from this box to the peer
	In     []Check // from the peer to this box, as the peer found
	InErr  string  // why In is empty
}

const (
	// doctorWait bounds the look at one peer in one direction.
	doctorWait = 8 * time.Second
	// doctorDial bounds one TCP connection of it.
	doctorDial = 3 * time.Second
	// doctorAddrs bounds the addresses that are tried of one peer, doctorAtOnce the
	// peers that are looked at at the same time.
	doctorAddrs, doctorAtOnce = 8, 8
	maxDoctor                 = 64 << 10
)

// subject is whom the doctor looks at.
type subject struct {
	id     peer.ID
	name   string
	addrs  []string
	member bool
	static bool
	group  *discovery.Group // as seen by mDNS
}

// Diagnose looks at every other member, at the peers given by hand and at the boxes
// seen by mDNS, in both directions where the other side takes part. It takes some
// 10 s when something does not answer.
func (m *Mesh) Diagnose(ctx context.Context) []Diagnosis {
	subjects := m.subjects()
	out := make([]Diagnosis, len(subjects))
	slots := make(chan struct{}, doctorAtOnce)
	var work sync.WaitGroup
	for i, s := range subjects {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i] = m.diagnose(ctx, s)
		})
	}
	work.Wait()
	return out
}

func (m *Mesh) diagnose(ctx context.Context, s subject) Diagnosis {
	d := Diagnosis{Name: s.name, Addrs: s.addrs, Member: s.member, Static: s.static}
	var both sync.WaitGroup
	both.Go(func() {
		out, cancel := context.WithTimeout(ctx, doctorWait)
		defer cancel()
		var id peer.ID
		id, d.Out = m.examine(out, s)
		if id != "" {
			d.ID = id.String()
		}
	})
	if s.member {
		both.Go(func() {
			in, cancel := context.WithTimeout(ctx, doctorWait+probeWait)
			defer cancel()
			var err error
			if d.In, err = m.askDoctor(in, s.id); err != nil {
				d.InErr = "it could not be asked: " + reason(err)
			}
		})
	} else {
		d.InErr = "it is no member, so it is not asked"
	}
	both.Wait()
	return d
}

// subjects lists each box once, members first.
func (m *Mesh) subjects() []subject {
	v := m.view.Load()
	static := map[string]bool{}
	for _, addr := range m.staticPeers(m.cfg.Peers).Addrs {
		static[addr] = true
	}
	var out []subject
	known := map[peer.ID]bool{m.self: true}
	for _, n := range m.Nodes() {
		p, err := peer.Decode(n.ID)
		if err != nil || known[p] || v.roster.standing(p) != active {
			continue
		}
		known[p] = true
		s := m.memberSubject(p, n)
		s.static = slices.ContainsFunc(s.addrs, func(a string) bool { return static[a] })
		out = append(out, s)
	}
	for _, g := range m.Sightings() {
		s := subject{name: g.Name, addrs: g.Addrs[:min(len(g.Addrs), doctorAddrs)]}
		s.static = slices.ContainsFunc(g.Addrs, func(a string) bool { return static[a] })
		if p, err := peer.Decode(g.ID); err == nil {
			if known[p] {
				continue
			}
			known[p] = true
			s.id, s.group = p, m.sights.byMDNS(p)
		}
		out = append(out, s)
	}
	return out
}

func (m *Mesh) memberSubject(p peer.ID, n Node) subject {
	s := subject{id: p, name: n.Name, member: true, group: m.sights.byMDNS(p)}
	texts := n.Presence.Addresses
	if row, ok := m.view.Load().roster.members[p]; ok {
		texts = slices.Concat(texts, row.addrs)
	}
	for _, a := range multiaddrs(texts) {
		if addr := plainAddr(a); !slices.Contains(s.addrs, addr) && len(s.addrs) < doctorAddrs {
			s.addrs = append(s.addrs, addr)
		}
	}
	return s
}

// examine makes the checks from this box to a peer, and says who it is.
func (m *Mesh) examine(ctx context.Context, s subject) (peer.ID, []Check) {
	open, tcp := m.checkTCP(ctx, s.addrs)
	id, handshake := m.checkHandshake(ctx, s.id, open)
	checks := []Check{m.checkMDNS(s), tcp, handshake}
	if s.member {
		return s.id, append(checks, m.memberChecks(ctx, s.id)...)
	}
	checks = append(checks, m.checkForeign(s))
	if id != "" {
		checks = append(checks, m.checkVersionOf(ctx, id, open))
	}
	return id, checks
}

func (m *Mesh) checkMDNS(s subject) Check {
	c := Check{Name: CheckMDNS, Result: CheckUnknown}
	switch {
	case !m.lan.on.Load():
		c.Text = "mDNS is switched off on this box"
	case s.id == "":
		c.Text = "nobody knows its ID, by which it would be seen"
	case s.group == nil:
		c.Result, c.Text = CheckFailed, "not seen; that is normal across subnets and where multicast is filtered"
	default:
		c.Result, c.Text = CheckOK, fmt.Sprintf("seen %s ago at %s", m.now().Sub(s.group.Seen).Round(time.Second), strings.Join(s.group.Addrs, " "))
	}
	return c
}

// checkTCP tries all addresses at once and returns those that answered.
func (m *Mesh) checkTCP(ctx context.Context, addrs []string) (open []string, c Check) {
	c = Check{Name: CheckTCP, Result: CheckFailed, Text: "no address is known"}
	results := make([]string, len(addrs))
	ok := make([]bool, len(addrs))
	var work sync.WaitGroup
	for i, addr := range addrs {
		work.Go(func() {
			dial, cancel := context.WithTimeout(ctx, doctorDial)
			defer cancel()
			start := time.Now()
			var d net.Dialer
			conn, err := d.DialContext(dial, "tcp", addr)
			if err != nil {
				results[i] = addr + ": " + reason(err)
				return
			}
			conn.Close()
			ok[i], results[i] = true, fmt.Sprintf("%s: connected in %s", addr, time.Since(start).Round(10*time.Microsecond))
		})
	}
	work.Wait()
	for i, addr := range addrs {
		if ok[i] {
			open, c.Result = append(open, addr), CheckOK
		}
	}
	if len(results) > 0 {
		c.Text = strings.Join(results, "; ")
	}
	return open, c
}

func (m *Mesh) checkHandshake(ctx context.Context, want peer.ID, open []string) (peer.ID, Check) {
	c := Check{Name: CheckHandshake, Result: CheckUnknown, Text: "there is no connection to try it on"}
	var last peer.ID
	for _, addr := range open {
		id, err := m.whoIs(ctx, addr)
		switch {
		case err != nil:
			c.Result, c.Text = CheckFailed, addr+": "+reason(errors.Unwrap(err))
		case want != "" && id != want:
			c.Result, c.Text = CheckFailed, addr+": another box answers there: "+id.String()
			last = id
		default:
			return id, Check{Name: CheckHandshake, Result: CheckOK, Text: addr + ": " + id.String()}
		}
	}
	if want != "" {
		return want, c
	}
	return last, c
}

// memberChecks go over the connection that the mesh itself uses.
func (m *Mesh) memberChecks(ctx context.Context, p peer.ID) []Check {
	start := time.Now()
	err := m.probe(ctx, p)
	took := time.Since(start)
	mesh := Check{Name: CheckMesh, Result: CheckOK, Text: "both boxes take each other for members of " + m.MeshID()}
	trip := Check{Name: CheckRoundTrip, Result: CheckOK, Text: took.Round(10 * time.Microsecond).String()}
	if err != nil {
		mesh.Result, mesh.Text = CheckFailed, "it does not answer as a member: "+reason(err)
		trip.Result, trip.Text = CheckFailed, reason(err)
	}
	n := Node{}
	if l, ok := m.links.get(p); ok {
		l.describe(&n, m.now())
	}
	clock := Check{Name: CheckClock, Result: CheckUnknown, Text: "it was not heard yet"}
	if n.Heard {
		clock.Result, clock.Text = CheckOK, skewText(n.Skew, time.Millisecond)+" this box's"
		if n.Skew.Abs() > maxJoinSkew {
			clock.Result = CheckFailed
		}
	}
	path := Check{Name: CheckPath, Result: CheckFailed, Text: "there is no connection"}
	if addr, dir := m.pathTo(p); addr != "" {
		path.Result, path.Text = CheckOK, fmt.Sprintf("%s, %s", addr, strings.ToLower(dir.String()))
	}
	return []Check{mesh, m.versionCheck(p, n.Presence.Version), clock, path, trip}
}

func (m *Mesh) versionCheck(p peer.ID, told string) Check {
	c := Check{Name: CheckVersion, Result: CheckUnknown, Text: "not told yet"}
	if agent, err := m.host.Peerstore().Get(p, "AgentVersion"); err == nil && told == "" {
		told = strings.TrimPrefix(fmt.Sprint(agent), "llmgw/")
	}
	if told != "" {
		c.Result, c.Text = CheckOK, cleanDetail(told)
	}
	if differ, fix := m.mismatch(p); differ != "" {
		c.Result, c.Text = CheckFailed, fmt.Sprintf("%s; %s", differ, fix)
	}
	return c
}

// checkForeign compares what mDNS tells with this box's mesh. The mesh ID itself is
// told to nobody who does not know it.
func (m *Mesh) checkForeign(s subject) Check {
	c := Check{Name: CheckMesh, Result: CheckUnknown, Text: "whether it is of this mesh shows only by a token or by mDNS"}
	r := m.view.Load().roster
	switch {
	case s.id != "" && r.removed(s.id):
		c.Result, c.Text = CheckFailed, "it was removed from this mesh"
	case s.group != nil && s.group.Hint == m.view.Load().mesh.hint(s.id):
		c.Result, c.Text = CheckFailed, "it says that it is of this mesh, and no admin of it has vouched for it here"
	case s.group != nil:
		c.Result, c.Text = CheckFailed, "it is of another mesh"
	}
	return c
}

// checkVersionOf makes a connection as a guest for a moment, to be told.
func (m *Mesh) checkVersionOf(ctx context.Context, p peer.ID, open []string) Check {
	if p == m.self {
		return Check{Name: CheckVersion, Result: CheckFailed, Text: "this box itself answers there, or a copy of it"}
	}
	done := m.gater.allow(p)
	defer done()
	m.clearBackoff(p)
	if err := m.host.Connect(ctx, peer.AddrInfo{ID: p, Addrs: dialAddrs(open)}); err != nil {
		return Check{Name: CheckVersion, Result: CheckUnknown, Text: reason(err)}
	}
	if !m.view.Load().roster.active(p) {
		defer m.host.Network().ClosePeer(p)
	}
	return m.versionCheck(p, "")
}

// doctorAnswer is the one frame that answers on a doctor stream.
type doctorAnswer struct {
	Checks []Check `cbor:"1,keyasint"`
}

// serveDoctor looks at the member that asks, at the addresses that it published.
func (m *Mesh) serveDoctor(s *stream) {
	ctx, cancel := context.WithTimeout(m.life, doctorWait)
	defer cancel()
	subject := subject{id: s.peer(), member: true}
	for _, n := range m.Nodes() {
		if n.ID == s.Peer() {
			subject = m.memberSubject(s.peer(), n)
		}
	}
	_, checks := m.examine(ctx, subject)
	if err := s.SetWriteDeadline(time.Now().Add(probeWait)); err != nil || writeFrame(s, doctorAnswer{Checks: checks}) != nil {
		s.Reset()
		return
	}
	s.Close()
}

func (m *Mesh) askDoctor(ctx context.Context, p peer.ID) ([]Check, error) {
	s, err := m.open(ctx, p, protocolDoctor)
	if err != nil {
		return nil, err
	}
	defer s.Reset()
	deadline, _ := ctx.Deadline()
	if err := s.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("ask for a diagnosis: %w", err)
	}
	var answer doctorAnswer
	if err := readFrame(s, maxDoctor, &answer); err != nil {
		return nil, fmt.Errorf("ask for a diagnosis: %w", err)
	}
	for i := range answer.Checks {
		c := &answer.Checks[i]
		c.Name, c.Result, c.Text = cleanDetail(c.Name), cleanDetail(c.Result), cleanDetail(c.Text)
	}
	return answer.Checks, nil
}
