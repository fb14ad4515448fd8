// Package hardware owns what a box is made of, as measured: its CPU, threads,
// memory and temperature now, and its GPUs through probers, one for each
// driver.
//
// What changes is read anew at each call, what is there for good now and then.
// Nothing is guessed: a number that cannot be read stays nil, which readers show as unknown and never as zero.
// A sensor that vanishes between two calls becomes unknown again. Methods are
// safe for concurrent use; they read small kernel files and do not block.
package hardware

import (
	"context"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"llmgw/mesh/catalog"
)

// Prober reads the devices of one driver.
//
// Devices may be called at any time, also when there is no such device: then
// it returns none and no error. Notes are for a person and go into the
// inventory as they are. An error says in the driver's own words why devices
// that may be there could not be read; devices returned beside it are used.
type Prober interface {
	Devices(ctx context.Context) ([]catalog.Device, []string, error)
}

// Options are the seams of Hardware. The zero value measures this box.
type Options struct {
	Root    string // where /proc, /sys and /dev are found; empty: "/"
	Probers []Prober
	// Affinity is the number of CPUs that this process may use; nil asks the kernel.
	Affinity func() int
}

// Hardware measures one box.
type Hardware struct {
	fsys     fs.FS
	probers  []Prober
	affinity func() int

	mu     sync.Mutex
	looks  int     // at what is there for good
	cpu    cpuInfo // of the last one
	unused string
}

// goodLooks is how many inventories take what is there for good from one look: a
// server lists hundreds of devices and threads, and is asked each second.
const goodLooks = 30

// forGood is the CPU, and a note on cards that no prober found.
func (h *Hardware) forGood() (cpuInfo, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looks%goodLooks == 0 {
		h.cpu, h.unused = h.readCPU(), h.unusedGPUs()
	}
	h.looks++
	return h.cpu, h.unused
}

// New prepares measuring; it reads nothing yet.
func New(o Options) *Hardware {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Affinity == nil {
		o.Affinity = runtime.NumCPU
	}
	return &Hardware{fsys: os.DirFS(o.Root), probers: o.Probers, affinity: o.Affinity}
}

// Inventory measures the box now. The CPU is always the last device.
func (h *Hardware) Inventory(ctx context.Context) catalog.Inventory {
	inv := catalog.Inventory{Arch: runtime.GOARCH, OS: runtime.GOOS}
	cpu, unused := h.forGood()
	groups := h.cgroups()
	inv.Threads = h.threads(cpu.processors, groups)
	inv.RAMTotal, inv.RAMFree = h.memory(groups)
	inv.Devices, inv.Notes = h.gpus(ctx, unused)
	inv.Devices = append(inv.Devices, catalog.Device{
		ID: "cpu", Kind: catalog.DeviceCPU, Name: cpu.model,
		MemoryTotal: inv.RAMTotal, MemoryFree: inv.RAMFree, Celsius: h.cpuCelsius(),
	})
	return inv
}

// gpus asks each prober; unused is noted when none found any.
func (h *Hardware) gpus(ctx context.Context, unused string) ([]catalog.Device, []string) {
	devices, notes := []catalog.Device{}, []string{}
	for _, p := range h.probers {
		found, said, err := p.Devices(ctx)
		devices, notes = append(devices, found...), append(notes, said...)
		if err != nil {
			notes = append(notes, err.Error())
		}
	}
	if len(devices) == 0 {
		notes = append(notes, unused)
	}
	return devices, notes
}
