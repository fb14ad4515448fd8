package limits

import (
	"math"
	"slices"
	"time"

	"llmgw/crdt"
	"llmgw/mesh/catalog"
)

// meter counts one metric of one key, project or tenant.
type meter struct {
	name  crdt.Meter
	limit uint64 // as last asked
	panes map[int64]*pane
	spent []use // of this head, no older than the horizon
	told  time.Time
}

// pane is one minute of a meter. The set holds the counts of all heads; own and
// others are sums of it that each request asks for.
type pane struct {
	set    *crdt.WindowSet
	own    crdt.WindowCount
	told   crdt.WindowCount  // what the others were told of own
	others uint64            // used and held by the other heads
	quiet  uint64            // of others: by heads that are not heard now
	asked  uint64            // what the other heads were asked for, refusals included
	grants map[string]uint64 // by peer: what this head, as owner, let others hold
	fresh  bool              // others and asked hold
}

// use is an amount that this head admitted at a time.
type use struct {
	at     time.Time
	amount uint64
}

func (p *pane) held() uint64  { return p.own.Up - p.own.Down }
func (p *pane) total() uint64 { return p.own.Used + p.held() + p.others }

func (l *Limiter) meter(name crdt.Meter) *meter {
	m, ok := l.meters[name]
	if !ok {
		m = &meter{name: name, panes: map[int64]*pane{}}
		l.meters[name] = m
	}
	return m
}

func (m *meter) parallel() bool { return m.name.Metric == string(catalog.MetricParallel) }

// pane gives the pane of a window for writing.
func (l *Limiter) pane(m *meter, window int64) *pane {
	p, ok := m.panes[window]
	if !ok {
		p = &pane{set: crdt.NewWindowSet(l.cfg.Self), fresh: true}
		m.panes[window] = p
	}
	return p
}

// peek gives a pane with sums that hold; an empty one if nothing was counted.
func (l *Limiter) peek(m *meter, window int64) *pane {
	p, ok := m.panes[window]
	if !ok {
		return &pane{}
	}
	if !p.fresh {
		l.sum(m, p)
	}
	return p
}

// sum reads what the other heads counted. What heads hold that are dead or were
// started anew since, ended with them.
func (l *Limiter) sum(m *meter, p *pane) {
	p.others, p.quiet, p.asked, p.fresh = 0, 0, 0, true
	ups := map[string]uint64{}
	for _, e := range p.set.All() {
		if e.By == l.cfg.Self {
			continue
		}
		peer, live := l.heads.holder(e.By)
		count := e.Count.Used
		if live && e.Count.Up > e.Count.Down {
			count = add(count, e.Count.Up-e.Count.Down)
		}
		if live {
			ups[peer] = e.Count.Up
		}
		if l.heads.silent[peer] {
			p.quiet = add(p.quiet, count)
		}
		p.asked = add(p.asked, e.Count.Up)
		p.others = add(p.others, count)
	}
	for peer, granted := range p.grants {
		if l.heads.live(peer) && granted > ups[peer] {
			p.others = add(p.others, granted-ups[peer]) // it has not told of it yet
		}
	}
}

func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// level is how much of a meter is taken at a time.
type level struct {
	window        int64
	elapsed       float64 // of the window, 0 to 1
	now, last     float64 // taken in this window, and in the one before
	taken         float64 // in the minute back from now; of parallel requests: now
	quiet         float64 // of taken: by heads that are not heard now
	asked, others float64 // of this and the last window: by all, by the other heads
}

// read finds out how much is taken. Counts of the next window are of heads whose
// clock is ahead.
func (l *Limiter) read(m *meter, now time.Time) level {
	w := crdt.WindowOf(now)
	v := level{window: w, elapsed: float64(now.UnixNano()-w*int64(crdt.WindowLength)) / float64(crdt.WindowLength)}
	last, this, next := l.peek(m, w-1), l.peek(m, w), l.peek(m, w+1)
	v.now = float64(this.total()) + float64(next.total())
	v.last = float64(last.total())
	old := 1 - v.elapsed
	if m.parallel() {
		old = 1
	}
	v.taken = v.now + v.last*old
	v.quiet = float64(this.quiet) + float64(next.quiet) + float64(last.quiet)*old
	v.others = float64(last.asked) + float64(this.asked) + float64(next.asked)
	v.asked = v.others + float64(last.own.Up) + float64(this.own.Up)
	return v
}

// wait is how long it takes until so much less is taken, if nothing more is used. Who
// waits that long by a clock of his own must not be early by the mesh's, which may go
// slower meanwhile.
func (v level) wait(m *meter, less float64) time.Duration {
	if m.parallel() || less <= 0 {
		return time.Second
	}
	d := v.until(less)
	return upToSeconds(d + crdt.MaxSlew(d) + time.Millisecond)
}

// until is wait by the mesh's clock.
func (v level) until(less float64) time.Duration {
	rest := 1 - v.elapsed
	if v.last > 0 && less <= v.last*rest {
		return minutes(less / v.last)
	}
	less -= v.last * rest
	if v.now <= 0 {
		return minutes(rest)
	}
	return minutes(rest + min(less/v.now, 1))
}

func minutes(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }

// upToSeconds rounds up to whole seconds, one at least.
func upToSeconds(d time.Duration) time.Duration { return time.Duration(seconds(d)) * time.Second }

// reset is when nothing of what is taken now counts any more.
func (v level) reset() time.Duration {
	if v.now > 0 {
		return upToSeconds(minutes(2 - v.elapsed))
	}
	return upToSeconds(minutes(1 - v.elapsed))
}

// recent is what this head admitted within the horizon.
func (m *meter) recent(now time.Time) uint64 {
	old := slices.IndexFunc(m.spent, func(u use) bool { return now.Sub(u.at) < horizon })
	if old < 0 {
		old = len(m.spent)
	}
	m.spent = slices.Delete(m.spent, 0, old)
	sum := uint64(0)
	for _, u := range m.spent {
		sum = add(sum, u.amount)
	}
	return sum
}

// hold counts an amount as held.
func (l *Limiter) hold(m *meter, window int64, amount uint64, now time.Time) (crdt.Hold, error) {
	p := l.pane(m, window)
	h, err := p.set.Reserve(m.name, window, amount)
	if err != nil {
		return h, err
	}
	p.own.Up += amount
	if last := len(m.spent) - 1; last >= 0 && now.Sub(m.spent[last].at) < horizon/16 {
		m.spent[last].amount += amount
	} else {
		m.spent = append(m.spent, use{now, amount})
	}
	l.changed[m] = struct{}{}
	return h, nil
}

// free ends a hold; what was used of it counts in its own window, what was used
// beyond it in the one of now.
func (l *Limiter) free(m *meter, h crdt.Hold, used uint64, now time.Time) error {
	l.changed[m] = struct{}{}
	if m.parallel() {
		return l.leave(m, h.Amount, now)
	}
	beyond := used - min(used, h.Amount)
	if p, ok := m.panes[h.Window]; ok {
		if err := p.set.Commit(h, h.Window, used-beyond); err != nil {
			return err
		}
		p.own.Down += h.Amount
		p.own.Used += used - beyond
	}
	if beyond == 0 {
		return nil
	}
	w := crdt.WindowOf(now)
	p := l.pane(m, w)
	if err := p.set.Add(m.name, w, beyond); err != nil {
		return err
	}
	p.own.Used += beyond
	return nil
}

// want tells the others that this head was asked for more than it could give.
func (l *Limiter) want(m *meter, amount uint64, now time.Time) {
	w := crdt.WindowOf(now)
	p := l.pane(m, w)
	h, err := p.set.Reserve(m.name, w, amount)
	if err != nil || p.set.Release(h) != nil {
		return // counted to the end of its range: the shares stay as they are
	}
	p.own.Up += amount
	p.own.Down += amount
	l.changed[m] = struct{}{}
}

// renew moves what runs into the window of now: it lasts longer than windows do.
func (l *Limiter) renew(m *meter, now time.Time) {
	w := crdt.WindowOf(now)
	for old, p := range m.panes {
		if old >= w || p.held() == 0 {
			continue
		}
		n := p.held()
		to := l.pane(m, w)
		if _, err := to.set.Reserve(m.name, w, n); err != nil {
			continue
		}
		to.own.Up += n
		if err := p.set.Release(crdt.Hold{Meter: m.name, Window: old, Amount: n}); err == nil {
			p.own.Down += n
		}
		l.changed[m] = struct{}{}
	}
}

// leave ends requests that ran at once.
func (l *Limiter) leave(m *meter, n uint64, now time.Time) error {
	l.renew(m, now)
	for window, p := range m.panes {
		if part := min(p.held(), n); part > 0 {
			if err := p.set.Release(crdt.Hold{Meter: m.name, Window: window, Amount: part}); err != nil {
				return err
			}
			p.own.Down += part
			n -= part
		}
	}
	return nil
}
