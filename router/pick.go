package router

import "github.com/cespare/xxhash/v2"

// tried names a replica as it was when it was asked: one that came back under
// another epoch may be asked again.
type tried struct {
	replicaKey
	epoch uint64
}

// pick chooses among the replicas that were not asked yet: one of this node
// before all others, then the one with the fewest requests in flight, then by
// rendezvous of the API key, so that one client's prompts find their cache.
func (r *Router) pick(view ModelView, asked map[tried]bool, key string) (Replica, bool) {
	best, found := Replica{}, false
	for _, c := range view.Replicas {
		if asked[tried{c.key(), c.Epoch}] {
			continue
		}
		if !found || r.better(c, best, key) {
			best, found = c, true
		}
	}
	return best, found
}

func (r *Router) better(a, b Replica, key string) bool {
	if a.Local != b.Local {
		return a.Local
	}
	if x, y := r.inFlight(a), r.inFlight(b); x != y {
		return x < y
	}
	return rendezvous(key, a) > rendezvous(key, b)
}

// inFlight is what the holder told or what this node itself sent there,
// whichever is more: the holder's number holds ours, but is older.
func (r *Router) inFlight(c Replica) int { return max(c.InFlight, r.load.of(c.key())) }

func rendezvous(key string, c Replica) uint64 {
	var d xxhash.Digest
	for _, part := range []string{key, c.Model, c.Peer} {
		_, _ = d.WriteString(part)
		_, _ = d.Write([]byte{0, byte(c.Slot)})
	}
	return d.Sum64()
}
