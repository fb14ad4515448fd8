package crdt

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// WindowLength is the length of a rate window. Windows are aligned to mesh time.
	WindowLength = time.Minute
	// windowsKept is how many windows back counts are still taken and kept; windowsAhead how many ahead they are taken, for
	// clocks that differ.
	windowsKept, windowsAhead = 5, 1
)

// WindowOf returns the number of the window that a mesh time lies in.
func WindowOf(t time.Time) int64 {
	n := t.UnixNano() / int64(WindowLength)
	if t.UnixNano()%int64(WindowLength) < 0 {
		n--
	}
	return n
}

// Incarnation is one run of one store's process, the only writer of its counts. A restart counts on from 0 under another one,
// while what was counted before still counts.
type Incarnation struct {
	Replica ReplicaID
	Boot    uint64
}

// Meter names what is counted: a limit, whom it limits, and in what (requests, tokens).
type Meter struct{ Limit, Subject, Metric string }

// WindowCount is what one incarnation counted in one window. All three only grow. What is reserved now is Up - Down.
type WindowCount struct{ Used, Up, Down uint64 }

// WindowEntry is one count on its way between nodes.
type WindowEntry struct {
	Meter  Meter
	Window int64
	By     Incarnation
	Count  WindowCount
}

// Hold is a reservation. It ends with one Commit or Release.
type Hold struct {
	Meter  Meter
	Window int64
	Amount uint64
}

// WindowSet holds the counts of the last minutes of all incarnations, in memory alone. The window is a part of the key, so
// nothing is ever reset, and counts that come late join the window that they belong to. Counts join by the maximum, in any
// order and any number of times. A WindowSet is not safe for use by several goroutines.
type WindowSet struct {
	self    Incarnation
	windows map[windowKey]map[Incarnation]WindowCount
}

type windowKey struct {
	meter  Meter
	window int64
}

// NewWindowSet counts as the incarnation self, which MUST never have counted before.
func NewWindowSet(self Incarnation) *WindowSet {
	return &WindowSet{self: self, windows: map[windowKey]map[Incarnation]WindowCount{}}
}

// Add counts n as used. It fails with ErrExhausted at the end of the range.
func (w *WindowSet) Add(m Meter, window int64, n uint64) error {
	return w.grow(m, window, func(c *WindowCount) (err error) { c.Used, err = plus(c.Used, n); return err })
}

// Reserve counts n as held.
func (w *WindowSet) Reserve(m Meter, window int64, n uint64) (Hold, error) {
	err := w.grow(m, window, func(c *WindowCount) (err error) { c.Up, err = plus(c.Up, n); return err })
	if err != nil {
		return Hold{}, err
	}
	return Hold{Meter: m, Window: window, Amount: n}, nil
}

// Release ends a reservation. One whose window is gone went with it.
func (w *WindowSet) Release(h Hold) error {
	if _, ok := w.windows[windowKey{h.Meter, h.Window}]; !ok {
		return nil
	}
	return w.grow(h.Meter, h.Window, func(c *WindowCount) (err error) { c.Down, err = plus(c.Down, h.Amount); return err })
}

// Commit ends a reservation and counts what was used in the window of now, also when the reservation is gone.
func (w *WindowSet) Commit(h Hold, window int64, used uint64) error {
	if err := w.Release(h); err != nil {
		return err
	}
	return w.Add(h.Meter, window, used)
}

func (w *WindowSet) grow(m Meter, window int64, change func(*WindowCount) error) error {
	key := windowKey{m, window}
	count := w.windows[key][w.self]
	if err := change(&count); err != nil {
		return err
	}
	w.put(key, w.self, count)
	return nil
}

func (w *WindowSet) put(key windowKey, by Incarnation, count WindowCount) {
	if w.windows[key] == nil {
		w.windows[key] = map[Incarnation]WindowCount{}
	}
	w.windows[key][by] = count
}

// Merge joins counts of other nodes; those of windows too old or too far ahead of window, the one of now, are
// ignored. It returns how many counts were news.
func (w *WindowSet) Merge(entries []WindowEntry, window int64) (news int) {
	for _, e := range entries {
		if !current(e.Window, window) {
			continue
		}
		key := windowKey{e.Meter, e.Window}
		had := w.windows[key][e.By]
		joined := WindowCount{max(had.Used, e.Count.Used), max(had.Up, e.Count.Up), max(had.Down, e.Count.Down)}
		if joined != had {
			w.put(key, e.By, joined)
			news++
		}
	}
	return news
}

func current(window, now int64) bool { return window >= now-windowsKept && window <= now+windowsAhead }

// Expire drops the windows that are too old. It is called about once a window.
func (w *WindowSet) Expire(window int64) {
	maps.DeleteFunc(w.windows, func(key windowKey, _ map[Incarnation]WindowCount) bool {
		return key.window < window-windowsKept
	})
}

// Used sums up a window over all nodes.
func (w *WindowSet) Used(m Meter, window int64) uint64 {
	sum := uint64(0)
	for _, c := range w.windows[windowKey{m, window}] {
		sum = plusAtMost(sum, c.Used)
	}
	return sum
}

// Held sums up what is reserved in all windows. live says which incarnations may still hold anything: a process that
// ended released nothing.
func (w *WindowSet) Held(m Meter, live func(Incarnation) bool) uint64 {
	sum := uint64(0)
	for key, counts := range w.windows {
		if key.meter != m {
			continue
		}
		for by, c := range counts {
			if live(by) && c.Up > c.Down {
				sum = plusAtMost(sum, c.Up-c.Down)
			}
		}
	}
	return sum
}

// Estimate is what was used in the minute before now: all of this window, and of the last one the share that the minute
// still covers.
func (w *WindowSet) Estimate(m Meter, now time.Time) float64 {
	window := WindowOf(now)
	elapsed := now.Sub(time.Unix(0, window*int64(WindowLength)))
	rest := 1 - float64(elapsed)/float64(WindowLength)
	return float64(w.Used(m, window)) + float64(w.Used(m, window-1))*rest
}

// Own returns the own counts from window on, in a fixed order: what is told to the others.
func (w *WindowSet) Own(window int64) []WindowEntry {
	return w.entries(func(key windowKey, by Incarnation) bool { return by == w.self && key.window >= window })
}

// All returns every count, in a fixed order: what a node that starts is told.
func (w *WindowSet) All() []WindowEntry {
	return w.entries(func(windowKey, Incarnation) bool { return true })
}

func (w *WindowSet) entries(wanted func(windowKey, Incarnation) bool) []WindowEntry {
	var out []WindowEntry
	for key, counts := range w.windows {
		for by, c := range counts {
			if wanted(key, by) {
				out = append(out, WindowEntry{Meter: key.meter, Window: key.window, By: by, Count: c})
			}
		}
	}
	slices.SortFunc(out, func(a, b WindowEntry) int {
		return cmp.Or(cmp.Compare(a.Window, b.Window), cmp.Compare(a.Meter.Limit, b.Meter.Limit),
			cmp.Compare(a.Meter.Subject, b.Meter.Subject), cmp.Compare(a.Meter.Metric, b.Meter.Metric),
			cmp.Compare(a.By.Replica, b.By.Replica), cmp.Compare(a.By.Boot, b.By.Boot))
	})
	return out
}
