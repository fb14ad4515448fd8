package mesh

import (
	"context"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"llmgw/crdt/store"
)

const (
	// uptimeTick is how often this box looks whether it has a live peer.
	uptimeTick = 2 * time.Second
	// uptimeEach is how often the time with live peers is written down.
	uptimeEach = time.Minute
	// collectEach is how often deletions that all members know are forgotten.
	collectEach = 10 * time.Minute
)

// runAbsence counts the time with live peers, looks for a way out while this box has
// to re-seed, and forgets deletions that everybody knows.
func (m *Mesh) runAbsence(ctx context.Context) {
	tick := time.NewTicker(uptimeTick)
	defer tick.Stop()
	var up, since time.Duration
	last := m.now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := m.now()
		// Neither a suspend nor a step of a clock is uptime.
		passed := min(max(now.Sub(last), 0), 2*uptimeTick)
		last = now
		if len(m.links.live()) > 0 {
			up += passed
		}
		if up >= uptimeEach {
			m.countUptime(up)
			up = 0
		}
		if since += passed; since >= collectEach {
			m.collect()
			since = 0
		}
		m.absence.look(now)
	}
}

func (m *Mesh) countUptime(d time.Duration) {
	if err := m.store.AddUptime(d); err != nil {
		m.log.Warn("uptime not counted", "err", err)
	}
	m.absence.refresh()
}

// look acts while this box is not in step.
func (a *absence) look(now time.Time) {
	switch a.stage() {
	case inStep:
		return
	case wentOn:
		a.mu.Lock()
		over := now.Sub(a.went) >= wentOnFor
		a.mu.Unlock()
		if over {
			a.now.CompareAndSwap(wentOn, inStep)
		}
		return
	}
	// Each pull tells both sides where the other stands, and re-seeds when it can.
	a.m.puller.requestAll()
	told, ready := a.lonely(now)
	if !ready {
		return
	}
	if err := a.m.store.MergeNormally(told); err != nil {
		a.m.log.Error("this box cannot go on after its absence", "err", err)
		return
	}
	a.mu.Lock()
	a.went = now
	a.mu.Unlock()
	a.now.Store(wentOn)
	a.refresh()
	a.m.log.Warn("no live box has kept up with the mesh, so all go on with what they have together; deleted rows may come back")
	a.m.events.note(now, "", Alarm{
		Kind: AlarmAway, Text: "no live box had kept up with the mesh, so all put together what they had; rows that were deleted may be back",
		Fix: "look through models and API keys, and delete what is not wanted",
	})
	a.m.changes.notify()
	a.m.puller.requestAll()
}

// lonely says whether this box, and all others that are live, found nobody to re-seed
// from, and the longest uptime that one of them told.
func (a *absence) lonely(now time.Time) (told time.Duration, ready bool) {
	live := a.m.links.live()
	a.mu.Lock()
	defer a.mu.Unlock()
	ready = len(live) > 0
	for _, p := range live {
		c := a.of(p)
		if c.stage == inStep {
			a.since = time.Time{}
			a.now.CompareAndSwap(alone, tooLong)
			return 0, false
		}
		ready = ready && c.stage != tooLong
		told = max(told, c.uptime)
	}
	if len(live) == 0 {
		a.since = time.Time{}
		return 0, false
	}
	if a.since.IsZero() {
		a.since = now
	}
	if now.Sub(a.since) < aloneAfter {
		return 0, false
	}
	a.now.CompareAndSwap(tooLong, alone)
	return told, ready
}

// collect forgets the deletions that every member knows, or that are old enough for
// the return rule.
func (m *Mesh) collect() {
	r := m.view.Load().roster
	if m.absence.overdue() || r.outcast {
		return
	}
	done, err := m.store.CollectTombstones(m.absence.acks(r))
	if err != nil {
		m.log.Warn("deletions not collected", "err", err)
		return
	}
	if done.Stable+done.Aged > 0 {
		m.log.Debug("deletions forgotten", "known_to_all", done.Stable, "aged", done.Aged, "kept", done.Kept)
	}
	m.absence.blocked(done)
}

// acks is how far each other member has this box's log.
func (a *absence) acks(r *roster) map[string]store.Cursor {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]store.Cursor{}
	for p := range r.members {
		if p != a.m.self && r.active(p) {
			out[p.String()] = a.of(p).acked
		}
	}
	return out
}

func (a *absence) blocked(done store.Collected) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, c := range a.peers {
		c.blocks = done.Blocking[p.String()]
	}
}

// describe adds to a node how far it has what this box knows.
func (a *absence) describe(n *Node, p peer.ID, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.peers[p]
	if !ok || c.at.IsZero() {
		return
	}
	n.Synced, n.LastSync, n.Blocks = true, now.Sub(c.at), c.blocks
}
