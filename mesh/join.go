package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"

	"llmgw/crdt"
	"llmgw/mesh/token"
)

const (
	// maxJoinSkew is how far apart two clocks may be for a join: expiry and the
	// order of writes hang on them. A member is only warned.
	maxJoinSkew = 5 * time.Minute
	// joinDial bounds the search for one box of a token.
	joinDial = 10 * time.Second
	// firstPull bounds the wait for the new mesh's state after the admission.
	firstPull = 10 * time.Second
)

// JoinResult is what a join led to.
type JoinResult struct {
	MeshID   string
	Issuer   string // peer ID of the box that admitted this one
	Replaced bool   // a mesh with content was left for it
	Archive  string // file with the old state, when Replaced
}

// Join makes this box a member of the token's mesh, in this process and for good.
// A provisional mesh of one gives way silently; another is left only with replace,
// and archived. Errors are *token.Error where a person can do something.
func (m *Mesh) Join(ctx context.Context, tokenText string, replace bool) (JoinResult, error) {
	t, err := token.Parse(tokenText)
	if err != nil {
		return JoinResult{}, err
	}
	m.joinMu.Lock()
	defer m.joinMu.Unlock()
	if err := m.mayJoin(t, replace); err != nil {
		return JoinResult{}, err
	}
	issuer, rows, err := m.askSeeds(ctx, t)
	if err != nil {
		return JoinResult{}, err
	}
	result := JoinResult{MeshID: meshID(t.Mesh).String(), Issuer: issuer.String(), Replaced: !m.Provisional() && m.view.Load().mesh != t.Mesh}
	if result.Replaced {
		if result.Archive, err = m.archive(); err != nil {
			return JoinResult{}, fmt.Errorf("join: %w", err)
		}
		if err := m.sayLeft(ctx); err != nil {
			m.log.Warn("the old mesh was not told that this box left", "err", err)
		}
	}
	m.log.Info("joining a mesh", "mesh", result.MeshID, "issuer", result.Issuer, "left", m.MeshID(), "replaced", result.Replaced)
	if err := m.enter(ctx, t.Mesh, issuer, rows); err != nil {
		return JoinResult{}, fmt.Errorf("join: %w", err)
	}
	return result, nil
}

func (m *Mesh) mayJoin(t token.Token, replace bool) error {
	v := m.view.Load()
	switch {
	case v.mesh == t.Mesh && v.roster.active(m.self):
		return &token.Error{Kind: token.AlreadyMember}
	case v.mesh == t.Mesh && v.roster.outcast:
		return nil // it comes back to its own mesh
	case m.Provisional():
		return nil
	case !replace:
		return &token.Error{Kind: token.NotProvisional, Detail: "it belongs to mesh " + v.mesh.String() + "; join with replace to leave that"}
	case m.cfg.ArchiveDir == "":
		return &token.Error{Kind: token.NotProvisional, Detail: "and there is no folder to archive it in"}
	}
	return nil
}

// enter moves this box to the mesh that admitted it and fetches its state.
func (m *Mesh) enter(ctx context.Context, mesh meshID, issuer peer.ID, rows []crdt.Item) error {
	if err := m.replaceMesh(mesh, rows); err != nil {
		return err
	}
	if err := m.publishSelf(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, firstPull)
	defer cancel()
	for {
		err := m.pull(ctx, issuer)
		m.puller.count(issuer, err)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			// A member it is; the state follows when the issuer is reached again.
			m.log.Warn("state of the new mesh not fetched yet", "issuer", issuer.String(), "err", err)
			return nil
		case <-time.After(pullRetry / 4):
		}
	}
}

// askSeeds asks the boxes named in the token until one decides.
func (m *Mesh) askSeeds(ctx context.Context, t token.Token) (peer.ID, []crdt.Item, error) {
	unreachable := &token.Error{Kind: token.Unreachable}
	var answered error
	for _, seed := range t.Seeds {
		p, err := seedPeer(seed)
		if err != nil {
			return "", nil, &token.Error{Kind: token.Mistyped, Detail: "it names a box that cannot exist"}
		}
		if p == m.self {
			continue
		}
		rows, err := m.askSeed(ctx, p, seed.Addrs, t)
		var typed *token.Error
		switch {
		case err == nil:
			return p, rows, nil
		case errors.As(err, &typed) && typed.Kind == token.Unreachable:
			unreachable.Attempts = append(unreachable.Attempts, typed.Attempts...)
		case typed != nil && (typed.Kind == token.WrongMesh || typed.Kind == token.NotAdmin):
			answered = err // another box of the token may still be right
		default:
			return "", nil, err
		}
	}
	if answered != nil {
		return "", nil, answered
	}
	return "", nil, unreachable
}

func seedPeer(seed token.Seed) (peer.ID, error) {
	key, err := crypto.UnmarshalEd25519PublicKey(seed.Key)
	if err != nil {
		return "", fmt.Errorf("read key of a box: %w", err)
	}
	return peer.IDFromPublicKey(key)
}

func (m *Mesh) askSeed(ctx context.Context, p peer.ID, addrs []string, t token.Token) ([]crdt.Item, error) {
	s, err := m.callStranger(ctx, p, addrs)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	// Both sides dial anew once the roster has them.
	defer s.Conn().Close()
	rows, err := m.joinOver(s, t.Mesh, byToken, func(ask joinAsk, offer joinOffer) (joinProof, error) {
		transcript := token.Transcript{
			Mesh: t.Mesh, Token: t.ID, Joiner: m.self.String(), Issuer: p.String(),
			JoinerNonce: [nonceSize]byte(ask.Nonce), IssuerNonce: [nonceSize]byte(offer.Nonce),
		}
		return joinProof{Token: t.ID[:], Proof: transcript.Sign(t.Key())}, nil
	})
	if err != nil {
		s.Reset()
		return nil, fmt.Errorf("join at %s: %w", p, err)
	}
	return rows, nil
}

// callStranger opens a join stream to one who is no member. Its errors say what
// came of each address.
func (m *Mesh) callStranger(ctx context.Context, p peer.ID, addrs []string) (*stream, error) {
	done := m.gater.allow(p)
	defer done()
	m.clearBackoff(p)
	dial, cancel := context.WithTimeout(ctx, joinDial)
	defer cancel()
	err := m.host.Connect(dial, peer.AddrInfo{ID: p, Addrs: dialAddrs(addrs)})
	if err != nil {
		return nil, unreachable(addrs, err)
	}
	s, err := m.openAny(dial, p, protocolJoin)
	if err != nil {
		return nil, unreachable(addrs, err)
	}
	return s, nil
}

// joinOver runs the joiner's side on an open stream and returns the membership
// rows of the mesh, with this box's own record among them.
func (m *Mesh) joinOver(s *stream, mesh meshID, by string, prove func(joinAsk, joinOffer) (joinProof, error)) ([]crdt.Item, error) {
	// News of the admission may come another way before the answer does.
	release, _ := m.guests.hold(s.Conn())
	defer release()
	ask := joinAsk{Mesh: mesh[:], Nonce: make([]byte, nonceSize), By: by}
	if _, err := io.ReadFull(m.cfg.Entropy, ask.Nonce); err != nil {
		return nil, fmt.Errorf("make nonce: %w", err)
	}
	if err := s.writeJoin(ask); err != nil {
		return nil, err
	}
	var offer joinOffer
	if err := s.readJoin(&offer); err != nil {
		return nil, err
	}
	if err := m.checkOffer(s, mesh, by, offer); err != nil {
		return nil, err
	}
	proof, err := prove(ask, offer)
	if err != nil {
		return nil, err
	}
	if err := s.writeJoin(proof); err != nil {
		return nil, err
	}
	var answer joinAnswer
	if err := s.readJoin(&answer); err != nil {
		return nil, err
	}
	if answer.Refused != nil {
		return nil, answer.Refused.err()
	}
	return m.checkAnswer(mesh, answer)
}

// checkOffer makes sure of whom this box is about to prove itself to.
func (m *Mesh) checkOffer(s *stream, mesh meshID, by string, offer joinOffer) error {
	if offer.Refused != nil {
		err := offer.Refused.err()
		var typed *token.Error
		if errors.As(err, &typed) && typed.Kind == token.WrongMesh {
			typed.Want = mesh.String()
		}
		return err
	}
	record, err := verifyChain(mesh, s.peer(), offer.Chain)
	if err != nil || len(offer.Nonce) != nonceSize {
		return &token.Error{Kind: token.WrongMesh, Want: mesh.String(), Detail: "its proof of membership does not hold"}
	}
	if by == byToken && record.Role != RoleAdmin {
		return &token.Error{Kind: token.NotAdmin}
	}
	h, err := s.greet()
	if err != nil {
		return err
	}
	if skew := h.skew(m.now()); skew.Abs() > maxJoinSkew {
		return &token.Error{Kind: token.ClockSkew, Skew: skew, Detail: "this box says " + m.now().UTC().Format(time.DateTime) + " UTC"}
	}
	return nil
}

// checkAnswer takes of the rows those that hold, and insists on this box's own.
func (m *Mesh) checkAnswer(mesh meshID, answer joinAnswer) ([]crdt.Item, error) {
	rows, err := crdt.DecodeItems(answer.Rows)
	if err != nil {
		return nil, fmt.Errorf("read membership: %w", err)
	}
	rows, _ = screen(mesh, nil, rows)
	if !evaluate(mesh, rows).active(m.self) {
		return nil, &token.Error{Kind: token.Refused, Detail: "the other box agreed but sent no valid membership"}
	}
	return rows, nil
}

// dialAddrs turns host:port into multiaddrs.
func dialAddrs(addrs []string) []ma.Multiaddr {
	var out []ma.Multiaddr
	for _, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		part, ok := hostPart(host)
		if a, err := ma.NewMultiaddr(part + "/tcp/" + port); ok && err == nil {
			out = append(out, a)
		}
	}
	return out
}

// hostPart is a host as the beginning of a multiaddr. A link-local address keeps the
// interface that it was given with: without it nobody could dial it.
func hostPart(host string) (part string, ok bool) {
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		// What is meant for an address and is none is no name either.
		return "/dns/" + host, !strings.ContainsAny(host, ":%")
	case ip.Unmap().Is4():
		return "/ip4/" + ip.Unmap().String(), true
	case ip.Zone() != "":
		return "/ip6zone/" + ip.Zone() + "/ip6/" + ip.WithZone("").String(), true
	}
	return "/ip6/" + ip.String(), true
}

// unreachable says of each address why it led nowhere.
func unreachable(addrs []string, err error) error {
	e := &token.Error{Kind: token.Unreachable}
	var dial *swarm.DialError
	if errors.As(err, &dial) {
		for _, failed := range dial.DialErrors {
			e.Attempts = append(e.Attempts, token.Attempt{Addr: plainAddr(failed.Address), Reason: reason(failed.Cause)})
		}
	}
	if len(e.Attempts) == 0 {
		for _, addr := range addrs {
			e.Attempts = append(e.Attempts, token.Attempt{Addr: addr, Reason: reason(err)})
		}
	}
	return e
}

// plainAddr is host:port as people write it.
func plainAddr(a ma.Multiaddr) string {
	port, err := a.ValueForProtocol(ma.P_TCP)
	if err != nil {
		return a.String()
	}
	if ip, ok := multiaddrIP(a); ok {
		if zone, err := a.ValueForProtocol(ma.P_IP6ZONE); err == nil {
			ip = ip.WithZone(zone)
		}
		return net.JoinHostPort(ip.String(), port)
	}
	for _, code := range []int{ma.P_DNS, ma.P_DNS4, ma.P_DNS6} {
		if host, err := a.ValueForProtocol(code); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return a.String()
}

// reason is an error in the words of a person with a network problem.
func reason(err error) string {
	var mismatch sec.ErrPeerIDMismatch
	var errno syscall.Errno
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &mismatch):
		return "another box answers there: " + mismatch.Actual.String()
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timed out"
	case errors.Is(err, io.EOF), strings.Contains(err.Error(), "stream reset"):
		return "the other side closed the connection"
	}
	return err.Error()
}
