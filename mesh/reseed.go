package mesh

import (
	"errors"
	"fmt"

	"llmgw/crdt/store"
)

var (
	// errBothAway: neither box may give the other rows.
	errBothAway = errors.New("the other box was away for too long as well")
	// errRolledBack: the store has another identity since a moment ago.
	errRolledBack = errors.New("this box's store was set back and goes on under a new identity")
)

// reseed replaces the own rows by those of the other side, but for what this box
// wrote while nobody knew of it. Broken off, it leaves everything as it was and
// begins anew the next time.
func (p *pulling) reseed() error {
	m := p.m
	into, err := m.store.BeginReseed()
	if errors.Is(err, store.ErrReseeding) {
		return nil // another pull is at it
	}
	if err != nil {
		return fmt.Errorf("re-seed: %w", err)
	}
	if p.epoch != m.absence.epoch.Load() {
		return into.Abort() // one ended just now
	}
	p.into = into
	last, err := p.fetchAll()
	if err == nil {
		err = p.swap(last)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("re-seed: %w", err), into.Abort())
	}
	m.absence.reseeded(p.s.peer())
	return nil
}

func (p *pulling) fetchAll() (syncPage, error) {
	// Membership rows are never deleted, so none of them can come back by mistake, and
	// a ban that only this box knows must not get lost.
	members, err := p.m.store.List(nsMembers)
	if err != nil {
		return syncPage{}, fmt.Errorf("read members: %w", err)
	}
	if err := p.into.Merge(members); err != nil {
		return syncPage{}, err
	}
	if err := p.ask(); err != nil {
		return syncPage{}, err
	}
	last, err := p.readPages()
	if err == nil && last.Next == 0 {
		err = errBothAway
	}
	return last, err
}

// swap lets the fetched rows take effect. The old ones are archived first: who
// knows what a person still wants of them.
func (p *pulling) swap(last syncPage) error {
	m := p.m
	archive := ""
	if m.cfg.ArchiveDir != "" {
		var err error
		if archive, err = m.archive(); err != nil {
			return err
		}
	}
	m.swap.Lock()
	if m.view.Load().generation != p.view.generation {
		m.swap.Unlock()
		return errMeshReplaced
	}
	err := p.into.Finish(p.s.Peer(), store.Cursor{IndexID: last.Index, Seq: last.Next}, p.told)
	m.absence.epoch.Add(1)
	m.swap.Unlock()
	if err != nil {
		return err
	}
	m.log.Warn("this box took over the shared state of another one, because deletions may have been forgotten that it never saw",
		"peer", p.s.Peer(), "archive", archive)
	m.absence.keepArchive(archive)
	m.puller.pulled.Store(p.view.generation + 1)
	_, err = m.reload()
	return err
}
