package mesh

import (
	"context"
	"sync/atomic"

	"llmgw/mesh/discovery"
)

// lanSwitch is the setting discovery.lan: whether this box speaks mDNS.
type lanSwitch struct {
	on     atomic.Bool
	turned notifier
}

// SetLAN switches mDNS on or off: off, this box neither announces itself nor looks
// for others, and peers given by hand or known to the mesh suffice.
func (m *Mesh) SetLAN(on bool) {
	if m.lan.on.Swap(on) != on {
		m.lan.turned.notify()
	}
}

// SetAutoJoin switches on or off that a box with the same mesh secret that is seen
// is joined with nothing else typed. Off, it is listed, and one that asks is refused
// unless it was given by hand.
func (m *Mesh) SetAutoJoin(on bool) { m.autoJoin.Store(on) }

// runLAN runs d while the setting is on.
func (m *Mesh) runLAN(ctx context.Context, d discovery.Discoverer, found chan<- []discovery.Group) {
	turned := m.lan.turned.watch()
	defer turned.Close()
	for ctx.Err() == nil {
		run, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if m.lan.on.Load() {
				d.Run(run, found)
			}
		}()
		select {
		case <-ctx.Done():
		case <-turned.C:
		}
		stop()
		<-ended
		if !m.lan.on.Load() {
			select { // nothing is seen any more
			case found <- nil:
			case <-ctx.Done():
			}
		}
	}
}
