package keys

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

const (
	// missBurst wrong credentials may come from an address at once, then one each
	// missEvery: more than people mistype, less than is worth a log's or a store's
	// time.
	missBurst = 20
	missEvery = time.Second
	// maxRationed bounds the addresses that are told apart; those beyond share
	// one ration.
	maxRationed = 4096
)

// RationError refuses a client that tries one wrong credential after the other.
type RationError struct{ RetryAfter time.Duration }

func (e *RationError) Error() string {
	return fmt.Sprintf("too many wrong API keys from this address; try again in %ds", int(e.RetryAfter/time.Second))
}

// rations counts wrong credentials by address. The zero value is ready.
type rations struct {
	mu   sync.Mutex
	from map[netip.Addr]time.Time // when the ration is whole again
}

// take counts one and says how long the client should wait; 0: it is answered.
func (r *rations) take(client netip.Addr, now time.Time) time.Duration {
	client = site(client)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.from == nil {
		r.from = map[netip.Addr]time.Time{}
	}
	if _, known := r.from[client]; !known && len(r.from) >= maxRationed {
		r.drop(now)
		if len(r.from) >= maxRationed {
			client = netip.Addr{}
		}
	}
	whole := r.from[client]
	if whole.Before(now) {
		whole = now
	}
	if over := whole.Add(missEvery).Sub(now) - missBurst*missEvery; over > 0 {
		return max(over.Round(time.Second), time.Second)
	}
	r.from[client] = whole.Add(missEvery)
	return 0
}

// drop forgets addresses with a whole ration, so that the table stays bounded.
func (r *rations) drop(now time.Time) {
	for client, whole := range r.from {
		if !whole.After(now) {
			delete(r.from, client)
		}
	}
}

// site is the address whose ration counts: of IPv6 the network that one customer
// gets.
func site(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}
