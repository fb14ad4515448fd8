package catalog

import (
	"slices"
	"testing"
)

func TestNamesOfAHostsModels(t *testing.T) {
	s := HostStatus{Models: []HostModel{{Name: "Qwen3:8b"}, {Name: "llama3:latest"}, {Name: "odd name"}, {Name: "qwen3:8B", Cold: true}}}
	for name, c := range map[string]struct {
		models []ProviderModel
		names  []string
		finds  map[string]string // by name asked; empty: nothing
	}{
		"all": {nil, []string{"Qwen3:8b", "llama3:latest"}, map[string]string{
			"qwen3:8b": "Qwen3:8b", "LLAMA3": "llama3:latest", "llama3:latest": "llama3:latest", "odd name": "", "qwen3": "", "": "", "qwen3:8b@x": "",
		}},
		"by patterns": {[]ProviderModel{{Pattern: "qwen*"}}, []string{"Qwen3:8b"}, map[string]string{"qwen3:8b": "Qwen3:8b", "llama3": ""}},
		"by other names": {[]ProviderModel{{Pattern: "small", Theirs: "llama3"}, {Pattern: "odd", Theirs: "odd name"}, {Pattern: "gone", Theirs: "gone"}},
			[]string{"small", "odd"}, map[string]string{"SMALL": "llama3:latest", "odd": "odd name", "gone": "", "llama3": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Provider{Models: c.models}
			if got := p.HostNames(s); !slices.Equal(got, c.names) {
				t.Errorf("names %q, want %q", got, c.names)
			}
			for asked, want := range c.finds {
				if got, ok := p.HostMatch(s, asked); ok != (want != "") || got.Name != want {
					t.Errorf("%q finds %+v, want %q", asked, got, want)
				}
			}
		})
	}
}
