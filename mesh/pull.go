package mesh

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt"
	"llmgw/crdt/store"
)

// pull asks a peer for what this box lacks and merges it. Where it breaks off it
// goes on the next time.
func (m *Mesh) pull(ctx context.Context, p peer.ID) error {
	done, err := m.puller.turn(ctx, p)
	if err != nil {
		return err
	}
	defer done()
	wait, cancel := context.WithTimeout(ctx, syncWait)
	s, err := m.open(wait, p, protocolSync)
	cancel()
	if err != nil {
		return err
	}
	// A read does not look at the context. Each frame has a deadline of its own, so
	// that much to fetch may take its time.
	stop := context.AfterFunc(ctx, func() { s.Reset() })
	defer stop()
	money, err := m.pullOver(s)
	if err != nil {
		s.Reset()
		m.warden.blame(p, err)
		return fmt.Errorf("pull from %s: %w", p, err)
	}
	s.Close()
	return m.money.pull(ctx, p, money)
}

// pulling is the asking side of one pull.
type pulling struct {
	m     *Mesh
	s     *stream
	view  *view
	epoch uint64 // of the own rows, see absence
	told  time.Duration
	index uint64 // of the other's log
	terms terms
	into  *store.Reseed // set: the rows replace the own ones
	money moneyTold
	// idle counts frames that carried no cursor on, last is the cursor so far.
	idle int
	last uint64
}

// pullOver runs the asking side of a pull on an open stream. It returns what the other
// side knows of spending.
func (m *Mesh) pullOver(s *stream) (moneyTold, error) {
	if err := s.SetReadDeadline(time.Now().Add(syncWait)); err != nil {
		return moneyTold{}, fmt.Errorf("bound sync: %w", err)
	}
	// The other's hello tells whether rows may be taken at all.
	h, err := s.greet()
	if err != nil {
		return moneyTold{}, err
	}
	p := &pulling{m: m, s: s, view: m.view.Load(), epoch: m.absence.epoch.Load(), told: h.uptime(), index: h.Index}
	if p.terms, err = m.absence.meets(s.peer(), h); err != nil {
		return moneyTold{}, err
	}
	err = p.run()
	return p.money, err
}

func (p *pulling) run() error {
	if p.terms.reseed {
		return p.reseed()
	}
	if err := p.ask(); err != nil {
		return err
	}
	if _, err := p.readPages(); err != nil || !p.terms.take {
		return err
	}
	return p.complete()
}

// ask sends the request: from where the last pull ended, or for everything.
func (p *pulling) ask() error {
	ask := syncAsk{Kind: askPull, Mesh: p.view.mesh[:], Membership: !p.terms.take && !p.terms.reseed}
	cursor, err := p.m.store.Cursor(p.s.Peer())
	if err != nil {
		return fmt.Errorf("read cursor: %w", err)
	}
	ask.Index, ask.Seq, ask.Proof = cursor.IndexID, cursor.Seq, cursor.Proof[:]
	if p.into != nil {
		ask.Seq = 0
	} else if !ask.Membership && cursor.IndexID != p.index {
		ask.Known = p.m.compareFirst(p.s.peer())
	}
	rows, err := p.m.store.List(nsMembers)
	if err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	if ask.Roster, err = digestRows(rows); err != nil {
		return err
	}
	return p.m.writeSync(p.s, ask)
}

// readPages takes pages to the end and returns the last.
func (p *pulling) readPages() (syncPage, error) {
	for first := true; ; first = false {
		var page syncPage
		if err := p.m.readSync(p.s, &page); err != nil {
			return page, err
		}
		if first {
			if err := p.begin(page); err != nil {
				return page, err
			}
		}
		// A row that is too large for a frame comes in parts; nothing else does.
		if p.idle++; page.Next > p.last {
			p.idle, p.last = 0, page.Next
		}
		if p.idle > maxParts {
			return page, fmt.Errorf("%d frames without an end: %w", p.idle, errFrame)
		}
		if err := p.take(page); err != nil {
			return page, err
		}
		if !page.More {
			return page, nil
		}
	}
}

// begin takes what the other told ahead of its rows. An llmgw without the first
// page tells nothing.
func (p *pulling) begin(first syncPage) error {
	if first.Money != nil {
		p.money = *first.Money
	}
	if first.Away {
		if p.into != nil {
			return errBothAway
		}
		p.terms.take = false
	}
	if first.KnownIndex == 0 {
		return nil
	}
	index := p.m.store.IndexID()
	err := p.m.absence.acknowledged(p.s.peer(), cursorOf(first.KnownIndex, first.KnownSeq, first.KnownProof))
	if err == nil && p.m.store.IndexID() != index {
		return errRolledBack // what to ask for is another question now
	}
	return err
}

// take merges one page and then, not before, moves the cursor.
func (p *pulling) take(page syncPage) error {
	if len(page.Items) > 0 && (page.Members || p.terms.take || p.into != nil) {
		items, err := crdt.DecodeItems(page.Items)
		if err != nil {
			return fmt.Errorf("decode page: %w: %w", errFrame, err)
		}
		refused, err := p.merge(items)
		if err != nil {
			return err
		}
		p.m.refusedRows(p.s.peer(), refused)
	}
	if page.Members || page.Next == 0 || !p.terms.take {
		return nil
	}
	return p.m.keepCursor(p, cursorOf(page.Index, page.Next, page.Proof))
}

func (p *pulling) merge(items []crdt.Item) (refused int, err error) {
	if p.into == nil {
		return p.m.merge(p.view.generation, items)
	}
	current, err := p.m.store.List(nsMembers)
	if err != nil {
		return 0, fmt.Errorf("read members: %w", err)
	}
	kept, refused := screen(p.view.mesh, current, items)
	return refused, p.into.Merge(kept)
}

// refusedRows accounts for rows that their signer may not write.
func (m *Mesh) refusedRows(from peer.ID, count int) {
	if count == 0 {
		return
	}
	m.counts.rejected.Add(float64(count))
	m.log.Debug("membership rows refused: their signer may not write them", "peer", from.String(), "count", count)
	m.warden.offence(from, offenceRows)
}

// keepCursor notes how far p came, unless the rows that it merged are gone since.
func (m *Mesh) keepCursor(p *pulling, c store.Cursor) error {
	m.swap.RLock()
	defer m.swap.RUnlock()
	if m.view.Load().generation != p.view.generation || m.absence.epoch.Load() != p.epoch {
		return errMeshReplaced
	}
	if err := m.store.SetCursor(p.s.Peer(), c); err != nil {
		return fmt.Errorf("keep cursor: %w", err)
	}
	return nil
}

// complete notes that everything of the other is here.
func (p *pulling) complete() error {
	if err := p.m.absence.synced(p.told); err != nil {
		return err
	}
	p.m.puller.pulled.Store(p.view.generation + 1)
	return nil
}
