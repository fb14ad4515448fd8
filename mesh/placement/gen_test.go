package placement

import (
	"fmt"
	"time"

	"llmgw/mesh/catalog"

	"pgregory.net/rapid"
)

// engineOther is an engine that only profiles name.
const engineOther = "other"

// oneIn is true about once in n draws; what shrinks towards false is the plain case.
func oneIn(t *rapid.T, n int, what string) bool { return rapid.IntRange(1, n).Draw(t, what) == n }

func drawNode(t *rapid.T, what string) string {
	return fmt.Sprintf("node%d", rapid.IntRange(0, 5).Draw(t, what)) // of which not all are there
}

// genMesh draws a mesh with all that a decision depends on: catalog, inventory, who is
// heard, what is assigned already, what runs and what requests ask for.
func genMesh(t *rapid.T) Input {
	var in Input
	for i := range rapid.IntRange(0, 5).Draw(t, "models") {
		in.Models = append(in.Models, genModel(t, fmt.Sprintf("m%d", i)))
	}
	for _, id := range append(modelIDs(in), "deleted") {
		in.Assignments = append(in.Assignments, genAssignments(t, id)...)
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
		in.Nodes = append(in.Nodes, genNode(t, fmt.Sprintf("node%d", i), in))
	}
	return in
}

func modelIDs(in Input) []string {
	ids := make([]string, len(in.Models))
	for i, m := range in.Models {
		ids[i] = m.ID
	}
	return ids
}

func genModel(t *rapid.T, id string) catalog.Model {
	m := model(id, rapid.IntRange(0, 2).Draw(t, "min"))
	m.Scale.Max = m.Scale.Min + rapid.IntRange(0, 2).Draw(t, "more")
	m.Unloaded = uint64(rapid.IntRange(0, 2).Draw(t, "unloaded"))
	m.Scale.Idle = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "idle")
	m.Source.SizeBytes = rapid.SampledFrom([]int64{1 << 30, 1 << 28, 1 << 32}).Draw(t, "size")
	m.Source.Digest = rapid.SampledFrom([]string{digest, "sha256:bb"}).Draw(t, "digest")
	if oneIn(t, 8, "format?") {
		m.Source.Format = rapid.SampledFrom([]string{catalog.FormatSim, "safetensors"}).Draw(t, "format")
	}
	if oneIn(t, 6, "pin?") {
		m.Pin = drawNode(t, "pin")
	}
	zone := map[string]string{"zone": "eu"}
	if oneIn(t, 6, "require?") {
		m.Labels.Require = zone
	} else if oneIn(t, 6, "forbid?") {
		m.Labels.Forbid = zone
	}
	if oneIn(t, 8, "stopped?") {
		m.State = catalog.ModelStopped
	}
	for i, engine := range []string{catalog.EngineLlamaCpp, engineOther} {
		if oneIn(t, 3, "profile?") {
			m.Profiles = append(m.Profiles, catalog.Profile{ID: fmt.Sprintf("p%d", i), Engine: engine, Priority: rapid.IntRange(0, 1).Draw(t, "priority")})
		}
	}
	return m
}

func genAssignments(t *rapid.T, id string) []catalog.Assignment {
	var out []catalog.Assignment
	for slot := range rapid.IntRange(0, 3).Draw(t, "rows") {
		a := catalog.Assignment{Model: id, Slot: slot, Epoch: uint64(rapid.IntRange(1, 9).Draw(t, "epoch")), Reason: "before"}
		if !oneIn(t, 4, "vacant?") {
			a.Owner, a.Demand = drawNode(t, "owner"), rapid.Bool().Draw(t, "demand")
			a.After = uint64(rapid.IntRange(0, 2).Draw(t, "after"))
			a.Device = rapid.SampledFrom([]string{"", "GPU-1", "GPU-9"}).Draw(t, "device")
		}
		out = append(out, a)
	}
	return out
}

// genMemory is free memory of a device; nil when it could not be measured.
func genMemory(t *rapid.T, what string) *int64 {
	free := rapid.SampledFrom([]int64{1 << 31, 0, 1 << 29, 1 << 33, -1}).Draw(t, what)
	if free < 0 {
		return nil
	}
	return &free
}

func genNode(t *rapid.T, id string, in Input) Node {
	n := able(id, 0)
	n.Live = !oneIn(t, 6, "dead?")
	n.Gone = !n.Live && rapid.Bool().Draw(t, "gone")
	n.Settings.Cordoned = oneIn(t, 6, "cordoned?")
	n.Settings.Draining = oneIn(t, 6, "draining?")
	n.Settings.Labels = map[string]string{"zone": rapid.SampledFrom([]string{"eu", "us"}).Draw(t, "zone")}
	n.Presence.Complete = !oneIn(t, 8, "incomplete?")
	n.Presence.Stopping = oneIn(t, 8, "stopping?")
	n.Presence.Weights = rapid.SampledFrom([][]string{{digest, "sha256:bb"}, {digest}, nil}).Draw(t, "weights")
	n.Presence.Engines = genEngines(t)
	n.Presence.Inventory = genInventory(t)
	for _, d := range n.Presence.Inventory.Devices {
		if oneIn(t, 5, "device cordoned?") {
			n.Settings.CordonedDevices = append(n.Settings.CordonedDevices, d.ID)
		}
	}
	for _, m := range in.Models {
		if oneIn(t, 4, "want?") {
			n.Presence.Wants = append(n.Presence.Wants, catalog.Want{
				Model: m.ID, Replicas: rapid.IntRange(0, 4).Draw(t, "wanted"), After: uint64(rapid.IntRange(0, 3).Draw(t, "asked after")), Waited: rapid.SampledFrom([]int64{0, 8, 64}).Draw(t, "waited"),
			})
		}
	}
	for _, a := range in.Assignments {
		if a.Owner == id && !oneIn(t, 5, "not begun?") || oneIn(t, 6, "stray?") {
			n.Presence.Replicas = append(n.Presence.Replicas, genReplica(t, a))
		}
	}
	return n
}

func genEngines(t *rapid.T) []catalog.EngineInfo {
	kinds := rapid.SampledFrom([]string{"", "nvidia", "amd", "nvidia,amd"})
	var out []catalog.EngineInfo
	for _, name := range []string{catalog.EngineLlamaCpp, engineOther, catalog.EngineSim} {
		if !oneIn(t, 4, "without "+name) {
			out = append(out, catalog.EngineInfo{Name: name, Devices: kinds.Draw(t, "computes on")})
		}
	}
	return out
}

func genInventory(t *rapid.T) catalog.Inventory {
	inv := catalog.Inventory{RAMFree: genMemory(t, "RAM")}
	for i := range rapid.IntRange(0, 2).Draw(t, "GPUs") {
		kind := rapid.SampledFrom([]catalog.DeviceKind{catalog.DeviceNVIDIA, catalog.DeviceAMD}).Draw(t, "kind")
		inv.Devices = append(inv.Devices, catalog.Device{ID: fmt.Sprintf("GPU-%d", i+1), Kind: kind, MemoryFree: genMemory(t, "VRAM")})
	}
	if rapid.Bool().Draw(t, "CPU listed") {
		inv.Devices = append(inv.Devices, catalog.Device{ID: cpuID, Kind: catalog.DeviceCPU})
	}
	return inv
}

func genReplica(t *rapid.T, a catalog.Assignment) catalog.ReplicaStatus {
	r := catalog.ReplicaStatus{
		Model: a.Model, Slot: a.Slot, Device: deviceID(a.Device), Digest: rapid.SampledFrom([]string{digest, "", "sha256:bb"}).Draw(t, "serves"),
		State: rapid.SampledFrom([]catalog.ReplicaState{catalog.ReplicaReady, catalog.ReplicaReady, catalog.ReplicaLoading, catalog.ReplicaQuarantined}).Draw(t, "state"),
		Since: int64(rapid.IntRange(1, 9).Draw(t, "since")), Used: int64(rapid.IntRange(1, 9).Draw(t, "used")),
		InFlight: rapid.IntRange(0, 1).Draw(t, "in flight"), Idle: rapid.Bool().Draw(t, "idle"), Fresh: rapid.Bool().Draw(t, "fresh"), PID: 7,
	}
	if r.State == catalog.ReplicaQuarantined {
		r.PID = 0
	}
	return r
}
