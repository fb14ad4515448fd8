package limits

import (
	"maps"
	"slices"
	"time"

	"llmgw/crdt"
)

const (
	// tellBusy, tellQuiet and tellAll are how long counts may wait to be told: of a
	// limit that is over busy, of others, and of those that changed by less than
	// little of their limit over all heads.
	tellBusy  = 100 * time.Millisecond
	tellQuiet = 250 * time.Millisecond
	tellAll   = time.Second
	little    = 0.02
	// repeatEvery is how often this and the last window are told in full: any
	// message may have been lost.
	repeatEvery = 10 * time.Second
	// perMessage entries keep a message under 64 KiB: the three names of an entry are
	// at most 170 bytes together, its numbers 63.
	perMessage = 250
	// slack is how early a message may go out that is due by a tick.
	slack = 10 * time.Millisecond
)

// Tick tells the other heads what was counted and drops what is too old. It is to be
// called every 100 ms, now being the mesh's time.
func (l *Limiter) Tick(now time.Time) {
	l.mu.Lock()
	if now.Sub(l.heads.asked) >= headsEvery {
		l.mu.Unlock()
		list := l.cfg.Heads() // it may take locks of its own
		l.mu.Lock()
		l.meet(list, now)
	}
	l.expire(now)
	messages := l.messages(now)
	l.mu.Unlock()
	if l.cfg.Publish == nil {
		return
	}
	for _, msg := range messages {
		l.cfg.Publish(msg)
		l.stats.sent.Add(1)
	}
}

func (l *Limiter) meet(list []Head, now time.Time) {
	if l.heads.set(list, now) {
		l.stale()
	}
}

// stale has all sums made again: who counts has changed.
func (l *Limiter) stale() {
	for _, m := range l.meters {
		for _, p := range m.panes {
			p.fresh = false
		}
	}
}

// kept is how many windows back counts are kept: as long as peers send them.
const kept = 5

// expire drops old windows, and carries what runs into the one of now.
func (l *Limiter) expire(now time.Time) {
	w := crdt.WindowOf(now)
	for name, m := range l.meters {
		if m.parallel() {
			l.renew(m, now)
		}
		for window := range m.panes {
			if window < w-kept {
				delete(m.panes, window)
			}
		}
		if len(m.panes) == 0 {
			delete(l.meters, name)
			delete(l.changed, m)
		}
	}
}

// messages takes what is due to be told.
func (l *Limiter) messages(now time.Time) [][]byte {
	w := crdt.WindowOf(now)
	var due []crdt.WindowEntry
	if !now.Before(l.repeat) {
		l.repeat = now.Add(repeatEvery)
		for _, m := range l.meters {
			due = append(due, l.entries(m, w, true)...)
			l.told(m, now)
		}
	} else {
		for m := range l.changed {
			if l.due(m, now) {
				due = append(due, l.entries(m, w, false)...)
				l.told(m, now)
			}
		}
	}
	var out [][]byte
	for part := range slices.Chunk(due, perMessage) {
		msg, err := crdt.EncodeWindows(part)
		if err != nil {
			l.cfg.Log.Error("counts cannot be told", "error", err)
			continue
		}
		out = append(out, msg)
	}
	return out
}

func (l *Limiter) told(m *meter, now time.Time) {
	m.told = now
	delete(l.changed, m)
}

// due says whether the changes of a meter should be told now.
func (l *Limiter) due(m *meter, now time.Time) bool {
	passed := now.Sub(m.told)
	if passed < tellBusy-slack {
		return false
	}
	if passed >= tellAll-slack {
		return true
	}
	if !m.counted() {
		return false // it was asked and refused, which moves the shares a little
	}
	if l.read(m, now).taken > busy*float64(m.limit) {
		return true
	}
	// All heads together leave out no more than little.
	return passed >= tellQuiet-slack && l.moved(m)*float64(l.heads.count()) >= little*float64(m.limit)
}

// counted says whether anything of a meter that was not told yet counts for its limit.
func (m *meter) counted() bool {
	for _, p := range m.panes {
		if p.own.Used != p.told.Used || p.held() != p.told.Up-p.told.Down {
			return true
		}
	}
	return false
}

// moved is how much a meter changed since it was told.
func (l *Limiter) moved(m *meter) float64 {
	sum := uint64(0)
	for _, p := range m.panes {
		sum = add(sum, max(p.own.Used-p.told.Used, p.own.Up-p.told.Up, p.own.Down-p.told.Down))
	}
	return float64(sum)
}

// entries takes a meter's own counts that are news to the others, or with all those
// of this and the last window.
func (l *Limiter) entries(m *meter, w int64, all bool) []crdt.WindowEntry {
	var out []crdt.WindowEntry
	for _, window := range slices.Sorted(maps.Keys(m.panes)) {
		p := m.panes[window]
		if p.own == p.told && (!all || window < w-1 || p.own == (crdt.WindowCount{})) {
			continue
		}
		p.told = p.own
		out = append(out, crdt.WindowEntry{Meter: m.name, Window: window, By: l.cfg.Self, Count: p.own})
	}
	return out
}

// TakeSignal takes in what another head published. What cannot be read, or is not its
// own, is dropped.
func (l *Limiter) TakeSignal(from string, msg []byte) {
	entries, err := crdt.DecodeWindows(msg)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		entries, err = l.signed(from, entries)
	}
	if err != nil {
		l.stats.bad.Add(1)
		l.cfg.Log.Debug("rate counts dropped", "peer", from, "error", err)
		return
	}
	l.stats.taken.Add(1)
	l.merge(entries, l.cfg.Now())
}

// signed keeps the entries that a head may tell: its own.
func (l *Limiter) signed(from string, entries []crdt.WindowEntry) ([]crdt.WindowEntry, error) {
	if from == l.cfg.Peer {
		return nil, nil
	}
	for _, e := range entries {
		ok, news := l.heads.wrote(from, e.By)
		if !ok {
			return nil, errForeign
		}
		if news {
			l.stale()
		}
	}
	if l.heads.dead[from] {
		delete(l.heads.dead, from)
		l.stale()
	}
	return entries, nil
}

// merge joins counts of other heads.
func (l *Limiter) merge(entries []crdt.WindowEntry, now time.Time) {
	w := crdt.WindowOf(now)
	for _, e := range entries {
		if e.By == l.cfg.Self || e.Window < w-kept || e.Window > w+1 {
			continue
		}
		if m, known := l.meters[e.Meter]; !known && len(l.meters) >= maxMeters && m == nil {
			continue
		}
		p := l.pane(l.meter(e.Meter), e.Window)
		if p.set.Merge([]crdt.WindowEntry{e}, w) > 0 {
			p.fresh = false
		}
	}
}

// maxMeters bounds what other heads can make this one remember.
const maxMeters = 1 << 18

// Forget drops what a head holds: it is dead or left. It counts again once it is
// heard.
func (l *Limiter) Forget(head string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heads.dead[head] && head != l.cfg.Peer {
		l.heads.dead[head] = true
		l.stale()
	}
}
