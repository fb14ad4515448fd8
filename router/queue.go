package router

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"llmgw/router/openai"
)

// band orders requests that wait: all of a higher one go first.
type band int

// Bands; the zero value is what most requests are of.
const (
	bandLow    band = -1
	bandNormal band = 0
	bandHigh   band = 1
)

const (
	// DefaultQueueTime is how long a request of the normal band waits for a
	// replica with room.
	DefaultQueueTime = time.Minute
	// lowPatience is how many times longer one of the low band waits.
	lowPatience = 10
	// maxWaiting bounds the requests that wait at a node.
	maxWaiting = 5000
	// askAgain is how often a waiting request looks by itself whether there is
	// room: other heads' requests end without this one hearing at once.
	askAgain = 200 * time.Millisecond
	// tellPlace is how often it is told its place.
	tellPlace = time.Second
	// keysTried bounds the keys whose room is looked up at once.
	keysTried = 64
	// maxServed bounds the keys whose share is remembered.
	maxServed = 10_000
	// outputWeight is what a token of an answer counts beside one of a prompt.
	outputWeight = 2
)

// queue holds the requests back that no replica has room for. Among keys the
// one that got least goes first, so that none is kept waiting by another's
// crowd; within a key, who came first.
type queue struct {
	mu      sync.Mutex
	lines   map[string]*line // by model ID
	served  map[string]uint64
	keys    map[string]int // of those who wait, how many of each
	waiting int
}

// line are the requests for one model.
type line struct {
	waiters []*waiter
	handed  int             // let through, and not yet counted at a replica
	polled  time.Time       // when those who wait last had it looked at
	places  map[*waiter]int // in the order that holds for a while
	sorted  time.Time       // when places were
}

type waiter struct {
	key   string
	band  band
	since time.Time
	room  func() int    // at the replicas that may answer it, as they are now
	ready chan struct{} // closed when it may go
}

// pass is a place at some replica. It must be ended once the request is
// counted there.
type pass struct {
	q     *queue
	model string
	once  sync.Once
}

func (p *pass) end() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		p.q.mu.Lock()
		defer p.q.mu.Unlock()
		l := p.q.lines[p.model]
		l.handed--
		p.q.tidy(p.model, l)
	})
}

// enter lets a request through if there is room and nobody who could go waits
// before it, or puts it into the line. Both nil: too many wait.
func (q *queue) enter(model, key string, b band, now time.Time, room func() int) (*pass, *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines == nil {
		q.lines, q.served = make(map[string]*line), make(map[string]uint64)
	}
	l := q.lines[model]
	if l == nil {
		l = &line{}
		q.lines[model] = l
	}
	if len(l.waiters) > 0 {
		q.letGo(l)
	}
	if room()-l.handed > 0 {
		l.handed++
		return &pass{q: q, model: model}, nil
	}
	if q.waiting >= maxWaiting {
		q.tidy(model, l)
		return nil, nil
	}
	q.lift(key)
	w := &waiter{key: key, band: b, since: now, room: room, ready: make(chan struct{})}
	l.waiters = append(l.waiters, w)
	q.waiting++
	return nil, w
}

// lift takes a key that comes back to where the others are: what it did not
// use before is no credit.
func (q *queue) lift(key string) {
	if q.keys == nil {
		q.keys = make(map[string]int)
	}
	if q.keys[key]++; q.keys[key] > 1 {
		return
	}
	least, found := uint64(0), false
	for other := range q.keys {
		if got := q.served[other]; other != key && (!found || got < least) {
			least, found = got, true
		}
	}
	q.served[key] = max(q.served[key], least)
}

// advance lets as many go as there is room for.
func (q *queue) advance(model string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[model]; l != nil && len(l.waiters) > 0 {
		q.letGo(l)
	}
}

// poll is advance for those who wait, who all ask: once for all of them.
func (q *queue) poll(model string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[model]; l != nil && len(l.waiters) > 0 && now.Sub(l.polled) >= askAgain/2 {
		l.polled = now
		q.letGo(l)
	}
}

// letGo lets those go who have room, in their order. What one key has no room for,
// another may: they may differ in the nodes that they may use. The caller holds mu.
func (q *queue) letGo(l *line) {
	full := map[string]bool{}
	for len(full) < keysTried {
		var w *waiter
		for _, o := range l.waiters {
			if !full[o.key] && (w == nil || q.order(o, w) < 0) {
				w = o
			}
		}
		switch {
		case w == nil:
			return
		case w.room()-l.handed <= 0:
			full[w.key] = true
			continue
		}
		q.take(l, w)
		l.handed++
		close(w.ready)
	}
}

func (q *queue) order(a, b *waiter) int {
	return cmp.Or(cmp.Compare(b.band, a.band), cmp.Compare(q.served[a.key], q.served[b.key]), a.since.Compare(b.since))
}

func (q *queue) take(l *line, w *waiter) {
	l.waiters = slices.DeleteFunc(l.waiters, func(o *waiter) bool { return o == w })
	q.waiting--
	if q.keys[w.key]--; q.keys[w.key] == 0 {
		delete(q.keys, w.key)
	}
}

// leave takes a request out. One that was let through meanwhile passes its
// place on.
func (q *queue) leave(model string, w *waiter) {
	q.mu.Lock()
	l := q.lines[model]
	select {
	case <-w.ready:
		l.handed--
	default:
		q.take(l, w)
	}
	q.tidy(model, l)
	q.mu.Unlock()
	q.advance(model)
}

// tidy forgets a line in which nothing is left.
func (q *queue) tidy(model string, l *line) {
	if l.handed == 0 && len(l.waiters) == 0 {
		delete(q.lines, model)
	}
}

// place is how many go before a request, and how many wait, as of a moment ago:
// all who wait ask for theirs each second, and one look serves them all.
func (q *queue) place(model string, w *waiter, now time.Time) (before, all int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[model]
	if before, known := l.places[w]; known && now.Sub(l.sorted) < tellPlace {
		return before, len(l.places)
	}
	ordered := slices.SortedFunc(slices.Values(l.waiters), q.order)
	l.places, l.sorted = make(map[*waiter]int, len(ordered)), now
	for at, o := range ordered {
		l.places[o] = at
	}
	return l.places[w], len(ordered)
}

// charge counts what a key got.
func (q *queue) charge(key string, u openai.Usage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.served) >= maxServed {
		clear(q.served)
	}
	if q.served != nil {
		q.served[key] += u.Input - min(u.Cached, u.Input) + outputWeight*u.Output
	}
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// bandOf is what a request says of its haste. It can only step back: who may go
// first is the key's to say.
func (t *request) bandOf(tier string) band {
	if strings.EqualFold(t.req.Header.Get(priorityHeader), "low") || tier == `"flex"` {
		return bandLow
	}
	return bandNormal
}

// priorityHeader lets a client give others precedence.
const priorityHeader = "X-LLMGW-Priority"

// queue waits until a replica has room. The pass must be ended; without one and
// without an error the client has left.
func (i *inference) queue(ctx context.Context, o offers) (*pass, *openai.Error) {
	r := i.t.r
	model := o.views[0].Model.ID
	p, w := r.queue.enter(model, i.t.key.ID, i.band, time.Now(), i.room)
	switch {
	case p != nil:
		return p, nil
	case w == nil:
		return nil, queueFull()
	}
	return i.stand(ctx, model, w)
}

// stand waits in the line.
func (i *inference) stand(ctx context.Context, model string, w *waiter) (*pass, *openai.Error) {
	q := &i.t.r.queue
	patience := time.Duration(i.t.r.queueTime.Load())
	if w.band == bandLow {
		patience *= lowPatience
	}
	expired := time.NewTimer(patience)
	defer expired.Stop()
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	i.note, i.spoke = "", 0
	told := time.Duration(0)
	for {
		select {
		case <-w.ready:
			return &pass{q: q, model: model}, nil
		case <-ctx.Done():
			q.leave(model, w)
			return nil, nil
		case <-expired.C:
			before, all := q.place(model, w, time.Now())
			q.leave(model, w)
			return nil, queuedTooLong(i.means.name, before, all, patience)
		case <-tick.C:
		}
		q.poll(model, time.Now())
		waited := time.Since(w.since)
		if waited-told < tellPlace {
			continue
		}
		told = waited
		// An answer in one piece keeps its status as long as it can.
		if !i.stream && !i.t.out.committed {
			continue
		}
		before, all := q.place(model, w, time.Now())
		if i.hold(waited, fmt.Sprintf("queued: %d of %d", before+1, all)) != nil {
			q.leave(model, w)
			return nil, nil
		}
	}
}

// room is how many requests the replicas that may answer this one take now. One
// that does not tell its slots is never full, and what has no replica any more is
// not to be waited for here.
func (i *inference) room() int {
	o, e := i.look()
	if e != nil || len(o.replicas) == 0 {
		return maxWaiting
	}
	free, bounded := i.t.r.picker.Room(candidates(o.replicas), i.t.r.now())
	if !bounded {
		return maxWaiting
	}
	return free
}

// crowded is the answer to more requests at once than the node may have.
func crowded(most int) *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "overloaded",
		Message: fmt.Sprintf("this box answers %d requests already, as many as it may; try again in 1 s", most), RetryAfter: time.Second,
		Hint: "another box of the mesh may have room; llmgw settings set router.max_inflight N changes the bound",
	}
}

func queueFull() *openai.Error {
	return &openai.Error{
		Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: "overloaded",
		Message: fmt.Sprintf("%d requests wait at this box already; try again in 1 s", maxWaiting), RetryAfter: time.Second,
	}
}

func queuedTooLong(model string, before, all int, patience time.Duration) *openai.Error {
	return &openai.Error{
		Status: http.StatusTooManyRequests, Type: openai.TypeRateLimit, Code: "rate_limit_exceeded",
		Message:    fmt.Sprintf("all replicas of %q are busy: after %v the request was still number %d of %d; try again in 5 s", clip(model), patience, before+1, all),
		RetryAfter: 5 * time.Second, Hint: "llmgw scale " + clip(model) + " --replicas N serves more at once",
	}
}
