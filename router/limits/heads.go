package limits

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"llmgw/crdt"
)

// headsEvery is how often the mesh is asked who its heads are.
const headsEvery = 500 * time.Millisecond

// heads is who admits requests.
type heads struct {
	self   string
	list   []string // heard now, sorted, this one among them
	all    int      // heard in the last ten minutes
	silent map[string]bool
	dead   map[string]bool             // forgotten, and not heard since
	writes map[string]crdt.Incarnation // newest of each head
	author map[crdt.ReplicaID]string   // whose counts they are
	asked  time.Time
}

func (h *heads) reset(self string, own crdt.Incarnation) {
	*h = heads{
		self: self, silent: map[string]bool{}, dead: map[string]bool{},
		writes: map[string]crdt.Incarnation{self: own}, author: map[crdt.ReplicaID]string{own.Replica: self},
	}
}

// set takes who is there; true: it is not as it was.
func (h *heads) set(list []Head, now time.Time) bool {
	h.asked = now
	next, silent := []string{h.self}, map[string]bool{}
	for _, head := range list {
		switch {
		case head.Peer == h.self:
		case head.Silent:
			silent[head.Peer] = true
		default:
			next = append(next, head.Peer)
		}
	}
	slices.Sort(next)
	next = slices.Compact(next)
	all := len(next) + len(silent)
	same := slices.Equal(next, h.list) && all == h.all
	h.list, h.all, h.silent = next, all, silent
	return !same
}

// count is how many heads are heard.
func (h *heads) count() int { return len(h.list) }

// heard is the part of limits that the heads have which are heard.
func (h *heads) heard() float64 { return float64(len(h.list)) / float64(h.all) }

// live says whether what a head holds counts.
func (h *heads) live(peer string) bool { return !h.dead[peer] }

// holder finds who writes as an incarnation, and whether it still does.
func (h *heads) holder(by crdt.Incarnation) (peer string, live bool) {
	peer, ok := h.author[by.Replica]
	return peer, ok && h.writes[peer] == by && h.live(peer)
}

// wrote notes that a head counts as an incarnation. It is false for one that is
// another head's.
func (h *heads) wrote(peer string, by crdt.Incarnation) (ok, news bool) {
	if owner, known := h.author[by.Replica]; known && owner != peer {
		return false, false
	}
	h.author[by.Replica] = peer
	had, known := h.writes[peer]
	if known && by.Boot < had.Boot {
		return true, false // of an earlier life: it still counts as used
	}
	h.writes[peer] = by
	return true, !known || had != by
}

// turn says whether this head is one of the n whose turn it is to take what is too
// little to be shared. The last of them has just come in, and listens for a horizon.
func (h *heads) turn(now time.Time, n int) bool {
	slot, in := slotOf(now)
	at := h.place(slot)
	return at < n-1 || at == n-1 && in >= horizon
}

// place is how many turns after slot this head's is.
func (h *heads) place(slot int64) int {
	n := int64(len(h.list))
	return int((int64(slices.Index(h.list, h.self)) - slot%n + n) % n)
}

// untilTurn is the time to the next one.
func (h *heads) untilTurn(now time.Time) time.Duration {
	slot, in := slotOf(now)
	wait := time.Duration(h.place(slot))*turnTime + horizon - in
	if wait <= 0 {
		wait += time.Duration(len(h.list)) * turnTime
	}
	return wait
}

func slotOf(now time.Time) (slot int64, in time.Duration) {
	n := now.UnixNano()
	return n / int64(turnTime), time.Duration(n % int64(turnTime))
}

// owner is the head that rendezvous hashing picks for a subject.
func (h *heads) owner(subject string) string {
	return slices.MaxFunc(h.list, func(a, b string) int {
		x, y := weigh(subject, a), weigh(subject, b)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return strings.Compare(a, b)
	})
}

func weigh(subject, peer string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(subject))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(peer))
	// FNV's high bits hardly move with the last bytes; this spreads them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
