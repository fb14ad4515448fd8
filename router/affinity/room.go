package affinity

import "time"

// Room is how many more requests the candidates take together before the
// queues of their engines grow beyond half of their slots. It goes by what
// heads tell of requests, which is younger than what holders do. bounded is
// false when a candidate does not tell its slots: then it is never full. One
// whose KV cache is full of what it computes has no room for more.
func (p *Picker) Room(cs []Candidate, now time.Time) (free int, bounded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range cs {
		if c.Slots <= 0 {
			return 0, false
		}
		_, inFlight := p.know(c.Replica, now).load(now)
		if c.KVUse > kvCeiling && max(inFlight, c.InFlight) > 0 {
			continue
		}
		free += max(c.Slots+max(c.Slots/2, 1)-inFlight, 0)
	}
	return free, true
}
