package store

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"llmgw/crdt"
)

// Lead tells by how much a store's newest stamp was ahead of this node's clock when it arrived: a lower bound of
// how wrong one of the two clocks is.
type Lead struct {
	By    crdt.ReplicaID
	Lead  time.Duration
	Stamp crdt.HLC
	Key   crdt.Key
}

// Leads lists the writers whose newest stamp arrived more than 60 s ahead of this node's clock, the farthest first. A writer
// leaves the list when a newer stamp of it is in time.
func (s *Store) Leads() []Lead { return s.leads.list() }

// observe lets the clock follow the stamps of merged items.
func (s *Store) observe(items []crdt.Item) {
	last := crdt.HLC(0)
	for _, item := range items {
		last = max(last, newest(item.Row))
	}
	if s.clock.Observe(last) && s.leads.none() {
		return // in time, as nearly always
	}
	for _, item := range items {
		s.observeEach(item)
	}
}

func (s *Store) observeEach(item crdt.Item) {
	for _, cell := range item.Row.Cells {
		followed := s.clock.Observe(cell.At)
		lead := Lead{By: cell.By, Lead: s.clock.Lead(cell.At), Stamp: cell.At, Key: item.Key}
		if s.leads.note(lead, !followed) {
			s.log.Warn("a store stamps its writes far ahead of this node's clock",
				slog.Uint64("store", uint64(cell.By)), slog.Time("stamp", cell.At.Time()),
				slog.String("key", item.Key.String()))
		}
	}
}

// newest is the highest stamp in a row.
func newest(row crdt.Row) crdt.HLC {
	last := crdt.HLC(0)
	for _, cell := range row.Cells {
		last = max(last, cell.At)
	}
	return last
}

// leads remembers the newest stamp of each writer that is ahead, and which were warned about in this run.
type leads struct {
	mu     sync.Mutex
	ahead  map[crdt.ReplicaID]Lead
	warned map[crdt.ReplicaID]bool
}

// maxLeads bounds the memory that invented writers can take.
const maxLeads = 1000

func (l *leads) none() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ahead) == 0
}

// note takes in one stamp and says whether to warn of its writer.
func (l *leads) note(lead Lead, ahead bool) (warn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	had, known := l.ahead[lead.By]
	if known && lead.Stamp <= had.Stamp {
		return false
	}
	if !ahead {
		delete(l.ahead, lead.By)
		return false
	}
	if !known && len(l.ahead) >= maxLeads {
		return false
	}
	if l.ahead == nil {
		l.ahead, l.warned = map[crdt.ReplicaID]Lead{}, map[crdt.ReplicaID]bool{}
	}
	l.ahead[lead.By] = lead
	warn = !l.warned[lead.By] && len(l.warned) < maxLeads
	l.warned[lead.By] = l.warned[lead.By] || warn
	return warn
}

func (l *leads) list() []Lead {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Lead, 0, len(l.ahead))
	for _, lead := range l.ahead {
		out = append(out, lead)
	}
	slices.SortFunc(out, func(a, b Lead) int {
		return cmp.Or(cmp.Compare(b.Lead, a.Lead), cmp.Compare(a.By, b.By))
	})
	return out
}
