package ui

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		"Model": Model{}, "ModelLimits": ModelLimits{}, "Replica": Replica{}, "Overview": Overview{}, "MeshSetting": MeshSetting{}, "SessionRequest": SessionRequest{}, "SessionResult": SessionResult{},
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
