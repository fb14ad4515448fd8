package catalog

import (
	"testing"
)

func TestMemoryNeed(t *testing.T) {
	for _, tc := range []struct {
		name string
		m    Model
		p    Profile
		want int64
	}{
		{"file and KV by header", Model{Source: Source{SizeBytes: 1000, KVBytesPerToken: 10}}, Profile{Context: 100, Parallel: 2}, 1000 + 10*100*2},
		{"trained context bounds it", Model{Source: Source{SizeBytes: 0, KVBytesPerToken: 1, ContextTrain: 50}}, Profile{Parallel: 1}, 50},
		{"defaults", Model{Source: Source{KVBytesPerToken: 1}}, Profile{}, DefaultContext * DefaultParallel},
		{"no header", Model{Source: Source{SizeBytes: 1000}}, Profile{}, 1200},
	} {
		if got := tc.m.MemoryNeed(tc.p); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}
