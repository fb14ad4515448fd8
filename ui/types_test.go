package ui

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"llmgw/mesh/catalog"
)

var (
	tsInterface = regexp.MustCompile(`(?s)export interface (\w+) \{\n(.*?)\n\}`)
	tsField     = regexp.MustCompile(`(?m)^\s+(\w+):`)
)

// TestTypeScriptNamesTheSameFields compares the page's types with the JSON of ours.
func TestTypeScriptNamesTheSameFields(t *testing.T) {
	source, err := os.ReadFile("web/src/lib/types.ts")
	if err != nil {
		t.Fatal(err)
	}
	ts := map[string][]string{}
	for _, m := range tsInterface.FindAllStringSubmatch(string(source), -1) {
		for _, f := range tsField.FindAllStringSubmatch(m[2], -1) {
			ts[m[1]] = append(ts[m[1]], f[1])
		}
		slices.Sort(ts[m[1]])
	}
	ours := map[string]any{
		"Problem": Problem{}, "NodeInfo": NodeInfo{}, "MeshInfo": MeshInfo{}, "Status": Status{}, "Device": Device{},
		"Hardware": Hardware{}, "Engine": Engine{}, "Fetch": Fetch{}, "Node": Node{}, "Sighting": Sighting{},
		"Model": Model{}, "Replica": Replica{}, "Overview": Overview{}, "SessionRequest": SessionRequest{}, "SessionResult": SessionResult{},
	}
	for name, value := range ours {
		if diff := cmp.Diff(jsonFields(t, value), ts[name]); diff != "" {
			t.Errorf("%s: -Go +TypeScript:\n%s", name, diff)
		}
		delete(ts, name)
	}
	for name := range ts {
		t.Errorf("TypeScript has %s, which no Go type is compared with", name)
	}
}

func jsonFields(t *testing.T, value any) (names []string) {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestPresenceConverts(t *testing.T) {
	inv := catalog.Inventory{Arch: "arm64", OS: "linux", RAMTotal: ptr(int64(8)), Notes: []string{"n"},
		Devices: []catalog.Device{{ID: "cpu", Kind: catalog.DeviceCPU, Name: "A76", MemoryTotal: ptr(int64(8))}}}
	check(t, nil, HardwareOf(inv), Hardware{Arch: "arm64", OS: "linux", RAMTotal: ptr(int64(8)), Notes: []string{"n"},
		Devices: []Device{{ID: "cpu", Kind: "cpu", Name: "A76", MemoryTotal: ptr(int64(8))}}})
	check(t, nil, EngineOf("p", "attic", catalog.EngineInfo{Name: "sim", From: "built in"}), Engine{Node: "p", NodeName: "attic", Name: "sim", From: "built in"})
	check(t, nil, FetchOf(catalog.FetchStatus{Source: "s", Done: 3}), Fetch{Source: "s", Done: 3})
}

func TestReplicaConverts(t *testing.T) {
	for _, c := range []struct {
		name     string
		in       catalog.ReplicaStatus
		age      *int64
		inFlight *int
	}{
		{"running and idle", catalog.ReplicaStatus{Since: noon.Unix() - 5, PID: 7}, ptr(int64(5)), ptr(0)},
		{"not running", catalog.ReplicaStatus{Since: noon.Unix()}, ptr(int64(0)), nil},
		{"holder's clock is ahead", catalog.ReplicaStatus{Since: noon.Unix() + 60}, nil, nil},
		{"start not told", catalog.ReplicaStatus{}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ReplicaOf("p", "attic", "M", c.in, noon.Add(500*time.Millisecond))
			check(t, nil, got.StateSeconds, c.age)
			check(t, nil, got.InFlight, c.inFlight)
			check(t, nil, got.Slots, (*int)(nil))
		})
	}
}
