package catalog

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
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
		"by names":               {[]ProviderModel{{Pattern: "llama3"}, {Pattern: "gone"}, {Pattern: "QWEN3:8B"}}, []string{"llama3", "QWEN3:8B"}, map[string]string{"llama3": "llama3:latest", "qwen3:8b": "Qwen3:8b"}},
		"by the first that fits": {[]ProviderModel{{Pattern: "l*"}, {Pattern: "llm", Theirs: "llama3"}}, []string{"llama3:latest"}, map[string]string{"llm": "", "llama3": "llama3:latest"}},
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

func TestModelOfAHost(t *testing.T) {
	s := HostStatus{Models: []HostModel{{Name: "A"}, {Name: "b:latest", Cold: true}, {Name: "b:LATEST"}, {Name: "a:latest", Context: 7}, {Name: ""}}}
	for name, want := range map[string]string{"a": "A", "A": "A", "b": "b:latest", "B": "b:latest", "B:Latest": "b:latest", "a:latest": "a:latest", "b:latest:latest": "", "c": "", "latest": "", ":latest": ""} {
		if got, ok := s.Model(name); ok != (want != "") || got.Name != want {
			t.Errorf("%q is %+v, %v; want %q", name, got, ok, want)
		}
	}
	if got, ok := s.Model("b"); !ok || !got.Cold {
		t.Errorf("it is %+v, %v", got, ok)
	}
	if _, ok := (HostStatus{}).Model("a"); ok {
		t.Error("a host without models has one")
	}
}

// Each name that a host's models may be asked by finds one, and none is there twice.
func TestNamesOfAHostFindItsModels(t *testing.T) {
	name := rapid.OneOf(names(), rapid.StringMatching(`[ab]{1,2}(:latest)?`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		var s HostStatus
		for _, n := range rapid.SliceOfN(name, 0, 6).Draw(t, "theirs") {
			s.Models = append(s.Models, HostModel{Name: n})
		}
		var p Provider
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			m := ProviderModel{Pattern: rapid.SampledFrom([]string{"*", "a*", "a", "B", "*:latest", "c"}).Draw(t, "pattern")}
			if m.Pattern == "c" && len(s.Models) > 0 {
				m.Theirs = rapid.SampledFrom(s.Models).Draw(t, "theirs").Name
			}
			p.Models = append(p.Models, m)
		}
		seen := map[string]bool{}
		for _, n := range p.HostNames(s) {
			got, ok := p.HostMatch(s, n)
			if !ok || !slices.Contains(s.Models, got) || CheckName(n) != nil {
				t.Fatalf("%q finds %+v, %v", n, got, ok)
			}
			if seen[FoldName(n)] {
				t.Fatalf("%q is there twice", n)
			}
			seen[FoldName(n)] = true
		}
		if len(p.Models) == 0 {
			for _, m := range s.Models {
				if CheckName(m.Name) == nil && !seen[FoldName(m.Name)] {
					t.Fatalf("%q is not told", m.Name)
				}
			}
		}
	})
}
