package node

import (
	"testing"

	"llmgw/mesh"
	"llmgw/mesh/catalog"
	"llmgw/ui"

	"github.com/google/go-cmp/cmp"
)

func TestLoadTimesAreTakenFromWhatWasSeen(t *testing.T) {
	small := catalog.Model{ID: "small", Source: catalog.Source{Digest: "s", SizeBytes: 100}}
	big := catalog.Model{ID: "big", Source: catalog.Source{Digest: "b", SizeBytes: 1000}}
	loaded := func(model string, ms int64) catalog.ReplicaStatus {
		return catalog.ReplicaStatus{Model: model, LoadMS: ms}
	}
	node := func(id string, files []string, replicas ...catalog.ReplicaStatus) mesh.Node {
		return mesh.Node{ID: id, Presence: catalog.Presence{Weights: files, Replicas: replicas}}
	}
	names := map[string]string{"a": "box-a", "b": "box-b", "c": "box-c"}
	cases := map[string]struct {
		nodes       []mesh.Node
		model, node string
		want        *ui.LoadTime
	}{
		"nothing was seen":   {[]mesh.Node{node("a", nil)}, "small", "a", nil},
		"the same there":     {[]mesh.Node{node("a", []string{"s"}, loaded("small", 2000)), node("b", nil, loaded("small", 9000))}, "small", "a", &ui.LoadTime{Seconds: 2, From: "as it took there"}},
		"the same elsewhere": {[]mesh.Node{node("a", []string{"s"}), node("b", nil, loaded("small", 9000))}, "small", "a", &ui.LoadTime{Seconds: 9, From: "as it took on box-b"}},
		"the slower of two":  {[]mesh.Node{node("a", []string{"s"}), node("b", nil, loaded("small", 9000)), node("c", nil, loaded("small", 8000))}, "small", "a", &ui.LoadTime{Seconds: 9, From: "as it took on box-b"}},
		"another's rate":     {[]mesh.Node{node("a", nil, loaded("small", 500)), node("b", nil, loaded("small", 9000))}, "big", "a", &ui.LoadTime{Seconds: 5, From: "at the rate of small on box-a", Fetch: true}},
		"an unknown model":   {[]mesh.Node{node("a", nil, loaded("small", 500))}, "none", "a", nil},
	}
	for name, c := range cases {
		v := &view{models: []catalog.Model{big, small}, nodes: c.nodes, names: names}
		if diff := cmp.Diff(c.want, v.loadTime(c.model, c.node, nil)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
