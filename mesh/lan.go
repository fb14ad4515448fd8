package mesh

import (
	"context"
	"sync/atomic"

	"llmgw/mesh/discovery"
)

// toggle is a setting that may be turned while the daemon runs. Its zero value is off.
type toggle struct {
	on     atomic.Bool
	turned notifier
}

func (t *toggle) set(on bool) {
	if t.on.Swap(on) != on {
		t.turned.notify()
	}
}

// SetLAN switches mDNS on or off: off, this box neither announces itself nor looks
// for others, and peers given by hand or known to the mesh suffice.
func (m *Mesh) SetLAN(on bool) { m.lan.set(on) }

// SetDHT switches on or off that members which are missing are looked for over a table
// that the members keep among themselves (setting discovery.dht). Boxes that have it
// off take no part in it.
func (m *Mesh) SetDHT(on bool) { m.dht.set(on) }

// SetAutoJoin switches on or off that a box with the same mesh secret that is seen
// is joined with nothing else typed. Off, it is listed, and one that asks is refused
// unless it was given by hand.
func (m *Mesh) SetAutoJoin(on bool) { m.autoJoin.Store(on) }

// runWhile runs d while a setting is on.
func (t *toggle) runWhile(ctx context.Context, d discovery.Discoverer, found chan<- []discovery.Group) {
	turned := t.turned.watch()
	defer turned.Close()
	for ctx.Err() == nil {
		run, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if t.on.Load() {
				d.Run(run, found)
			}
		}()
		select {
		case <-ctx.Done():
		case <-turned.C:
		}
		stop()
		<-ended
		if !t.on.Load() {
			select { // nothing is seen any more
			case found <- nil:
			case <-ctx.Done():
			}
		}
	}
}
