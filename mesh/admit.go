package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/mesh/token"
)

// admitPull bounds the pull of an issuer that does not know the token: what the
// joiner waits for, within its stay as a guest.
const admitPull = 4 * time.Second

// joinsAtOnce is how many joins are answered on one connection at a time, one of this
// box's own included: each may cost a pull from everybody.
const joinsAtOnce = 4

// serveJoin answers one who wants to join. It is the only protocol of ours that a
// stranger gets an answer from.
func (m *Mesh) serveJoin(s *stream) {
	release, joins := m.guests.hold(s.Conn())
	defer release()
	if joins > joinsAtOnce {
		m.refuse(s, protocolJoin, errFlood)
		return
	}
	err := m.admit(s)
	if err == nil {
		m.log.Info("node admitted", "peer", s.Peer())
		m.spread()
		// The joiner closes once it has the answer; then the connection goes.
		s.SetReadDeadline(time.Now().Add(joinWait))
		io.Copy(io.Discard, s)
		s.Close()
		return
	}
	m.counts.refused("join")
	m.log.Warn("join refused", "peer", s.Peer(), "addr", s.Conn().RemoteMultiaddr().String(), "err", err)
	s.CloseWrite()
	s.SetReadDeadline(time.Now().Add(joinWait))
	io.Copy(io.Discard, io.LimitReader(s, maxJoin))
	s.Close()
}

// admit runs the member's side of a join. A refusal has been sent when it returns
// an error.
func (m *Mesh) admit(s *stream) error {
	var ask joinAsk
	if err := s.readJoin(&ask); err != nil {
		return err
	}
	v := m.view.Load()
	offer, err := m.offerJoin(v, s.peer(), ask)
	if err != nil {
		return errors.Join(err, s.writeJoin(joinOffer{Refused: refusalOf(err)}))
	}
	if err := s.writeJoin(offer); err != nil {
		return err
	}
	var proof joinProof
	if err := s.readJoin(&proof); err != nil {
		return err
	}
	if err := m.decide(v, s.peer(), ask, offer, proof); err != nil {
		return errors.Join(err, s.writeJoin(joinAnswer{Refused: refusalOf(err)}))
	}
	rows, err := m.store.List(nsMembers)
	if err != nil {
		return errors.Join(err, s.writeJoin(joinAnswer{Refused: refusalOf(err)}))
	}
	raw, err := crdt.EncodeItems(rows)
	if err != nil {
		return errors.Join(err, s.writeJoin(joinAnswer{Refused: refusalOf(err)}))
	}
	return s.writeJoin(joinAnswer{Rows: raw})
}

// offerJoin proves this box's place in the mesh to a joiner that named it. A
// stranger with another mesh in mind does not learn which one this is.
func (m *Mesh) offerJoin(v *view, p peer.ID, ask joinAsk) (joinOffer, error) {
	self, ok := v.roster.members[m.self]
	switch {
	case len(ask.Nonce) != nonceSize:
		return joinOffer{}, &token.Error{Kind: token.Refused, Detail: "malformed request"}
	case string(ask.Mesh) != string(v.mesh[:]):
		return joinOffer{}, &token.Error{Kind: token.WrongMesh}
	case v.roster.standing(p) == banned:
		return joinOffer{}, &token.Error{Kind: token.Banned, Detail: v.roster.bans[p].body.Reason}
	case !ok || !v.roster.active(m.self):
		return joinOffer{}, &token.Error{Kind: token.WrongMesh}
	case ask.By == byToken && !self.admin():
		return joinOffer{}, &token.Error{Kind: token.NotAdmin}
	case ask.By == bySecret && len(v.roster.bans) > 0:
		return joinOffer{}, &token.Error{Kind: token.Refused, Detail: "a node was removed, so the mesh secret admits nobody until it is replaced"}
	case ask.By == bySecret && !m.autoJoin.Load() && !m.byHand(p):
		return joinOffer{}, &token.Error{Kind: token.Refused, Detail: "joining by mesh secret is switched off there (discovery.auto_join); it takes a token"}
	case ask.By != byToken && ask.By != bySecret:
		return joinOffer{}, &token.Error{Kind: token.Unsupported, Detail: "unknown way to join"}
	}
	nonce := make([]byte, nonceSize)
	if _, err := io.ReadFull(m.cfg.Entropy, nonce); err != nil {
		return joinOffer{}, fmt.Errorf("make nonce: %w", err)
	}
	return joinOffer{Chain: v.roster.chainOf(m.self), Nonce: nonce, Floor: v.roster.floors[p]}, nil
}

// byHand says whether a peer was given by hand, by its ID or as who answers there.
func (m *Mesh) byHand(p peer.ID) bool {
	static := m.staticPeers(m.cfg.Peers)
	m.sights.mu.Lock()
	defer m.sights.mu.Unlock()
	return slices.ContainsFunc(static.Addrs, func(addr string) bool {
		return static.Peers[addr] == p.String() || m.sights.asked[addr].id == p
	})
}

// decide checks the proof and writes the joiner's record.
func (m *Mesh) decide(v *view, p peer.ID, ask joinAsk, offer joinOffer, proof joinProof) error {
	if ask.By == bySecret {
		return m.admitBySecret(v, p, proof)
	}
	if len(proof.Token) != len(token.ID{}) {
		return &token.Error{Kind: token.Refused, Detail: "malformed proof"}
	}
	transcript := token.Transcript{
		Mesh: v.mesh, Token: token.ID(proof.Token), Joiner: p.String(), Issuer: m.self.String(),
		JoinerNonce: [nonceSize]byte(ask.Nonce), IssuerNonce: [nonceSize]byte(offer.Nonce),
	}
	if err := m.knowToken(v, transcript.Token); err != nil {
		return err
	}
	return m.redeem(v, p, transcript, proof.Proof)
}

// admitBySecret takes the record that the joiner signed with the key derived from
// the secret. The screen of merge checks it like any other.
func (m *Mesh) admitBySecret(v *view, p peer.ID, proof joinProof) error {
	var body memberBody
	if _, err := openBlob(kindMember, proof.Record, &body); err != nil {
		return &token.Error{Kind: token.Refused, Detail: "malformed record"}
	}
	if body.Issuer != "" {
		return &token.Error{Kind: token.Refused, Detail: "the record is not signed by the mesh secret"}
	}
	kept, _ := screen(v.mesh, nil, []crdt.Item{recordItem(p, body, proof.Record, m.replica())})
	if len(kept) == 0 {
		return &token.Error{Kind: token.Refused, Detail: "the mesh secret is not the same"}
	}
	// A write of our own, so that gossip carries it on.
	err := m.writeMembers(func(now *view, tx rowWriter) error {
		if now.generation != v.generation {
			return errMeshReplaced
		}
		return tx.SetAt(memberKey(p), recordCell(body), proof.Record, crdt.HLC(body.Serial))
	})
	if err != nil {
		return err
	}
	if !m.view.Load().roster.active(p) {
		return &token.Error{Kind: token.Refused, Detail: "the record is older than what this mesh has of the box"}
	}
	return nil
}

// knowToken makes sure that the token's row is here, by a pull from everybody
// alive when it is not: another box may have made it a moment ago.
func (m *Mesh) knowToken(v *view, id token.ID) error {
	if row, ok, err := m.store.Get(tokenKey(id)); err != nil {
		return fmt.Errorf("read token: %w", err)
	} else if _, bad := checkToken(v, id, row); ok && bad == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.life, admitPull)
	defer cancel()
	var pulls sync.WaitGroup
	for _, p := range m.links.live() {
		pulls.Go(func() { m.puller.count(p, m.pull(ctx, p)) })
	}
	pulls.Wait()
	return nil
}

// redeem takes one use of the token and signs the joiner's record, in one write:
// of two joiners at one box who race for the last use, one gets it.
func (m *Mesh) redeem(v *view, p peer.ID, t token.Transcript, proof []byte) error {
	return m.writeMembers(func(now *view, tx rowWriter) error {
		if now.generation != v.generation {
			return errMeshReplaced
		}
		row, ok, err := tx.Get(tokenKey(t.Token))
		if err != nil {
			return err
		}
		if !ok {
			return &token.Error{Kind: token.Unknown}
		}
		body, err := checkToken(now, t.Token, row)
		if err != nil {
			return errors.Join(&token.Error{Kind: token.Unknown}, err)
		}
		// The proof comes first: only a holder learns what became of the token.
		if !t.Verify(body.Key, proof) {
			return &token.Error{Kind: token.Unknown, Detail: "the proof does not hold"}
		}
		if now.roster.active(p) {
			return nil // the answer to an earlier join was lost on its way
		}
		if err := m.usable(now, t.Token, body, row); err != nil {
			return err
		}
		if ban, ok := now.roster.bans[p]; ok {
			return &token.Error{Kind: token.Banned, Detail: ban.body.Reason}
		}
		if now.roster.admitters[p] && body.Role != RoleAdmin {
			// Its old records still make it one; taking that away needs more.
			return &token.Error{Kind: token.Refused, Detail: "this box was an admin here; an admin must demote it before it can come back as less"}
		}
		return m.writeAdmission(now, tx, p, body.Role, t.Token)
	})
}

func (m *Mesh) usable(v *view, id token.ID, body *tokenBody, row crdt.Row) error {
	switch ago := m.now().Sub(time.Unix(body.Expires, 0)); {
	case revoked(row):
		return &token.Error{Kind: token.Revoked}
	case ago >= 0:
		return &token.Error{Kind: token.Expired, Ago: ago}
	case max(usesOf(row), len(v.roster.redemptions(id, body.Uses))) >= body.Uses:
		return &token.Error{Kind: token.Used}
	}
	return nil
}

func (m *Mesh) writeAdmission(v *view, tx rowWriter, p peer.ID, role Role, id token.ID) error {
	serial := v.roster.floors[p] + 1
	if err := tx.Set(tokenKey(id), useCell(p, serial), []byte(m.self.String())); err != nil {
		return err
	}
	return m.writeRecord(v, tx, p, memberBody{Role: role, Serial: serial, Joined: m.now().Unix(), Token: id[:]})
}

// writeRecord completes a member's record, signs it by this box and writes it.
func (m *Mesh) writeRecord(v *view, tx rowWriter, p peer.ID, body memberBody) error {
	self, ok := v.roster.members[m.self]
	if !ok {
		return ErrNotMember
	}
	body.Mesh, body.Peer, body.At = v.mesh[:], p.String(), m.stamp(v)
	body.Issuer, body.IssuerSerial = m.self.String(), self.record.Serial
	blob, err := sign(kindMember, body, m.privateKey())
	if err != nil {
		return err
	}
	return tx.SetAt(memberKey(p), recordCell(body), blob, crdt.HLC(body.Serial))
}

// stamp is a hybrid time for what is signed: this box's clock, and after all that
// it knows to be signed.
func (m *Mesh) stamp(v *view) crdt.HLC {
	return min(max(crdt.StampOf(m.now()), v.roster.lastAt+1), maxStamp)
}
