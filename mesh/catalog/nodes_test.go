package catalog

import (
	"strings"
	"testing"
)

func TestSettingsOfANode(t *testing.T) {
	b := newBox(t)
	none, err := b.NodeSettings()
	must(t, err)
	if len(none) != 0 {
		t.Errorf("there are %+v", none)
	}
	must(t, b.UpdateNode("p1", func(s *NodeSettings) error {
		if s.Peer != "p1" || s.Labels == nil || len(s.Labels) != 0 || s.Cordoned {
			t.Errorf("a node that nothing was said of: %+v", s)
		}
		s.Labels["zone"], s.Labels["empty"], s.Location = "eu", "", "cellar"
		s.CordonedDevices = []string{"GPU-2", "GPU-1", "GPU-2"}
		return nil
	}))
	must(t, b.UpdateNode("p2", func(s *NodeSettings) error { s.Cordoned = true; return nil }))
	want := map[string]NodeSettings{
		"p1": {Peer: "p1", Location: "cellar", Labels: map[string]string{"zone": "eu", "empty": ""}, CordonedDevices: []string{"GPU-1", "GPU-2"}},
		"p2": {Peer: "p2", Cordoned: true},
	}
	got, err := b.NodeSettings()
	must(t, err)
	equal(t, "settings", want, got)
	must(t, b.UpdateNode("p1", func(s *NodeSettings) error {
		s.Peer = "p2" // whose it is stays
		delete(s.Labels, "zone")
		s.Location, s.CordonedDevices = "", nil
		return nil
	}))
	must(t, b.UpdateNode("p2", func(s *NodeSettings) error { s.Cordoned = false; return nil }))
	got, err = b.NodeSettings()
	must(t, err)
	equal(t, "after they were taken away", map[string]NodeSettings{"p1": {Peer: "p1", Labels: map[string]string{"empty": ""}}, "p2": {Peer: "p2"}}, got)
}

func TestLabelsOfANodeAreChecked(t *testing.T) {
	b := quickBox(t)
	must(t, b.UpdateNode("p", func(s *NodeSettings) error { s.Labels["zone"] = "eu"; return nil }))
	before := b.row(t, nodeKey("p"))
	const plain = "letters, digits, '.', '_' and '-' are allowed, and '/' in the key"
	for range 20 { // whatever the order in which the map is gone through
		refused[*LabelError](t, b.UpdateNode("p", func(s *NodeSettings) error {
			s.Cordoned, s.Labels["fine"], s.Labels["y y"], s.Labels["x x"] = true, "1", "1", "1"
			return nil
		}), `label "x x=1": `+plain)
	}
	if !b.row(t, nodeKey("p")).Equal(before) {
		t.Error("something of it was written")
	}
	long := strings.Repeat("l", maxLabelBytes)
	must(t, b.UpdateNode("p", func(s *NodeSettings) error { s.Labels[long] = long; return nil }))
	got, err := b.NodeSettings()
	must(t, err)
	if got["p"].Labels[long] != long {
		t.Errorf("labels are %v", got["p"].Labels)
	}
}

// A device's name is as its driver says, a slash and letters of other alphabets included.
func TestCordonedDevicesHaveAnyName(t *testing.T) {
	b := quickBox(t)
	names := []string{"", "GPU-1", "cpu", "pci/0000:01", "ß"}
	must(t, b.UpdateNode("p", func(s *NodeSettings) error { s.CordonedDevices = names; return nil }))
	got, err := b.NodeSettings()
	must(t, err)
	equal(t, "devices", names, got["p"].CordonedDevices)
	if got["p"].Cordoned {
		t.Error("the node is cordoned with its devices")
	}
	b.put(t, nodeKey("p"), map[string][]byte{devicePrefix + "cpu": enc(t, false)}) // how another version may lift it
	got, err = b.NodeSettings()
	must(t, err)
	equal(t, "devices", []string{"", "GPU-1", "pci/0000:01", "ß"}, got["p"].CordonedDevices)
}
