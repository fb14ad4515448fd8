package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/mesh/discovery"
	"llmgw/mesh/token"
)

// admitsBySecret says whether this box holds the secret of the mesh that it is in.
func (m *Mesh) admitsBySecret() bool {
	if m.cfg.Secret == nil {
		return false
	}
	r, err := secretRoot(m.cfg.Secret)
	return err == nil && r.mesh == m.view.Load().mesh
}

// joinBySecret has this box and another with the same secret admit each other.
func (m *Mesh) joinBySecret(ctx context.Context, p peer.ID, g discovery.Group) {
	if !m.sights.begin(p, m.now(), m.self > p && g.Source == "mdns") {
		return
	}
	defer m.sights.end(p)
	key := cmp.Or(g.Peer, firstOf(g.Addrs))
	err := m.askBySecret(ctx, p, g.Addrs)
	var typed *token.Error
	switch {
	case err == nil:
		m.log.Info("joined by mesh secret", "peer", p.String())
		m.spread()
	case errors.As(err, &typed) && typed.Kind == token.WrongMesh:
		m.sights.because(key, "it does not hold the same mesh secret")
	default:
		m.sights.because(key, err.Error())
		m.log.Info("not joined by mesh secret", "peer", p.String(), "err", err)
	}
}

// begin says whether it is time for an attempt at p.
func (s *sightings) begin(p peer.ID, now time.Time, second bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ever := s.tried[p]
	switch {
	case s.busy[p]:
		return false
	case !ever && second:
		// Its own attempt is on its way; ours comes if that fails.
		s.tried[p] = now.Add(secondMover - joinRetry)
		return false
	case ever && now.Sub(last) < joinRetry:
		return false
	}
	s.tried[p], s.busy[p] = now, true
	return true
}

func (s *sightings) end(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, p)
}

func (m *Mesh) askBySecret(ctx context.Context, p peer.ID, addrs []string) error {
	r, err := secretRoot(m.cfg.Secret)
	if err != nil {
		return err
	}
	v := m.view.Load()
	s, err := m.callStranger(ctx, p, addrs)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	defer s.Conn().Close()
	var own []crdt.Item
	rows, err := m.joinOver(s, r.mesh, bySecret, func(_ joinAsk, offer joinOffer) (joinProof, error) {
		body, blob, err := m.recordAbove(v, r, offer.Floor)
		own = []crdt.Item{recordItem(m.self, body, blob, m.replica())}
		return joinProof{Record: blob}, err
	})
	if err != nil {
		s.Reset()
		return fmt.Errorf("join at %s: %w", p, err)
	}
	if _, err := m.merge(v.generation, append(own, rows...)); err != nil {
		return fmt.Errorf("join at %s: %w", p, err)
	}
	return m.publishSelf()
}

// recordAbove is this box's own record with a serial that the other side takes for
// new: after a leave the one at hand is used up there.
func (m *Mesh) recordAbove(v *view, r root, floor uint64) (memberBody, []byte, error) {
	if self, ok := v.roster.members[m.self]; ok && self.record.Issuer == "" && self.record.Serial > floor {
		return self.record, self.signed.blob, nil
	}
	return m.rootRecord(r, floor+1)
}
