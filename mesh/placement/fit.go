package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"llmgw/mesh/catalog"
)

// DefaultEngine is the engine that reads a format when no profile says more.
func DefaultEngine(format string) (string, bool) {
	switch format {
	case catalog.FormatGGUF:
		return catalog.EngineLlamaCpp, true
	case catalog.FormatSim:
		return catalog.EngineSim, true
	}
	return "", false
}

// DefaultProfile is how a model runs when nobody said more; false if no engine
// reads its format.
func DefaultProfile(format string) (catalog.Profile, bool) {
	engine, ok := DefaultEngine(format)
	return catalog.Profile{ID: "default", Engine: engine}, ok
}

// ChooseProfile picks the profile that a node with these engines runs m under:
// of those whose engine is installed the one with the highest priority, then
// the format's default engine, then by ID. missing names the engines that would do, when none is installed.
func ChooseProfile(m catalog.Model, installed []catalog.EngineInfo) (p catalog.Profile, missing []string, ok bool) {
	profiles := slices.Clone(m.Profiles)
	if len(profiles) == 0 {
		fallback, known := DefaultProfile(m.Source.Format)
		if !known {
			return catalog.Profile{}, nil, false
		}
		profiles = []catalog.Profile{fallback}
	}
	slices.SortFunc(profiles, func(a, b catalog.Profile) int {
		return cmp.Or(compareEngines(m, a, b), strings.Compare(a.ID, b.ID))
	})
	for _, p := range profiles {
		if slices.ContainsFunc(installed, func(e catalog.EngineInfo) bool { return e.Name == p.Engine }) {
			return p, nil, true
		}
		missing = append(missing, p.Engine)
	}
	return catalog.Profile{}, missing, false
}

// compareEngines orders profiles, the better first: the higher priority, then the
// default engine of the format.
func compareEngines(m catalog.Model, a, b catalog.Profile) int {
	usual, _ := DefaultEngine(m.Source.Format)
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(rank(a, usual), rank(b, usual)))
}

func rank(p catalog.Profile, usual string) int {
	if p.Engine == usual {
		return 0
	}
	return 1
}

// lacks says what keeps n from ever serving m as things are, memory aside;
// empty if nothing does.
func lacks(m catalog.Model, n Node) string {
	_, missing, ok := ChooseProfile(m, n.Presence.Engines)
	switch {
	case !ok && len(missing) == 0:
		return fmt.Sprintf("no engine reads the format %q", m.Source.Format)
	case !ok:
		return fmt.Sprintf("engine %s is not installed (llmgw engines install %s there)", missing[0], missing[0])
	case !slices.Contains(n.Presence.Weights, m.Source.Digest):
		return fmt.Sprintf("the file is not on its disk (llmgw pull %s --as %s there)", m.Source.URI, m.Name)
	}
	return ""
}

// refusal says why a node cannot be given a slot; memory: for want of it alone.
type refusal struct {
	text   string
	memory bool
}

func because(text string) refusal { return refusal{text: text} }

// fit finds the device of n that a slot of m can have; refused says why none.
func (p *planner) fit(m catalog.Model, slot int, n Node) (device string, refused refusal) {
	if why := p.closed(m, n); why != "" {
		return "", because(why)
	}
	if holds(m, slot, n) { // its memory is taken already
		return residentOn(m, slot, n), refusal{}
	}
	if why := lacks(m, n); why != "" {
		return "", because(why)
	}
	var open []catalog.Device
	why := []string{}
	memory := false
	for _, d := range p.usable(m, n) {
		room, known := p.room(n, d)
		switch {
		case slices.Contains(n.Settings.CordonedDevices, d.ID):
			why = append(why, "its device "+d.ID+" is cordoned")
		case known && need(m, n) > room:
			memory = true
			why = append(why, fmt.Sprintf("needs %s of memory, %s is free there", size(need(m, n), math.Ceil), size(max(room, 0), math.Floor))+onDevice(d))
		default:
			open = append(open, d)
		}
	}
	if len(open) == 0 {
		return "", refusal{strings.Join(why, ", "), memory}
	}
	best := slices.MinFunc(open, func(a, b catalog.Device) int { return p.compareDevices(n, a, b) })
	return assignedID(best), refusal{}
}

// closed says why a node is given nothing now, or not this model.
func (p *planner) closed(m catalog.Model, n Node) string {
	switch {
	case !n.Live:
		return "does not answer now"
	case n.Presence.Stopping:
		return "is stopping"
	case !n.Presence.Complete:
		return "has just started and has not told yet what it has"
	case n.Settings.Draining:
		return "is being drained"
	case n.Settings.Cordoned:
		return "is cordoned"
	}
	return m.Labels.Refuses(n.Settings.Labels)
}

// cpuID is what inventories call the CPU.
const cpuID = "cpu"

// deviceID is the device of an assignment, which leaves the CPU out.
func deviceID(assigned string) string { return cmp.Or(assigned, cpuID) }

func assignedID(d catalog.Device) string {
	if d.Kind == catalog.DeviceCPU {
		return ""
	}
	return d.ID
}

func onDevice(d catalog.Device) string {
	if d.Kind == catalog.DeviceCPU {
		return ""
	}
	return " on " + d.ID
}

// devices are what a node told, and its CPU also when it told none. The CPU's
// memory is the box's.
func devices(n Node) []catalog.Device {
	inv := n.Presence.Inventory
	out := slices.Clone(inv.Devices)
	i := slices.IndexFunc(out, func(d catalog.Device) bool { return d.Kind == catalog.DeviceCPU })
	if i < 0 {
		out, i = append(out, catalog.Device{Kind: catalog.DeviceCPU, MemoryTotal: inv.RAMTotal, MemoryFree: inv.RAMFree}), len(out)
	}
	out[i].ID = cpuID
	if out[i].MemoryFree == nil {
		out[i].MemoryFree = inv.RAMFree
	}
	return out
}

// usable are the devices that the engine of m on n computes on.
func (p *planner) usable(m catalog.Model, n Node) []catalog.Device {
	profile, _, _ := ChooseProfile(m, n.Presence.Engines)
	i := slices.IndexFunc(n.Presence.Engines, func(e catalog.EngineInfo) bool { return e.Name == profile.Engine })
	if i < 0 {
		return nil
	}
	return slices.DeleteFunc(devices(n), func(d catalog.Device) bool { return !n.Presence.Engines[i].ComputesOn(d.Kind) })
}

// room is the memory of a device that is not spoken for; false if unknown.
// Memory that could not be measured is unknown, not zero: it refuses nothing.
func (p *planner) room(n Node, d catalog.Device) (int64, bool) {
	if d.MemoryFree == nil {
		return 0, false
	}
	return *d.MemoryFree - p.spoken[place{n.ID, d.ID}], true
}

// compareDevices orders the devices of one node, the better first: accelerators,
// then the fewest slots, then the most room, unknown last.
func (p *planner) compareDevices(n Node, a, b catalog.Device) int {
	cpu := func(d catalog.Device) int {
		if d.Kind == catalog.DeviceCPU {
			return 1
		}
		return 0
	}
	roomA, _ := p.room(n, a)
	roomB, _ := p.room(n, b)
	return cmp.Or(
		cmp.Compare(cpu(a), cpu(b)),
		cmp.Compare(p.on[place{n.ID, a.ID}], p.on[place{n.ID, b.ID}]),
		cmp.Compare(roomB, roomA),
		strings.Compare(a.ID, b.ID))
}

// size is an amount of memory for a person. What is needed is rounded up and what is
// free down, or too little would look like enough.
func size(bytes int64, round func(float64) float64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", round(float64(bytes)/(1<<30)*10)/10)
	}
	return fmt.Sprintf("%.0f MiB", round(float64(bytes)/(1<<20)))
}
