package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmgw/mesh/catalog"

	"pgregory.net/rapid"
)

// world is a mesh that really runs: boxes with memory that replicas take, stewards that
// write, nodes that follow. Placement sees of it what it sees of a real one.
type world struct {
	models      []catalog.Model
	boxes       []*box
	assignments map[catalog.AssignmentID]catalog.Assignment
	clock       int64
}

// box is the truth of a node.
type box struct {
	Node
	total    map[string]int64 // memory, by device
	blind    bool             // nothing can be measured
	replicas []catalog.ReplicaStatus
	holdDown int // ticks since it died
}

// holdTicks is the hold-down of dead boxes.
const holdTicks = 3

// needs is the memory that a replica takes in truth.
func (w *world) needs(model string) int64 {
	for _, m := range w.models {
		if m.ID == model {
			return m.Source.SizeBytes + m.Source.SizeBytes/5
		}
	}
	return 0
}

// input is what every node knows.
func (w *world) input() Input {
	in := Input{Models: slices.Clone(w.models)}
	for _, b := range w.boxes {
		in.Nodes = append(in.Nodes, w.seen(b))
	}
	for _, a := range w.assignments {
		in.Assignments = append(in.Assignments, a)
	}
	return in
}

// seen is a box as its presence tells.
func (w *world) seen(b *box) Node {
	n := b.Node
	n.Gone = !n.Live && b.holdDown >= holdTicks
	n.Presence.Replicas = slices.Clone(b.replicas)
	n.Presence.Inventory = catalog.Inventory{RAMFree: w.free(b, cpuID)}
	for _, id := range slices.Sorted(maps.Keys(b.total)) {
		if id != cpuID {
			n.Presence.Inventory.Devices = append(n.Presence.Inventory.Devices, catalog.Device{ID: id, Kind: catalog.DeviceNVIDIA, MemoryFree: w.free(b, id)})
		}
	}
	return n
}

func (w *world) used(b *box, device string) (bytes int64) {
	for _, r := range b.replicas {
		if r.Device == device && r.PID != 0 {
			bytes += w.needs(r.Model)
		}
	}
	return bytes
}

func (w *world) free(b *box, device string) *int64 {
	if b.blind {
		return nil
	}
	free := b.total[device] - w.used(b, device)
	return &free
}

// tick is one second of the mesh; it says whether anything changed.
func (w *world) tick(t *rapid.T) (changed bool) {
	w.clock++
	in := w.input()
	for _, d := range Plan(in) {
		changed = w.write(t, in, d) || changed
	}
	for _, b := range w.boxes {
		switch {
		case b.Live:
			changed = w.follow(b, Reconcile(b.ID, in)) || changed
		case b.holdDown < holdTicks:
			b.holdDown++
			changed = true
		}
	}
	w.check(t)
	return changed
}

// write is what the steward of a model does with a decision.
func (w *world) write(t *rapid.T, in Input, d Decision) bool {
	if d.Write == nil || Steward(d.Model, in.Nodes) == "" {
		return false
	}
	if before := w.assignments[d.id()]; d.Write.Epoch <= before.Epoch {
		t.Fatalf("%v: epoch %d after %d", d.id(), d.Write.Epoch, before.Epoch)
	}
	w.assignments[d.id()] = *d.Write
	return true
}

// follow is what a node's supervisor does: a replica takes its memory when it starts
// and serves a tick later.
func (w *world) follow(b *box, actions []Action) (changed bool) {
	for i := range b.replicas {
		if b.replicas[i].State == catalog.ReplicaLoading {
			b.replicas[i].State, b.replicas[i].Since, b.replicas[i].Used = catalog.ReplicaReady, w.clock, w.clock
			changed = true
		}
	}
	for _, a := range actions {
		i := slices.IndexFunc(b.replicas, func(r catalog.ReplicaStatus) bool { return r.Model == a.Model && r.Slot == a.Slot })
		switch {
		case !a.Run && i >= 0:
			b.replicas = slices.Delete(b.replicas, i, i+1)
		case a.Run && i < 0:
			b.replicas = append(b.replicas, catalog.ReplicaStatus{
				Model: a.Model, Slot: a.Slot, Epoch: a.Epoch, Device: deviceID(a.Device), Digest: digest, State: catalog.ReplicaLoading, PID: 7,
			})
		default:
			continue
		}
		changed = true
	}
	return changed
}

// check holds after every tick.
func (w *world) check(t *rapid.T) {
	t.Helper()
	for _, b := range w.boxes {
		for device, total := range b.total {
			if used := w.used(b, device); used > total && !b.blind {
				t.Fatalf("%s of %s has %d and %d is used", device, b.ID, total, used)
			}
		}
	}
}

// rest lets ticks pass until nothing changes any more.
func (w *world) rest(t *rapid.T) {
	t.Helper()
	for range 200 {
		if !w.tick(t) {
			return
		}
	}
	t.Fatalf("no rest after 200 ticks:\n%s", w)
}

// owners is where each slot is.
func (w *world) owners() map[catalog.AssignmentID]string {
	out := map[catalog.AssignmentID]string{}
	for id, a := range w.assignments {
		if a.Owner != "" {
			out[id] = a.Owner
		}
	}
	return out
}

// serving is who really serves each slot, of the boxes that are up.
func (w *world) serving() map[catalog.AssignmentID][]string {
	out := map[catalog.AssignmentID][]string{}
	for _, b := range w.boxes {
		for _, r := range b.replicas {
			if id := (catalog.AssignmentID{Model: r.Model, Slot: r.Slot}); b.Live && r.State == catalog.ReplicaReady {
				out[id] = append(out[id], b.ID)
			}
		}
	}
	return out
}

// clone is the same world again, for another future.
func (w *world) clone() *world {
	out := &world{models: slices.Clone(w.models), assignments: maps.Clone(w.assignments), clock: w.clock}
	for _, b := range w.boxes {
		copied := *b
		copied.replicas = slices.Clone(b.replicas)
		out.boxes = append(out.boxes, &copied)
	}
	return out
}

func (w *world) String() string {
	var b strings.Builder
	for _, x := range w.boxes {
		fmt.Fprintf(&b, "%s live=%v %v: %v\n", x.ID, x.Live, x.total, x.replicas)
	}
	for _, d := range Plan(w.input()) {
		fmt.Fprintf(&b, "%s/%d %q %s\n", d.Model, d.Slot, d.Owner, d.Reason)
	}
	return b.String()
}

// newWorld draws boxes and models with nothing running yet.
func newWorld(t *rapid.T) *world {
	w := &world{assignments: map[catalog.AssignmentID]catalog.Assignment{}}
	sizes := rapid.SampledFrom([]int64{1 << 30, 1 << 31, 1 << 29})
	for i := range rapid.IntRange(1, 4).Draw(t, "models") {
		m := model(fmt.Sprintf("m%d", i), rapid.IntRange(0, 2).Draw(t, "min"))
		m.Scale.Max = max(m.Scale.Min, rapid.IntRange(0, 3).Draw(t, "max"))
		m.Source.SizeBytes = sizes.Draw(t, "size")
		w.models = append(w.models, m)
	}
	memory := rapid.SampledFrom([]int64{3 << 30, 1 << 30, 5 << 30, 0})
	for i := range rapid.IntRange(1, 4).Draw(t, "boxes") {
		b := &box{Node: able(fmt.Sprintf("node%d", i), 0), total: map[string]int64{cpuID: memory.Draw(t, "RAM")}, blind: oneIn(t, 6, "blind?")}
		b.Presence.Engines[0].Devices = "nvidia"
		for g := range rapid.IntRange(0, 2).Draw(t, "GPUs") {
			b.total[fmt.Sprintf("GPU-%d", g+1)] = memory.Draw(t, "VRAM")
		}
		w.boxes = append(w.boxes, b)
	}
	return w
}

func (w *world) drawBox(t *rapid.T) *box { return rapid.SampledFrom(w.boxes).Draw(t, "box") }

func (w *world) drawModel(t *rapid.T) *catalog.Model {
	return &w.models[rapid.IntRange(0, len(w.models)-1).Draw(t, "model")]
}

// die takes a box and what runs on it away.
func (b *box) die() { b.Live, b.replicas, b.holdDown = false, nil, 0 }

// events are what befalls a mesh.
var events = map[string]func(*rapid.T, *world){
	"time": func(t *rapid.T, w *world) { w.tick(t) },
	"die":  func(t *rapid.T, w *world) { w.drawBox(t).die() },
	"silent": func(t *rapid.T, w *world) { // its engines go on
		b := w.drawBox(t)
		b.Live, b.holdDown = false, 0
	},
	"come back": func(t *rapid.T, w *world) {
		b := w.drawBox(t)
		b.Live, b.Presence.Stopping = true, false
	},
	"stop a daemon": func(t *rapid.T, w *world) { w.drawBox(t).Presence.Stopping = true },
	"cordon": func(t *rapid.T, w *world) {
		b := w.drawBox(t)
		b.Settings.Cordoned = !b.Settings.Cordoned
	},
	"drain": func(t *rapid.T, w *world) {
		b := w.drawBox(t)
		b.Settings.Draining = !b.Settings.Draining
	},
	"cordon a device": func(t *rapid.T, w *world) {
		b := w.drawBox(t)
		if len(b.Settings.CordonedDevices) == 0 {
			b.Settings.CordonedDevices = []string{"GPU-1"}
		} else {
			b.Settings.CordonedDevices = nil
		}
	},
	"label": func(t *rapid.T, w *world) {
		w.drawBox(t).Settings.Labels = map[string]string{"zone": rapid.SampledFrom([]string{"eu", "us"}).Draw(t, "zone")}
	},
	"require": func(t *rapid.T, w *world) {
		w.drawModel(t).Labels = rapid.SampledFrom([]catalog.Selector{{}, {Require: map[string]string{"zone": "eu"}}, {Forbid: map[string]string{"zone": "eu"}}}).Draw(t, "labels")
	},
	"pin": func(t *rapid.T, w *world) {
		w.drawModel(t).Pin = rapid.SampledFrom([]string{"", w.drawBox(t).ID, "nobody"}).Draw(t, "pin")
	},
	"stop a model": func(t *rapid.T, w *world) {
		m := w.drawModel(t)
		m.State = rapid.SampledFrom([]catalog.ModelState{catalog.ModelServed, catalog.ModelStopped}).Draw(t, "state")
	},
	"scale": func(t *rapid.T, w *world) {
		m := w.drawModel(t)
		m.Scale.Min = rapid.IntRange(0, 2).Draw(t, "min")
		m.Scale.Max = max(m.Scale.Min, rapid.IntRange(0, 3).Draw(t, "max"))
	},
	"want": func(t *rapid.T, w *world) {
		b, m := w.drawBox(t), w.drawModel(t)
		knows := uint64(rapid.IntRange(int(max(m.Unloaded, 1)-1), int(m.Unloaded)).Draw(t, "knows")) // of the last unload or not yet
		b.Presence.Wants = append(slices.Clone(b.Presence.Wants), catalog.Want{Model: m.ID, Replicas: rapid.IntRange(1, 3).Draw(t, "replicas"), After: knows})
	},
	"unload": func(t *rapid.T, w *world) {
		m := w.drawModel(t)
		m.Scale.Min, m.Pin = 0, ""
		m.Unloaded++
	},
	"want nothing": func(t *rapid.T, w *world) { w.drawBox(t).Presence.Wants = nil },
	"use": func(t *rapid.T, w *world) {
		b := w.drawBox(t)
		for i := range b.replicas {
			b.replicas[i].Used, b.replicas[i].InFlight = w.clock, rapid.IntRange(0, 1).Draw(t, "in flight")
		}
	},
	"crash": func(t *rapid.T, w *world) { w.drawBox(t).replicas = nil },
	"lose the files": func(t *rapid.T, w *world) {
		w.drawBox(t).Presence.Weights = rapid.SampledFrom([][]string{{digest}, nil}).Draw(t, "weights")
	},
}

// befall lets events happen, with a tick after each now and then.
func (w *world) befall(t *rapid.T, most int) {
	names := slices.Sorted(maps.Keys(events))
	for range rapid.IntRange(0, most).Draw(t, "events") {
		events[rapid.SampledFrom(names).Draw(t, "event")](t, w)
		if rapid.Bool().Draw(t, "tick") {
			w.tick(t)
		}
	}
}

// quiet ends all requests in flight.
func (w *world) quiet() {
	for _, b := range w.boxes {
		for i := range b.replicas {
			b.replicas[i].InFlight = 0
		}
	}
	slices.SortFunc(w.boxes, func(a, b *box) int { return cmp.Compare(a.ID, b.ID) })
}
