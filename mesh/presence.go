package mesh

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"llmgw/mesh/catalog"
)

const (
	// presenceGap is the least time between two sendings to one peer.
	presenceGap = time.Second
	// presenceFull repeats the presence whole, small moves included.
	presenceFull = 30 * time.Second
	// coarseParts: a measured quantity counts as moved when it leaves its
	// sixteenth of the whole.
	coarseParts = 16
)

// presenceBoard holds what this box tells of itself.
type presenceBoard struct {
	m *Mesh

	// setting is held from what a new presence is made of until it is in place: one
	// that is announced again must not take the place of a newer one.
	setting sync.Mutex

	mu     sync.Mutex
	now    catalog.Presence
	coarse []byte // what was last announced, without small moves
	// version counts announcements; a link sends when it has not sent this one.
	version uint64
}

func newPresenceBoard(m *Mesh) *presenceBoard {
	b := &presenceBoard{m: m, version: 1}
	b.now = catalog.Presence{Peer: m.self.String(), Boot: m.boot, Sequence: 1, Name: m.Name(), Version: m.cfg.Version}
	return b
}

// set takes a new presence and wakes the links when it differs in more than small
// moves from what was announced.
func (b *presenceBoard) set(p catalog.Presence) {
	b.setting.Lock()
	defer b.setting.Unlock()
	b.put(p)
}

// put is called with setting held.
func (b *presenceBoard) put(p catalog.Presence) {
	p.Peer, p.Boot = b.m.self.String(), b.m.boot
	p.Name, p.Version = b.m.Name(), b.m.cfg.Version
	p.Addresses = b.m.addresses()
	coarse, err := marshal(coarsePresence(p))
	if err != nil || len(coarse) > maxPresence/2 {
		b.m.log.Error("presence not announced", "bytes", len(coarse), "err", err)
		return
	}
	b.mu.Lock()
	p.Sequence = b.now.Sequence + 1
	b.now = p
	news := !bytes.Equal(coarse, b.coarse)
	if news {
		b.coarse = coarse
		b.version++
	}
	b.mu.Unlock()
	if news {
		b.m.links.announce()
		b.m.changes.notify()
	}
}

// touch announces again what is known, with the addresses of now.
func (b *presenceBoard) touch() {
	b.setting.Lock()
	defer b.setting.Unlock()
	p, _ := b.current()
	b.put(p)
}

func (b *presenceBoard) current() (catalog.Presence, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now, b.version
}

// coarsePresence rounds measured values, so that noise is no news.
func coarsePresence(p catalog.Presence) catalog.Presence {
	p.Sequence = 0
	p.Inventory.RAMFree = coarseOf(p.Inventory.RAMFree, p.Inventory.RAMTotal)
	p.Inventory.Devices = slices.Clone(p.Inventory.Devices)
	for i := range p.Inventory.Devices {
		d := &p.Inventory.Devices[i]
		d.MemoryFree = coarseOf(d.MemoryFree, d.MemoryTotal)
		d.BusyPercent = coarseFloat(d.BusyPercent, 100.0/coarseParts)
		d.Celsius = coarseFloat(d.Celsius, 4)
	}
	if p.DiskFree != nil {
		whole := coarseDisk
		p.DiskFree = coarseOf(p.DiskFree, &whole)
	}
	return p
}

// coarseDisk stands for a disk's size, which presence does not tell: free space
// counts as moved by steps of 1 GiB.
const coarseDiskStep = 1 << 30

var coarseDisk = int64(coarseParts * coarseDiskStep)

func coarseOf(v, whole *int64) *int64 {
	if v == nil || whole == nil || *whole < coarseParts {
		return v
	}
	step := *whole / coarseParts
	rounded := *v / step * step
	return &rounded
}

func coarseFloat(v *float64, step float64) *float64 {
	if v == nil {
		return nil
	}
	rounded := float64(int(*v/step)) * step
	return &rounded
}

// newer says whether presence b replaces a.
func newer(a, b catalog.Presence) bool {
	if a.Boot != b.Boot {
		return b.Boot > a.Boot
	}
	return b.Sequence > a.Sequence
}

// due says when a link that last sent at sent should send next: a new version as
// soon as the gap allows, the old one when the full repeat comes.
func due(sent time.Time, sentVersion, version uint64) time.Time {
	if sentVersion != version {
		return sent.Add(presenceGap)
	}
	return sent.Add(presenceFull)
}
