package affinity

import "time"

const (
	// FlushAfter is how long a change waits for others to be told with it.
	FlushAfter = 25 * time.Millisecond
	// tellings of each decision and of each change of load. With a fifth of the
	// messages lost, eight heads that tell twice come to 0.99 of one head's hits and
	// 1.03 of its time to the first token; on the synthetic trace it takes three
	// times to stay within 1.1.
	tellings = 3
	// repeatAfter is the time between tellings.
	repeatAfter = 50 * time.Millisecond
	// refreshAfter is when a load that has not changed is told again.
	refreshAfter = time.Second
	// maxHeads bounds the heads that are listened to.
	maxHeads = 1024
	// silentFor is when a head is forgotten.
	silentFor = 10 * time.Minute
	// queued bounds the decisions that wait for a flush.
	queued = 1024
)

// decision is a prompt that was given to a replica.
type decision struct {
	replica Replica
	session Hash
	chain   Chain
	depth   int // blocks that were warm before
}

// outbox is what the other heads are to be told.
type outbox struct {
	boot, seq uint64
	fresh     []decision
	again     [tellings - 1][]decision // told already, last first
	changed   bool                     // a load did
	due       int                      // tellings that are still to come
}

func (o *outbox) decided(d decision) {
	if o.boot != 0 && len(o.fresh) < queued {
		o.fresh = append(o.fresh, d)
	}
}

func (o *outbox) moved() { o.changed = o.boot != 0 }

// newestFirst lists what is told: what is dropped from a full message is old.
func (o *outbox) newestFirst() []decision {
	var all []decision
	for _, ds := range append([][]decision{o.fresh}, o.again[:]...) {
		for i := len(ds) - 1; i >= 0; i-- {
			all = append(all, ds[i])
		}
	}
	return all
}

// head is another one, as heard.
type head struct {
	boot, seq uint64
	heard     time.Time
}

// Flush makes the message that tells the other heads of this one's decisions
// and load; nil: there is nothing to tell. It is to be called FlushAfter a Pick
// or a ticket's change, and again after the time that it returns, unless that
// is 0.
func (p *Picker) Flush(now time.Time) (msg []byte, again time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	loads, busy := p.ownLoads(now)
	o := &p.out
	if o.changed || len(o.fresh) > 0 {
		o.due = tellings
	}
	if o.boot == 0 || o.due == 0 && !busy {
		return nil, 0
	}
	o.seq++
	msg = encode(message{boot: o.boot, seq: o.seq, loads: loads, decisions: o.newestFirst()})
	p.stats.Shared++
	copy(o.again[1:], o.again[:])
	o.again[0], o.fresh, o.changed = o.fresh, nil, false
	o.due = max(o.due-1, 0)
	switch {
	case o.due > 0:
		return msg, repeatAfter
	case busy:
		return msg, refreshAfter
	}
	return msg, 0
}

// ownLoads lists the replicas where this head has requests, or has measured.
func (p *Picker) ownLoads(now time.Time) (loads []loadOf, busy bool) {
	for id, r := range p.replicas {
		measured := r.rate > 0 && now.Sub(r.rated) < rateFor
		if (r.inFlight == 0 && !measured) || len(loads) == maxLoads {
			continue
		}
		l := loadOf{replica: id, pending: r.pending, inFlight: r.inFlight}
		if measured {
			l.rate = int(r.rate)
		}
		loads = append(loads, l)
		busy = busy || r.inFlight > 0
	}
	return loads, busy
}

// Take takes in another head's message. gap says that some of that head's were
// lost, or that it is new: a snapshot would help. Errors are of a malformed or
// unknown message, which changes nothing.
func (p *Picker) Take(from string, msg []byte, now time.Time) (gap bool, err error) {
	m, err := decode(msg)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.heads[from]
	if h == nil && len(p.heads) >= maxHeads {
		return false, nil
	}
	p.stats.Taken++
	if h == nil || h.boot != m.boot {
		h = &head{boot: m.boot}
		p.heads[from] = h
		gap = m.seq > tellings
	}
	h.heard = now
	if m.seq > h.seq {
		// What was lost comes again in the next ones.
		gap = gap || h.seq > 0 && m.seq > h.seq+tellings
		h.seq = m.seq
		p.told(from, m.loads, now)
	} else {
		p.stats.Stale++
	}
	if !p.off {
		p.follow(m.decisions, now)
	}
	return gap, nil
}

// told replaces all that a head told of its load before.
func (p *Picker) told(from string, loads []loadOf, now time.Time) {
	for _, r := range p.replicas {
		if t, ok := r.told[from]; ok {
			t.pending, t.inFlight = 0, 0
			r.told[from] = t
		}
	}
	for _, l := range loads {
		if r := p.hear(l.replica, now); r != nil {
			r.told[from] = load{pending: l.pending, inFlight: l.inFlight, rate: l.rate, at: now}
		}
	}
}

// hear finds a replica that another head spoke of. It may be one that is not
// in our catalog yet; if it never comes there, Keep drops it.
func (p *Picker) hear(id Replica, now time.Time) *replica {
	if p.replicas[id] == nil && len(p.replicas) >= maxReplicas {
		return nil
	}
	return p.know(id, now)
}

// follow makes warm what others decided, the oldest first.
func (p *Picker) follow(ds []decision, now time.Time) {
	for i := len(ds) - 1; i >= 0; i-- {
		if r := p.hear(ds[i].replica, now); r != nil {
			p.warm(r, ds[i].session, ds[i].chain, now)
		}
	}
}

// Lost forgets what a head told of its load: it is gone.
func (p *Picker) Lost(from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(from)
}

func (p *Picker) drop(from string) {
	delete(p.heads, from)
	for _, r := range p.replicas {
		delete(r.told, from)
	}
}

func (p *Picker) dropSilent(now time.Time) {
	for from, h := range p.heads {
		if now.Sub(h.heard) > silentFor {
			p.drop(from)
		}
	}
}
