package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// errOverdue: what this box writes goes out once it has caught up.
var errOverdue = errors.New("this box was away for too long, or was restored, and tells its changes to others once it has taken over their state")

// Offer pushes what this box wrote to one live peer and waits until that has it
// on disk, Config.OfferWait at most. Without a live peer there is nobody to wait for: nil.
func (m *Mesh) Offer(ctx context.Context) error {
	if m.absence.overdue() && len(m.links.live()) > 0 {
		return errOverdue
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.OfferWait)
	defer cancel()
	// One that was lost a moment ago is nobody to wait for.
	live := slices.DeleteFunc(m.links.live(), func(p peer.ID) bool {
		return m.host.Network().Connectedness(p) != network.Connected
	})
	slices.Sort(live)
	var errs []error
	for _, p := range live {
		// A stuck peer must not use up the time of the others.
		each, done := context.WithTimeout(ctx, m.cfg.OfferWait/2)
		err := m.offerTo(each, p)
		done()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// offerOrWarn offers a write that stands whether or not a second box has it.
func (m *Mesh) offerOrWarn(ctx context.Context, what string) {
	if err := m.Offer(ctx); err != nil {
		m.log.Warn("a change is on this box only so far", "change", what, "err", err)
	}
}

// spread has every live peer pull from this box, in the background: news of
// membership that gossip, which carries only what a box wrote itself, might miss.
func (m *Mesh) spread() {
	for _, p := range m.links.live() {
		if !m.handlers.enter() {
			return
		}
		go func() {
			defer m.handlers.leave()
			ctx, cancel := context.WithTimeout(m.life, m.cfg.OfferWait)
			defer cancel()
			if err := m.offerTo(ctx, p); err != nil {
				m.log.Debug("news not taken", "peer", p.String(), "err", err)
			}
		}()
	}
}

// offerTo has p pull from this box, on a stream that this box opened.
func (m *Mesh) offerTo(ctx context.Context, p peer.ID) error {
	s, err := m.open(ctx, p, protocolSync)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	if err := m.offerOver(s); err != nil {
		s.Reset()
		return fmt.Errorf("offer to %s: %w", p, err)
	}
	s.Close()
	return nil
}

func (m *Mesh) offerOver(s *stream) error {
	v := m.view.Load()
	index, want := m.store.IndexID(), m.store.Sequence()
	if err := m.writeSync(s, syncAsk{Kind: askOffer, Mesh: v.mesh[:]}); err != nil {
		return err
	}
	var ask syncAsk
	if err := m.readSync(s, &ask); err != nil {
		return err
	}
	if ask.Kind != askPull {
		return fmt.Errorf("answer of kind %d to an offer: %w", ask.Kind, errFrame)
	}
	if err := m.sendPages(s, ask); err != nil {
		return err
	}
	var ack syncAck
	if err := m.readSync(s, &ack); err != nil {
		return err
	}
	if ack.Seq < want {
		return fmt.Errorf("peer has %d of %d rows", ack.Seq, want)
	}
	return m.absence.acknowledged(s.peer(), cursorOf(index, ack.Seq, ack.Proof))
}

// takeOffer pulls over the stream on which the offer came, then acknowledges.
func (m *Mesh) takeOffer(s *stream, ask syncAsk) error {
	v := m.view.Load()
	if string(ask.Mesh) != string(v.mesh[:]) {
		return errMeshReplaced
	}
	wait, cancel := context.WithTimeout(m.life, m.cfg.OfferWait) // as long as the other side does
	defer cancel()
	done, err := m.puller.turn(wait, s.peer())
	if err != nil {
		return err
	}
	_, err = m.pullOver(s)
	done()
	if err != nil {
		return err
	}
	cursor, err := m.store.Cursor(s.Peer())
	if err != nil {
		return fmt.Errorf("read cursor: %w", err)
	}
	return m.writeSync(s, syncAck{Seq: cursor.Seq, Proof: cursor.Proof[:]})
}
