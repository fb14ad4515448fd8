package mesh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/mesh/token"
)

// errLastAdmin: without an admin nobody could ever be admitted or removed again.
var errLastAdmin = errors.New("it is the last admin of a mesh with other members")

// Leave ends this box's membership: it tells the peers, drops the state, and is
// alone in a new provisional mesh. Keys and weights on disk are not the mesh's.
func (m *Mesh) Leave(ctx context.Context) error {
	m.joinMu.Lock()
	defer m.joinMu.Unlock()
	if err := m.mayLeave(); err != nil {
		return fmt.Errorf("leave mesh: %w", err)
	}
	if err := m.sayLeft(ctx); err != nil {
		return fmt.Errorf("leave mesh: %w", err)
	}
	m.log.Info("left the mesh", "mesh", m.MeshID())
	if err := m.foundRandom(); err != nil {
		return fmt.Errorf("leave mesh: %w", err)
	}
	return m.publishSelf()
}

func (m *Mesh) mayLeave() error {
	r := m.view.Load().roster
	self, ok := r.members[m.self]
	if !ok || !self.admin() || r.admins(m.self) > 0 {
		return nil
	}
	for p := range r.members {
		if p != m.self && r.active(p) {
			return errLastAdmin
		}
	}
	return nil
}

// sayLeft writes this box's own leave record and pushes it to every live peer;
// whoever is away hears of it from those.
func (m *Mesh) sayLeft(ctx context.Context) error {
	err := m.writeLeft()
	if err != nil {
		return err
	}
	m.tellAll(ctx, m.offerLeft)
	return nil
}

// tellAll offers what this box wrote to every live peer, before it is gone.
func (m *Mesh) tellAll(ctx context.Context, offer func(context.Context, peer.ID) error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.OfferWait)
	defer cancel()
	var tells sync.WaitGroup
	for _, p := range m.links.live() {
		tells.Go(func() {
			if err := offer(ctx, p); err != nil {
				m.log.Info("node was not told of the last change of this box", "peer", p.String(), "err", err)
			}
		})
	}
	tells.Wait()
}

// offerLeft is an offer whose receiver may close the connection once it has
// understood: then it has heard.
func (m *Mesh) offerLeft(ctx context.Context, p peer.ID) error {
	err := m.offerTo(ctx, p)
	if err != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// writeLeft does not reload the roster: until the peers have heard, this box still
// speaks to them as the member that it is about to cease to be.
func (m *Mesh) writeLeft() error {
	m.swap.RLock()
	defer m.swap.RUnlock()
	return m.updateRows(func(v *view, tx rowWriter) error {
		self, ok := v.roster.members[m.self]
		if !ok {
			return nil
		}
		serial := self.record.Serial
		body := leftBody{Mesh: v.mesh[:], Peer: m.self.String(), Serial: serial, At: m.now().Unix()}
		blob, err := sign(kindLeft, body, m.privateKey())
		if err != nil {
			return err
		}
		return tx.SetAt(memberKey(m.self), cellLeft, blob, crdt.HLC(serial))
	})
}

// archive writes the whole state to a file before it is dropped.
func (m *Mesh) archive() (string, error) {
	name := fmt.Sprintf("mesh-%s-%s.backup", m.view.Load().mesh.tag(), m.now().UTC().Format("20060102T150405"))
	path := filepath.Join(m.cfg.ArchiveDir, name)
	if m.cfg.ArchiveDir == "" {
		return "", &token.Error{Kind: token.NotProvisional, Detail: "and there is no folder to archive it in"}
	}
	if err := os.MkdirAll(m.cfg.ArchiveDir, 0o700); err != nil {
		return "", fmt.Errorf("archive the old mesh: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("archive the old mesh: %w", err)
	}
	if err := errors.Join(m.store.Backup(f), f.Sync(), f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("archive the old mesh: %w", err), os.Remove(path))
	}
	return path, nil
}
